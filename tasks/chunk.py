"""Documents to chunks of about two sequences, cut where the author cut: before headings, between paragraphs, and only
then after sentences. Code, tables, formulas and list entries stay whole unless one alone is too long; then code and
tables are cut between lines. Chunks of a document join to its text again, character by character.

Lengths are estimated in characters: by what the configured tokenizer needs for a sample of the corpus, or, while there is
none yet because `pack` will train it, by `chunk.characters_per_token`. What the tokens really were stands in pack's stats.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.schema import RunConfig
from tasks.artifact import merge_counts
from tasks.blocks import CODE, HEADING, TABLE, scan_blocks
from tasks.code_points import LF, CodePoints, code_points, is_blank
from tasks.compiled import compiled
from tasks.documents import CHUNKS, read_table, write_table
from tasks.files import checksum
from tasks.stage import Stage, StageResult, StageRun, UnitResult
from tasks.tokenizer import Source, load
from tasks.tokenizer.sources import find_source
from tasks.verbatim import Mask, scan

HEADING_MARKS = re.compile(r"^\s*#{1,6}\s+|\s+#*\s*$|</?h[1-6][^>]*>|^\\[a-z]+\*?(?:\[[^\]]*\])?\{|\}\s*$")
ADORNMENT = re.compile(r"([=\-~^\"*+#])\1{2,}")
# A chunk may end before a heading once it is this full; a shorter section is joined by the next one.
FULL_ENOUGH = 0.5
# Documents that show how many characters a token has; more would not change the second digit.
SAMPLE_DOCUMENTS = 200


@dataclass(frozen=True)
class ChunkShard:
    """The work of one unit. `target` and `floor` are lengths in characters."""

    index: int
    documents: Path
    target: int
    floor: int


@dataclass(frozen=True)
class MeasureTokens:
    """The work of the unit that measures the tokenizer, if one is configured."""

    documents: tuple[Path, ...]
    tokenizer: Source


@dataclass(frozen=True)
class Chunk:
    """Characters `start` to `end` of a document, and the headings that it stands under, outermost first."""

    start: int
    end: int
    headings: tuple[str, ...]


@dataclass(frozen=True)
class Piece:
    """What is not cut: a heading with what follows it, a block, or part of one that is too long."""

    start: int
    end: int
    headings: tuple[str, ...]
    begins_section: bool


def build(run: StageRun) -> StageResult:
    config, shards = run.config.chunk, run.artifact("filter").shards
    ratio = config.characters_per_token
    source = find_source(run.config.pack.tokenizer)
    if source is not None:
        (measured,) = run.map("tokenizer", measure_tokens, [MeasureTokens(tuple(shards), source)])
        ratio = measured.counts["characters"] / max(1, measured.counts["tokens"]) or ratio
    characters = run.config.pack.seq_length * ratio
    target, floor = (
        max(1, round(sequences * characters))
        for sequences in (config.sequences_per_chunk, config.min_sequences_per_chunk)
    )
    tasks = [ChunkShard(index, shard, target, floor) for index, shard in enumerate(shards)]
    records = run.map("documents", chunk_shard, tasks)
    stats = dict(merge_counts(records)) | {"characters_per_token_estimated": round(ratio, 3)}
    return StageResult([file for record in records for file in record.files], stats)


def measure_tokens(task: MeasureTokens, folder: Path) -> UnitResult:
    """Count characters and tokens of documents spread evenly over the corpus."""
    texts = pa.concat_tables(read_table(path, ["text"]) for path in task.documents)["text"]
    places = pa.array(range(0, len(texts), max(1, len(texts) // SAMPLE_DOCUMENTS)), pa.int64())
    sample = texts.take(places).to_pylist()
    tokens = sum(ids.size for ids in load(task.tokenizer, "").encode(sample))
    return {}, Counter(characters=sum(map(len, sample)), tokens=tokens)


def chunk_shard(shard: ChunkShard, folder: Path) -> UnitResult:
    """Cut the documents of one shard."""
    documents = read_table(shard.documents, ["id", "source", "text"])
    columns: dict[str, list[Any]] = {name: [] for name in CHUNKS.names}
    characters = 0
    for document, source, text in zip(*(column.to_pylist() for column in documents.columns), strict=True):
        chunks = split_chunks(text, shard.target, shard.floor)
        characters += len(text)
        columns["document_id"] += [document] * len(chunks)
        columns["source"] += [source] * len(chunks)
        columns["start"] += [chunk.start for chunk in chunks]
        columns["last"] += [chunk.end == len(text) for chunk in chunks]
        columns["heading"] += [" > ".join(chunk.headings) for chunk in chunks]
        columns["text"] += [text[chunk.start : chunk.end] for chunk in chunks]
    name = f"part-{shard.index:05d}.parquet"
    rows = write_table(folder / name, pa.table(columns, schema=CHUNKS))
    documents_in = documents.num_rows
    counts = Counter(documents_in=documents_in, documents_kept=documents_in, chunks=rows, characters=characters)
    return {name: rows}, counts


def split_chunks(text: str, target: int, floor: int = 0) -> list[Chunk]:
    """Return chunks of at most about `target` characters, in order and without gaps.

    One shorter than `floor` joins the chunk before it, which may exceed the target by that much.
    """
    chunks: list[Chunk] = []
    for piece in _pieces(text, target):
        last = chunks[-1] if chunks else None
        if last is None or not _joins(last, piece, target):
            chunks.append(Chunk(piece.start, piece.end, piece.headings))
        else:
            chunks[-1] = Chunk(last.start, piece.end, last.headings)
    return _without_short_ones(chunks, floor)


def settings(config: RunConfig) -> dict[str, Any]:
    """Return what decides the output: of a tokenizer its content does, and then the configured estimate does not."""
    section: dict[str, Any] = config.chunk.model_dump() | {"seq_length": config.pack.seq_length}
    source = find_source(config.pack.tokenizer)
    if source is not None:
        section["characters_per_token"] = checksum(source.file)
    return section


def _joins(last: Chunk, piece: Piece, target: int) -> bool:
    if piece.end - last.start > target:
        return False
    return not piece.begins_section or last.end - last.start < FULL_ENOUGH * target


def _without_short_ones(chunks: list[Chunk], floor: int) -> list[Chunk]:
    joined: list[Chunk] = []
    for chunk in chunks:
        if joined and chunk.end - chunk.start < floor:
            joined[-1] = Chunk(joined[-1].start, chunk.end, joined[-1].headings)
        else:
            joined.append(chunk)
    return joined


def _pieces(text: str, target: int) -> Iterator[Piece]:
    """Yield the pieces of a text in order. A heading without anything after it is a piece by itself."""
    codes = code_points(text)
    path: list[tuple[int, str]] = []
    headings: tuple[str, ...] = ()
    section_start: int | None = None
    for start, end, kind, level in scan_blocks(codes).tolist():
        if kind == HEADING:
            path = [entry for entry in path if entry[0] < level] + [(level, _title(text[start:end]))]
            headings = tuple(title for _, title in path)
            section_start = start if section_start is None else section_start
            continue
        begin = start if section_start is None else section_start
        ends = [end] if end - start <= target else _cuts(codes, (start, end), kind, target)
        for cut in ends:
            yield Piece(begin, cut, headings, section_start is not None)
            begin, section_start = cut, None
    if section_start is not None:
        yield Piece(section_start, len(text), headings, True)


def _cuts(codes: CodePoints, span: tuple[int, int], kind: int, target: int) -> list[int]:
    """Return where to cut a block so that no part exceeds `target`: code and tables after a line, other text after a
    sentence that does not end inside a formula or code; anywhere if there is no such place.
    """
    start, end = span
    verbatim = np.zeros(end - start, np.bool_) if kind in (CODE, TABLE) else scan(codes[start:end]).verbatim
    cuts: list[int] = []
    begin = 0
    while end - start - begin > target:
        begin = _last_boundary(codes[start:end], verbatim, begin, begin + target, kind in (CODE, TABLE))
        cuts.append(start + begin)
    return [*cuts, end]


@compiled
def _last_boundary(codes: CodePoints, verbatim: Mask, begin: int, limit: int, by_lines: bool) -> int:
    """Return the last place in (begin, limit] after a line or sentence, `limit` if there is none."""
    for place in range(limit, begin, -1):
        if verbatim[place - 1] and verbatim[place]:
            continue
        if codes[place - 1] == LF:
            return place
        if not by_lines and _after_sentence(codes, begin, place):
            return place
    return limit


@compiled
def _after_sentence(codes: CodePoints, begin: int, place: int) -> bool:
    """Tell whether a sentence ends before `place`: 。！？；… ! ? ; or . before a blank, and what closes after them."""
    if _closes(codes[place]):
        return False
    last = place - 1
    while last > begin and _closes(codes[last]):
        last -= 1
    if codes[last] == 0x2E:
        return is_blank(codes[place]) or codes[place] == LF
    return codes[last] in (0x3002, 0xFF01, 0xFF1F, 0xFF1B, 0x2026, 0x21, 0x3F, 0x3B)


@compiled
def _closes(code: int) -> bool:
    """Tell whether a code point is one of ” ’ 」 』 ） ) " '."""
    return code in (0x201D, 0x2019, 0x300D, 0x300F, 0xFF09, 0x29, 0x22, 0x27)


def _title(heading: str) -> str:
    """Return the words of a heading without its marks."""
    lines = [line.strip() for line in heading.strip().split("\n")]
    words = next((line for line in lines if ADORNMENT.fullmatch(line) is None), "")
    return HEADING_MARKS.sub("", words).strip()


STAGE = Stage(
    name="chunk",
    version=2,
    libraries=("pyarrow", "tokenizers", "tiktoken", "sentencepiece"),
    settings=settings,
    build=build,
)
