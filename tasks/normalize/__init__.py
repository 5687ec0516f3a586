"""Raw files to documents: decoded, in one script, one width and one kind of newline.

Raw files are grouped in order into shards of about `shard_bytes`. A record that cannot be read is listed among the
removed, with its file, line and reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from configs.errors import PipelineError
from configs.schema import NormalizeConfig, RunConfig
from tasks.artifact import merge_counts
from tasks.documents import DOCUMENTS, write_documents
from tasks.files import checksum
from tasks.normalize.text import normalize_text
from tasks.raw import RawFile
from tasks.readers import BadRecord, Record, read_records
from tasks.stage import Stage, StageResult, StageRun, UnitResult

LISTED_BAD_RECORDS = 5


@dataclass(frozen=True)
class NormalizeShard:
    """The work of one unit."""

    index: int
    files: tuple[RawFile, ...]
    config: NormalizeConfig


def build(run: StageRun) -> StageResult:
    config = run.config.normalize
    groups = group_files(run.corpus.files, config.shard_bytes)
    records = run.map("files", normalize_shard, [NormalizeShard(i, g, config) for i, g in enumerate(groups)])
    counts = merge_counts(records)
    bad = counts["documents_in"] - counts["documents_kept"]
    if bad > config.bad_records_limit:
        raise _too_many(bad, config)
    return StageResult([file for record in records for file in record.files], dict(counts))


def group_files(files: tuple[RawFile, ...], shard_bytes: int) -> list[tuple[RawFile, ...]]:
    """Return consecutive files in groups of at least `shard_bytes`; only the last group may be smaller."""
    groups: list[tuple[RawFile, ...]] = []
    group: list[RawFile] = []
    for file in files:
        group.append(file)
        if sum(member.bytes for member in group) >= shard_bytes:
            groups.append(tuple(group))
            group = []
    return [*groups, tuple(group)] if group else groups


def normalize_shard(shard: NormalizeShard, folder: Path) -> UnitResult:
    """Read, normalize and write one shard."""
    kept, removed = [], []
    for file, record in chain.from_iterable(_records(file) for file in shard.files):
        document_id = f"{file.source}/{file.name}" + (f"#{record.place}" if record.place else "")
        if isinstance(record, BadRecord):
            removed.append(_removed_row(document_id, file, record))
            if len(removed) > shard.config.bad_records_limit:
                raise _too_many(len(removed), shard.config, removed)
            continue
        text = normalize_text(record.text, shard.config)
        kept.append({"id": document_id, "source": file.source, "text": text, "meta": _as_json(record.meta)})
    documents = pa.Table.from_pylist(kept, schema=DOCUMENTS)
    return write_documents(folder, shard.index, len(kept) + len(removed), documents, removed)


def settings(config: RunConfig) -> dict[str, Any]:
    """Return what decides the output: the limit does not, and of the word list its content does, not its name."""
    section = config.normalize.model_dump(exclude={"bad_records_limit", "protected_words"})
    words = config.normalize.protected_words
    if words is not None and not Path(words).is_file():
        raise PipelineError(f"normalize.protected_words: {words}: no such file; give a text file with one word a line")
    return section | {"protected_words": checksum(Path(words)) if words else None}


def _records(file: RawFile) -> Iterator[tuple[RawFile, Record | BadRecord]]:
    return ((file, record) for record in read_records(file))


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
    version=2,
    libraries=("opencc", "ftfy", "pyarrow"),
    settings=settings,
    build=build,
)
