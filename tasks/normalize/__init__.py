"""Raw files to documents: decoded, in one script, one width and one kind of newline.

Raw files are grouped in order into shards of about `shard_bytes`; large files of JSON lines are cut. A record that cannot
be read is listed among the removed, with its file, line and reason. `raw.parquet` lists the raw files by content.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from configs.errors import PipelineError
from configs.schema import NormalizeConfig, RunConfig
from tasks.artifact import merge_counts
from tasks.documents import DOCUMENTS, removed_table, write_documents, write_table
from tasks.files import checksum
from tasks.normalize.text import normalize_text
from tasks.raw import RAW_FILES, REMOTE, RawFile, raw_table
from tasks.readers import read_records
from tasks.readers.lines import count_newlines
from tasks.readers.records import BadRecord, Content, Limits, Record
from tasks.stage import Stage, StageResult, StageRun, UnitResult

LISTED_BAD_RECORDS = 5


# Plain JSON lines alone can be read from the middle; smaller pieces would cost more than they spread.
CAN_BE_CUT, SMALLEST_CUT = ".jsonl", 4096


@dataclass(frozen=True)
class RawPart:
    """A raw file, or the lines of it that begin in a range of bytes; the first of them is line `first_line`."""

    file: RawFile
    begin: int
    end: int
    first_line: int = 1

    def content(self, config: NormalizeConfig) -> Content:
        whole = self.begin == 0 and self.end == self.file.bytes
        return Content(
            name=self.file.path,
            open=self.file.open,
            text_field=self.file.text_field,
            id_field=self.file.id_field,
            limits=Limits(config.max_document_bytes, config.max_unpacked_bytes),
            begin=self.begin,
            end=None if whole else self.end,
            first_line=self.first_line,
        )


@dataclass(frozen=True)
class NormalizeShard:
    """The work of one unit."""

    index: int
    parts: tuple[RawPart, ...]
    config: NormalizeConfig


def build(run: StageRun) -> StageResult:
    config = run.config.normalize
    groups = group_parts(_with_first_lines(run, cut_files(run.corpus.files, config.shard_bytes)), config.shard_bytes)
    records = run.map("files", normalize_shard, [NormalizeShard(i, g, config) for i, g in enumerate(groups)])
    counts = merge_counts(records)
    bad = counts["documents_in"] - counts["documents_kept"]
    if bad > config.bad_records_limit:
        raise _too_many(bad, config)
    write_table(run.draft.folder / RAW_FILES, raw_table(run.corpus))
    files = [file for record in records for file in record.files]
    return StageResult([*files, *run.draft.describe(RAW_FILES)], dict(counts))


def cut_files(files: tuple[RawFile, ...], part_bytes: int) -> list[RawPart]:
    """Return every file, those that can be cut in ranges of `part_bytes`, so that one large file uses all workers."""
    parts = []
    for file in files:
        step = max(part_bytes, SMALLEST_CUT) if file.name.lower().endswith(CAN_BE_CUT) else max(1, file.bytes)
        begins = range(0, max(1, file.bytes), step)
        parts += [RawPart(file, begin, min(begin + step, file.bytes)) for begin in begins]
    return parts


def group_parts(parts: list[RawPart], shard_bytes: int) -> list[tuple[RawPart, ...]]:
    """Return consecutive parts in groups of at least `shard_bytes`; only the last group may be smaller."""
    groups: list[tuple[RawPart, ...]] = []
    group: list[RawPart] = []
    size = 0
    for part in parts:
        group.append(part)
        size += part.end - part.begin
        if size >= shard_bytes:
            groups.append(tuple(group))
            group, size = [], 0
    return [*groups, tuple(group)] if group else groups


def count_lines(task: NormalizeShard, _: Path) -> UnitResult:
    """Count the newlines before the one part's end, from which the parts after it know their first line."""
    (part,) = task.parts
    return {}, Counter(newlines=count_newlines(part.content(task.config)))


