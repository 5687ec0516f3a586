"""Reads raw files record by record; what cannot be read comes out as a `BadRecord`, and reading goes on.

JSON lines end at "\\n" alone: U+2028, U+2029 and U+0085 are legal inside a JSON string.
"""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tasks.encoding import UnknownEncodingError, decode
from tasks.raw import RawFile

BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class Record:
    """A document as it came: `place` is where in its file it stood ("" for the whole file, else line or row from 1)."""

    place: str
    text: str
    meta: dict[str, Any]


@dataclass(frozen=True)
class BadRecord:
    """A record, or the rest of a file, that cannot be read."""

    place: str
    rule: str
    detail: str


def read_records(file: RawFile) -> Iterator[Record | BadRecord]:
    """Yield what a raw file holds, in order."""
    name = file.path.lower()
    if name.endswith((".txt", ".md")):
        yield _read_text(file)
    elif name.endswith(".parquet"):
        yield from _read_parquet(file)
    else:
        yield from _read_json_lines(file)


def _read_text(file: RawFile) -> Record | BadRecord:
    try:
        decoded = decode(Path(file.path).read_bytes())
    except UnknownEncodingError as error:
        return BadRecord("", "unknown_encoding", str(error))
    return Record("", decoded.text, {"encoding": decoded.encoding})


def _read_json_lines(file: RawFile) -> Iterator[Record | BadRecord]:
    number = 0
    try:
        for number, line in enumerate(_lines(_blocks(Path(file.path))), start=1):
            if line.strip():
                yield _parse_line(str(number), line, file)
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        yield BadRecord(str(number + 1), "damaged_archive", f"cannot be unpacked after line {number}: {error}")


def _parse_line(place: str, line: bytes, file: RawFile) -> Record | BadRecord:
    try:
        decoded = decode(line)
        fields = orjson.loads(decoded.text)
    except UnknownEncodingError as error:
        return BadRecord(place, "unknown_encoding", str(error))
    except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
        return BadRecord(place, "broken_json_line", str(error))
    if not isinstance(fields, dict):
        return BadRecord(place, "broken_json_line", f"expected an object with a field {file.text_field!r}")
    return _record_of(place, fields, file, {"encoding": decoded.encoding})


def _read_parquet(file: RawFile) -> Iterator[Record | BadRecord]:
    row = 0
    try:
        with pq.ParquetFile(file.path) as table:
            if file.text_field not in table.schema_arrow.names:
                found = ", ".join(table.schema_arrow.names)
                yield BadRecord("1", "no_text_field", f"no column {file.text_field!r}; its columns: {found}")
                return
            for batch in table.iter_batches(batch_size=1024):
                for fields in batch.to_pylist():
                    row += 1
                    yield _record_of(str(row), fields, file, {})
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        yield BadRecord(str(row + 1), "damaged_parquet", f"cannot be read after row {row}: {error}")


def _record_of(place: str, fields: dict[str, Any], file: RawFile, meta: dict[str, Any]) -> Record | BadRecord:
    text = fields.pop(file.text_field, None)
    if not isinstance(text, str):
        found = "no such field" if text is None else f"a {type(text).__name__}"
        return BadRecord(place, "no_text_field", f"expected text in field {file.text_field!r}, found {found}")
    if file.id_field in fields:
        fields["id"] = fields.pop(file.id_field)
    return Record(place, text, fields | meta)


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield the file's bytes, unpacked."""
    if path.name.lower().endswith(".zst"):
        yield from _zstd_blocks(path)
        return
    with gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb") as stream:
        while block := stream.read1(BLOCK_BYTES):  # read() would lose what precedes a cut
            yield block


def _zstd_blocks(path: Path) -> Iterator[bytes]:
    """Unpack all frames. zstandard's own stream reader takes a cut file for a whole one."""
    frame = None
    with path.open("rb") as stream:
        while packed := stream.read(BLOCK_BYTES):
            while packed:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                yield frame.decompress(packed)
                packed = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the file ends inside a zstd frame")


def _lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    for block in blocks:
        first, *others = block.split(b"\n")
        rest.append(first)
        for part in others:
            yield b"".join(rest)
            rest = [part]
    if any(rest):
        yield b"".join(rest)
