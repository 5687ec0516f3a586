"""Documents to chunks of about two sequences, cut where the author cut: before headings, between paragraphs, and only
then after sentences. Code fences and tables stay whole. Chunks of a document join to its text again, character by
character.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.schema import RunConfig
from tasks.artifact import merge_counts
from tasks.blocks import Block, split_blocks
from tasks.documents import CHUNKS, read_table, table_of, write_table
from tasks.stage import Stage, StageResult, StageRun, UnitResult

SENTENCE_END = re.compile(r"[。！？；!?;][”’」』）)\"']*|\.(?=\s)|\n")
HEADING_MARK = re.compile(r"^\s*#{1,6}\s+|\s+#*\s*$")
# A chunk may end before a heading once it is this full; a shorter section is joined by the next one.
FULL_ENOUGH = 0.5


@dataclass(frozen=True)
class ChunkShard:
    """The work of one unit. `target` is the length of a chunk in characters."""

    index: int
    documents: Path
    target: int


@dataclass(frozen=True)
class Chunk:
    """Characters `start` to `end` of a document, and the headings that it stands under, outermost first."""

    start: int
    end: int
    headings: tuple[str, ...]


@dataclass(frozen=True)
class Piece:
    """What is never cut: a heading with what follows it, a code fence, a table, a paragraph or part of a long one."""

    start: int
    end: int
    headings: tuple[str, ...]
    begins_section: bool


def target_characters(config: RunConfig) -> int:
    """Return the length aimed at, in characters."""
    tokens = config.chunk.sequences_per_chunk * config.pack.seq_length
    return max(1, round(tokens * config.chunk.characters_per_token))


def build(run: StageRun) -> StageResult:
    shards = run.artifact("filter").shards
    target = target_characters(run.config)
    records = run.map("documents", chunk_shard, [ChunkShard(index, path, target) for index, path in enumerate(shards)])
    return StageResult([file for record in records for file in record.files], dict(merge_counts(records)))


def chunk_shard(shard: ChunkShard, folder: Path) -> UnitResult:
    """Cut the documents of one shard."""
    documents = read_table(shard.documents, ["id", "source", "text"]).to_pylist()
    rows = [row for document in documents for row in _rows(document, shard.target)]
    name = f"part-{shard.index:05d}.parquet"
    counts = Counter(
        documents_in=len(documents),
        documents_kept=len(documents),
        chunks=len(rows),
        characters=sum(len(row["text"]) for row in rows),
    )
    return {name: write_table(folder / name, table_of(rows, CHUNKS))}, counts


def split_chunks(text: str, target: int) -> list[Chunk]:
    """Return chunks of at most about `target` characters, in order and without gaps."""
    chunks: list[Chunk] = []
    for piece in _pieces(text, target):
        last = chunks[-1] if chunks else None
        if last is None or piece.end - last.start > target:
            joins = False
        else:
            joins = not piece.begins_section or last.end - last.start < FULL_ENOUGH * target
        if last is not None and joins:
            chunks[-1] = Chunk(last.start, piece.end, last.headings)
        else:
            chunks.append(Chunk(piece.start, piece.end, piece.headings))
    return chunks


def _rows(document: dict[str, Any], target: int) -> Iterator[dict[str, Any]]:
    text = document["text"]
    for chunk in split_chunks(text, target):
        yield {
            "document_id": document["id"],
            "source": document["source"],
            "start": chunk.start,
            "last": chunk.end == len(text),
            "heading": " > ".join(chunk.headings),
            "text": text[chunk.start : chunk.end],
        }


def _pieces(text: str, target: int) -> Iterator[Piece]:
    """Yield the pieces of a text in order. A heading without anything after it is a piece by itself."""
    path: list[tuple[int, str]] = []
    section_start: int | None = None
    for block in split_blocks(text):
        if block.kind == "heading":
            path = [entry for entry in path if entry[0] < block.level] + [(block.level, _title(text, block))]
            section_start = block.start if section_start is None else section_start
            continue
        headings = tuple(title for _, title in path)
        start = block.start if section_start is None else section_start
        ends = _sentence_ends(text, block, target) if block.kind == "paragraph" else [block.end]
        for end in ends:
            yield Piece(start, end, headings, section_start is not None)
            start, section_start = end, None
    if section_start is not None:
        yield Piece(section_start, len(text), tuple(title for _, title in path), True)


def _sentence_ends(text: str, block: Block, target: int) -> list[int]:
    """Return where to cut a paragraph so that no part exceeds `target`: after a sentence, or anywhere if there is none."""
    ends: list[int] = []
    start = block.start
    while block.end - start > target:
        sentences = [match.end() for match in SENTENCE_END.finditer(text, start, start + target)]
        start = sentences[-1] if sentences else start + target
        ends.append(start)
    return [*ends, block.end]


def _title(text: str, block: Block) -> str:
    return HEADING_MARK.sub("", text[block.start : block.end].strip())


STAGE = Stage(
    name="chunk",
    version=1,
    libraries=("pyarrow",),
    settings=lambda config: config.chunk.model_dump() | {"seq_length": config.pack.seq_length},
    build=build,
)