def normalize_shard(shard: NormalizeShard, folder: Path) -> UnitResult:
    """Read, normalize and write one shard."""
    kept: dict[str, list[str]] = {name: [] for name in DOCUMENTS.names}
    removed: list[dict[str, Any]] = []
    for file, record in chain.from_iterable(_records(part, shard.config) for part in shard.parts):
        document_id = f"{file.source}/{file.name}" + (f"#{record.place}" if record.place else "")
        if isinstance(record, BadRecord):
            removed.append(_removed_row(document_id, file, record))
            if len(removed) > shard.config.bad_records_limit:
                raise _too_many(len(removed), shard.config, removed)
            continue
        row = (document_id, file.source, normalize_text(record.text, shard.config), _as_json(record.meta))
        for column, value in zip(kept.values(), row, strict=True):
            column.append(value)
    documents = pa.table(kept, schema=DOCUMENTS)
    return write_documents(folder, shard.index, documents.num_rows + len(removed), documents, removed_table(removed))


def settings(config: RunConfig) -> dict[str, Any]:
    """Return what decides the output: the limit does not, and of the word list its content does, not its name."""
    section = config.normalize.model_dump(exclude={"bad_records_limit", "protected_words"})
    words = config.normalize.protected_words
    if words is not None and not Path(words).is_file():
        raise PipelineError(f"normalize.protected_words: {words}: no such file; give a text file with one word a line")
    return section | {"protected_words": checksum(Path(words)) if words else None}


def _with_first_lines(run: StageRun, parts: list[RawPart]) -> list[RawPart]:
    """Return the parts with the number of their first line, for which those before them are counted."""
    cut = [part for part in parts if part.end < part.file.bytes]
    units = [NormalizeShard(index, (part,), run.config.normalize) for index, part in enumerate(cut)]
    newlines = [record.counts["newlines"] for record in run.map("lines", count_lines, units)] if cut else []
    before = {(part.file.path, part.end): count for part, count in zip(cut, newlines, strict=True)}
    numbered, total = [], 0
    for part in parts:
        total = total + before[part.file.path, part.begin] if part.begin else 0
        numbered.append(replace(part, first_line=total + 2 if part.begin else 1))
    return numbered


def _records(part: RawPart, config: NormalizeConfig) -> Iterator[tuple[RawFile, Record | BadRecord]]:
    """Yield the records of a part.

    Raises:
        PipelineError: the file is not what was listed any more.
    """
    _check_unchanged(part.file)
    yield from ((part.file, record) for record in read_records(part.content(config)))
    _check_unchanged(part.file)


def _check_unchanged(file: RawFile) -> None:
    if REMOTE in file.path:
        return
    status = Path(file.path).stat()
    version = status.st_size, status.st_mtime_ns
    if version != (file.bytes, file.modified) and _checksum(file.path, *version) != file.checksum:
        raise PipelineError(
            f"normalize: {file.path}: changed while it was read: {file.bytes} bytes when it was listed, now "
            f"{status.st_size}{', but others' if status.st_size == file.bytes else ''}; run the same command again when "
            "nothing writes to it"
        )


@lru_cache(maxsize=256)
def _checksum(path: str, size: int, modified: int) -> str:
    """Return a file's checksum; each version of it is read once, not for each of its parts."""
    return checksum(Path(path))


def _removed_row(document_id: str, file: RawFile, bad: BadRecord) -> dict[str, Any]:
    return {
        "id": document_id,
        "source": file.source,
        "text": "",
        "scope": "document",
        "rule": bad.rule,
        "detail": f"{file.path}{':' if bad.place else ''}{bad.place}: {bad.detail}",
    }


def _as_json(meta: dict[str, Any]) -> str:
    return orjson.dumps(meta, option=orjson.OPT_SORT_KEYS, default=str).decode()


def _too_many(count: int, config: NormalizeConfig, rows: list[dict[str, Any]] | None = None) -> PipelineError:
    listed = "".join(f"\n  {row['detail']}" for row in (rows or [])[:LISTED_BAD_RECORDS])
    return PipelineError(
        f"normalize: {count} files or lines cannot be read, more than normalize.bad_records_limit "
        f"{config.bad_records_limit} allows; mend them or raise the limit{':' if listed else ''}{listed}"
    )


STAGE = Stage(
    name="normalize",
    version=4,
    libraries=("opencc", "ftfy", "pyarrow", "trafilatura", "pypdfium2", "python-docx"),
    settings=settings,
    build=build,
)
