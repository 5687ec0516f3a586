"""Documents without noise: lines of navigation and advertisement first, then whole documents by named rules.

Every line and document that goes is kept under `removed/` with the rule; documents also with score and threshold.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.schema import FilterConfig
from tasks.artifact import merge_counts
from tasks.blocks import split_blocks
from tasks.documents import read_table, removed_document, write_documents
from tasks.filter.lines import LineRule, judge_line
from tasks.filter.rules import Verdict, judge_document
from tasks.stage import Stage, StageResult, StageRun, UnitResult

LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class FilterShard:
    """The work of one unit."""

    index: int
    documents: Path
    config: FilterConfig


@dataclass(frozen=True)
class Judgement:
    """What the filter finds in one text: the text that stays, the lines that go, and the rule it breaks, if any."""

    text: str
    removed_lines: tuple[tuple[str, LineRule], ...]
    verdict: Verdict | None


def build(run: StageRun) -> StageResult:
    shards = run.artifact("dedup").shards
    tasks = [FilterShard(index, path, run.config.filter) for index, path in enumerate(shards)]
    records = run.map("documents", filter_shard, tasks)
    return StageResult([file for record in records for file in record.files], dict(merge_counts(records)))


def filter_shard(shard: FilterShard, folder: Path) -> UnitResult:
    """Judge the documents of one shard, and write what stays and what goes."""
    documents = read_table(shard.documents).to_pylist()
    kept: list[dict[str, Any]] = []
    removed: list[dict[str, Any]] = []
    for document in documents:
        judgement = judge(document["text"], shard.config)
        verdict = judgement.verdict
        if verdict is not None:
            removed.append(removed_document(document, verdict.rule, verdict.score, verdict.threshold))
            continue
        kept.append(document | {"text": judgement.text})
        removed.extend(
            removed_document(document, rule, None, None) | {"scope": "line", "text": line}
            for line, rule in judgement.removed_lines
        )
    return write_documents(folder, shard.index, len(documents), kept, removed)


def judge(text: str, config: FilterConfig) -> Judgement:
    """Return what the filter does with one text. A document that is mostly noise lines goes whole, as it was."""
    kept: list[str] = []
    removed: list[tuple[str, LineRule]] = []
    lines = 0
    for block in split_blocks(text):
        for line in LINE.findall(text[block.start : block.end]):
            lines += bool(line.strip())
            rule = judge_line(line) if block.kind in ("paragraph", "list") else None
            if rule is None:
                kept.append(line)
            else:
                removed.append((line.strip(), rule))
    noise_share = len(removed) / lines if lines else 0.0
    if noise_share > config.max_noise_line_share:
        return Judgement(
            text, tuple(removed), Verdict("max_noise_line_share", noise_share, config.max_noise_line_share)
        )
    rest = "".join(kept)
    return Judgement(rest, tuple(removed), judge_document(rest, config))


STAGE = Stage(
    name="filter",
    version=1,
    libraries=("pyarrow",),
    settings=lambda config: config.filter.model_dump(),
    build=build,
)
