"""Documents without noise: lines of navigation and advertisement first, then whole documents by named rules.

Two steps. `scores` measures every document once, in an artifact of its own; then this stage compares the scores with the
thresholds. Every line and document that goes is kept under `removed/` with the rule; documents also with score and
threshold.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from configs.schema import FilterConfig
from tasks.artifact import merge_counts
from tasks.documents import read_table, removed_document, removed_table, write_documents
from tasks.filter import scores
from tasks.filter.lines import NoiseLine
from tasks.filter.personal import mask_personal_data
from tasks.filter.rules import Rule, Verdict, breaks, thresholds
from tasks.filter.scores import score, without_lines
from tasks.stage import Stage, StageResult, StageRun, UnitResult

# Rules that English documents would break, if they stay.
FOR_CHINESE_ALONE = frozenset({"min_han_share", "min_stop_words", "max_characters_without_punctuation"})
SAMPLES_A_RULE, SAMPLE_CHARACTERS = 3, 80

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FilterShard:
    """The work of one unit."""

    index: int
    documents: Path
    scores: Path
    config: FilterConfig


@dataclass(frozen=True)
class Judgement:
    """What the filter finds in one text: the text that stays, the lines that go, and the rule it breaks, if any."""

    text: str
    removed_lines: tuple[tuple[str, str], ...]
    verdict: Verdict | None


def build(run: StageRun) -> StageResult:
    given = run.artifact("dedup")
    score_files = run.make(scores.STAGE, given.manifest).shards
    tasks = [
        FilterShard(index, *paths, run.config.filter)
        for index, paths in enumerate(zip(given.shards, score_files, strict=True))
    ]
    records = run.map("documents", filter_shard, tasks)
    stats: dict[str, Any] = dict(merge_counts(records))
    stats["samples"] = _samples(run.draft.folder, len(tasks))
    return StageResult([file for record in records for file in record.files], stats)


def filter_shard(shard: FilterShard, folder: Path) -> UnitResult:
    """Compare one shard's scores with the thresholds, and write what stays and what goes."""
    documents, measured = read_table(shard.documents), read_table(shard.scores)
    hits = _hits(measured, shard.config)
    effective = {rule: mask for rule, mask in hits.items() if shard.config.mode(rule.name) == "on"}
    gone = np.any([*effective.values()], axis=0) if effective else np.zeros(documents.num_rows, np.bool_)
    stays = pa.array(~gone)
    kept, line_rows, masked = _kept(documents.filter(stays), measured["lines"].filter(stays), shard.config)
    removed = [
        _removed(document, effective, measured, int(place), shard.config)
        for document, place in zip(documents.filter(pa.array(gone)).to_pylist(), np.flatnonzero(gone), strict=True)
    ]
    files, counts = write_documents(
        folder, shard.index, documents.num_rows, kept, removed_table([*removed, *line_rows])
    )
    counts.update(_hit_counts(hits, shard.config))
    counts["personal_data_masked"] = masked
    return files, counts


def judge(text: str, config: FilterConfig) -> Judgement:
    """Return what the filter does with one text. A document that is mostly noise lines goes whole, as it was."""
    found = score(text, config)
    going = [line for line in found.lines if config.mode(line.rule) == "on"]
    removed = tuple((text[line.start : line.end].strip(), line.rule) for line in going)
    for rule, threshold in thresholds(config).items():
        spared = found.is_english and rule.name in FOR_CHINESE_ALONE
        value = found.measures[rule.measure]
        if config.mode(rule.name) == "on" and not spared and breaks(rule, value, threshold):
            kept = text if rule.name == "max_noise_line_share" else found.rest
            return Judgement(kept, removed, Verdict(rule.name, value, threshold))
    rest = mask_personal_data(found.rest)[0] if config.mask_personal_data else found.rest
    return Judgement(rest, removed, None)


def _hits(measured: pa.Table, config: FilterConfig) -> dict[Rule, Mask]:
    """Return for each rule that is on or warns which documents break it."""
    english = measured["is_english"].to_numpy()
    hits = {}
    for rule, threshold in thresholds(config).items():
        if config.mode(rule.name) != "off":
            values = measured[rule.measure].to_numpy()
            broken = values < threshold if rule.is_minimum else values > threshold
            hits[rule] = broken & ~english if rule.name in FOR_CHINESE_ALONE else broken
    return hits


def _kept(
    documents: pa.Table, lines: pa.ChunkedArray, config: FilterConfig
) -> tuple[pa.Table, list[dict[str, Any]], int]:
    """Return the documents that stay without their noise lines, those lines, and how many personal data were masked."""
    texts: list[str] = documents["text"].to_pylist()
    rows: list[dict[str, Any]] = []
    masked = 0
    for place, found in enumerate(lines.to_pylist()):
        going = [NoiseLine(**line) for line in found if config.mode(line["rule"]) == "on"]
        if going:
            document = {name: documents[name][place].as_py() for name in ("id", "source")}
            rows += [_removed_line(document, texts[place], line) for line in going]
            texts[place] = without_lines(texts[place], going)
    if config.mask_personal_data:
        results = [mask_personal_data(text) for text in texts]
        texts, masked = [text for text, _ in results], sum(count for _, count in results)
    if rows or masked:
        column = documents.schema.get_field_index("text")
        documents = documents.set_column(column, documents.schema.field(column), pa.array(texts, pa.string()))
    return documents, rows, masked


def _removed_line(document: dict[str, Any], text: str, line: NoiseLine) -> dict[str, Any]:
    row = removed_document(document | {"text": text[line.start : line.end].strip()}, line.rule, None, None)
    return row | {"scope": "line"}


def _removed(
    document: dict[str, Any], hits: dict[Rule, Mask], measured: pa.Table, place: int, config: FilterConfig
) -> dict[str, Any]:
    """Return the row of a removed document: the first rule that it breaks decides, the others are named."""
    first, *others = [rule for rule, mask in hits.items() if mask[place]]
    threshold = thresholds(config)[first]
    row = removed_document(document, first.name, measured[first.measure][place].as_py(), threshold)
    return row | {"detail": f"also {', '.join(rule.name for rule in others)}" if others else None}


def _hit_counts(hits: dict[Rule, Mask], config: FilterConfig) -> Counter[str]:
    """Count for each rule the documents that break it, and those that break no other."""
    counts: Counter[str] = Counter()
    together = np.sum([*hits.values()], axis=0)
    for rule, mask in hits.items():
        kind = "hits" if config.mode(rule.name) == "on" else "warnings"
        counts[f"{kind}:{rule.name}"] = int(mask.sum())
        counts[f"{kind}_alone:{rule.name}"] = int((mask & (together == 1)).sum())
    return counts


def _samples(folder: Path, shards: int) -> dict[str, list[str]]:
    """Return for each rule the first few documents or lines that it took out."""
    samples: dict[str, list[str]] = {}
    for index in range(shards):
        table = read_table(folder / "removed" / f"part-{index:05d}.parquet", ["id", "rule", "text"])
        for row in table.to_pylist():
            found = samples.setdefault(row["rule"], [])
            if len(found) < SAMPLES_A_RULE:
                excerpt = " ".join("".join(islice(row["text"], 2 * SAMPLE_CHARACTERS)).split())[:SAMPLE_CHARACTERS]
                found.append(f"{row['id']}: {excerpt}")
    return dict(sorted(samples.items()))


STAGE = Stage(
    name="filter",
    version=2,
    libraries=("pyarrow", "numba"),
    settings=lambda config: config.filter.model_dump(exclude={"evaluation_files"}) | scores.settings(config),
    build=build,
)
