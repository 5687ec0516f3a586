"""The scores of documents, an artifact of their own: what is measured does not depend on thresholds, so another threshold
decides anew without measuring again. Only what changes the measured text is in its key: which line rules are on.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from configs.errors import PipelineError
from configs.filters import LINE_RULES
from configs.schema import FilterConfig, RunConfig
from tasks.artifact import merge_counts
from tasks.blocks import scan_blocks
from tasks.code_points import code_points
from tasks.dedup.shingles import shingle
from tasks.documents import read_table, write_table
from tasks.encoding import UnknownEncodingError, decode
from tasks.files import checksum
from tasks.filter.lines import NoiseLine, noise_lines
from tasks.filter.measures import Measures, measure
from tasks.filter.rules import CONTAMINATION, NOISE_LINE_SHARE
from tasks.normalize.text import normalize_text
from tasks.stage import Stage, StageResult, StageRun, UnitResult

CONTAMINATION_UNITS = 13
# Below this share of Han characters a document is shown to the language detector, if English ones stay.
ASK_BELOW_HAN_SHARE = 0.1

NOISE_LINE = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("rule", pa.string())])


class Scores(NamedTuple):
    """What is known of one text: noise lines, the text without those that go, its measures."""

    lines: tuple[NoiseLine, ...]
    rest: str
    measures: dict[str, float]
    is_english: bool


@dataclass(frozen=True)
class ScoreShard:
    """The work of one unit."""

    index: int
    documents: Path
    config: FilterConfig


def score(text: str, config: FilterConfig) -> Scores:
    """Return the scores of one text."""
    codes = code_points(text)
    blocks = scan_blocks(codes)
    lines = tuple(noise_lines(text, codes, blocks, config))
    gone = [line for line in lines if config.mode(line.rule) == "on"]
    rest = text
    if gone:
        rest = without_lines(text, gone)
        codes = code_points(rest)
        blocks = scan_blocks(codes)
    measured = measure(rest, codes, blocks)
    measures = dict(zip(Measures._fields, measured, strict=True))
    noise = sum(line.rule != "contents_line" for line in gone)
    measures[NOISE_LINE_SHARE] = noise / max(1.0, noise + measured.prose_lines)
    if config.evaluation_files:
        known = evaluation_shingles(tuple(config.evaluation_files))
        measures[CONTAMINATION.measure] = float(np.isin(shingle(rest, "mixed", CONTAMINATION_UNITS), known).sum())
    is_english = config.keep_english and measured.han_share < ASK_BELOW_HAN_SHARE and _is_english(rest)
    return Scores(lines, rest, measures, is_english)


def without_lines(text: str, lines: list[NoiseLine]) -> str:
    """Return a text without the lines given, in order."""
    parts, position = [], 0
    for line in lines:
        parts.append(text[position : line.start])
        position = line.end
    return "".join([*parts, text[position:]])


@cache
def evaluation_shingles(files: tuple[str, ...]) -> npt.NDArray[np.uint64]:
    """Return the hashes of the runs of 13 units in evaluation files, normalized as documents are.

    Raises:
        PipelineError: a file that cannot be read.
    """
    found = [shingle(text, "mixed", CONTAMINATION_UNITS) for file in files for text in _evaluation_texts(Path(file))]
    hashes: npt.NDArray[np.uint64] = np.unique(np.concatenate([np.empty(0, np.uint64), *found]))
    return hashes


def build(run: StageRun) -> StageResult:
    shards = run.artifact("dedup").shards
    tasks = [ScoreShard(index, path, run.config.filter) for index, path in enumerate(shards)]
    records = run.map("score", score_shard, tasks)
    return StageResult([file for record in records for file in record.files], dict(merge_counts(records)))


def score_shard(shard: ScoreShard, folder: Path) -> UnitResult:
    """Measure the documents of one shard: a row of scores for each."""
    found = [score(text, shard.config) for text in read_table(shard.documents, ["text"])["text"].to_pylist()]
    names = found[0].measures if found else [*Measures._fields, NOISE_LINE_SHARE]
    columns: dict[str, Any] = {name: [row.measures[name] for row in found] for name in names}
    columns["is_english"] = pa.array([row.is_english for row in found], pa.bool_())
    columns["lines"] = pa.array([[line._asdict() for line in row.lines] for row in found], pa.list_(NOISE_LINE))
    name = f"part-{shard.index:05d}.parquet"
    return {name: write_table(folder / name, pa.table(columns))}, Counter(documents=len(found))


def settings(config: RunConfig) -> dict[str, Any]:
    """Return what decides the scores."""
    section = config.filter
    return {
        "line_rules": {rule: section.mode(rule) for rule in LINE_RULES},
        "keep_english": section.keep_english,
        "evaluation_files": [_checksum(Path(file)) for file in section.evaluation_files],
    }


def _checksum(file: Path) -> str:
    if not file.is_file():
        raise PipelineError(f"filter.evaluation_files: {file}: no such file; give text or JSON lines files")
    return checksum(file)


def _evaluation_texts(file: Path) -> list[str]:
    """Return the whole text, or of JSON lines all the strings of a line."""
    try:
        text = decode(file.read_bytes()).text
    except (OSError, UnknownEncodingError) as error:
        raise PipelineError(f"filter.evaluation_files: {file}: cannot be read: {error}") from None
    settings = RunConfig.model_fields["normalize"].default
    if file.suffix != ".jsonl":
        return [normalize_text(text, settings)]
    try:
        lines = [orjson.loads(line) for line in text.split("\n") if line.strip()]
    except orjson.JSONDecodeError as error:
        raise PipelineError(f"filter.evaluation_files: {file}: a line is no JSON: {error}") from None
    values = [value for line in lines for value in (line.values() if isinstance(line, dict) else [line])]
    return [normalize_text(value, settings) for value in values if isinstance(value, str)]


def _is_english(text: str) -> bool:
    import py3langid

    return bool(py3langid.classify(text)[0] == "en")


STAGE = Stage(
    name="scores",
    version=1,
    libraries=("pyarrow", "numba", "py3langid"),
    settings=settings,
    build=build,
)
