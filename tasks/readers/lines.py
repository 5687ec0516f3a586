"""JSON lines, plain or compressed. They end at "\\n" alone: U+2028, U+2029 and U+0085 are legal inside a JSON string."""

import json
from collections.abc import Iterator
from typing import BinaryIO

import orjson

from tasks.encoding import UnknownEncodingError, decode
from tasks.readers.packed import BLOCK_BYTES, DAMAGE, unpacked_blocks
from tasks.readers.records import BadRecord, Content, Record, TooLargeError, record_of

Line = tuple[int, bytes | None]
"""A line's number and bytes, None when it is longer than a document may be."""


def read_json_lines(content: Content) -> Iterator[Record | BadRecord]:
    """Yield the record of each line of the content's range."""
    number = content.first_line - 1
    try:
        with content.open() as stream:
            for number, line in _lines(content, stream):
                if line is None:
                    limit = content.limits.document_bytes / 2**20
                    yield BadRecord(str(number), "too_large", f"a line of more than {limit:g} MiB")
                elif line.strip():
                    yield _parse(str(number), line, content)
    except TooLargeError as error:
        yield BadRecord(str(number + 1), "archive_bomb", str(error))
    except DAMAGE as error:
        yield BadRecord(str(number + 1), "damaged_archive", f"cannot be unpacked after line {number}: {error}")


def count_newlines(content: Content) -> int:
    """Return how many newlines lie before the range's end and not before the byte that precedes its beginning."""
    count, left = 0, (content.end or 0) - max(0, content.begin - 1) - 1
    with content.open() as stream:
        stream.seek(max(0, content.begin - 1))
        while left > 0 and (block := stream.read(min(left, BLOCK_BYTES))):
            count += block.count(b"\n")
            left -= len(block)
    return count


def _parse(place: str, line: bytes, content: Content) -> Record | BadRecord:
    try:
        fields = orjson.loads(line)
        meta: dict[str, str | float] = {"encoding": "utf-8", "encoding_confidence": 1.0}
    except orjson.JSONDecodeError:
        try:
            decoded = decode(line)
            fields, meta = orjson.loads(_without_lone_surrogates(decoded.text)), decoded.meta
        except UnknownEncodingError as error:
            return BadRecord(place, "unknown_encoding", str(error))
        except (json.JSONDecodeError, RecursionError) as error:
            return BadRecord(place, "broken_json_line", str(error))
    if not isinstance(fields, dict):
        return BadRecord(place, "broken_json_line", f"expected an object with a field {content.text_field!r}")
    return record_of(place, fields, content, meta)


def _without_lone_surrogates(line: str) -> str:
    r"""Return a line of JSON with U+FFFD for half a surrogate pair, such as \ud83d where a text was cut inside an emoji."""
    whole = json.dumps(json.loads(line), ensure_ascii=False)
    return whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _lines(content: Content, stream: BinaryIO) -> Iterator[Line]:
    """Yield the lines that begin in the content's range. A range is cut only out of plain files."""
    if content.begin:
        stream.seek(content.begin - 1)
    blocks = unpacked_blocks(content.name, stream, content.limits.unpacked_bytes)
    position = content.begin - 1 if content.begin else 0
    skipping = content.begin > 0  # the line that holds the byte before the range belongs to the one before
    number = content.first_line
    for line, length in _split(blocks, content.limits.document_bytes):
        if content.end is not None and position >= content.end:
            return
        position += length
        if skipping:
            skipping = False
            continue
        yield number, line
        number += 1


def _split(blocks: Iterator[bytes], limit: int) -> Iterator[tuple[bytes | None, int]]:
    """Yield lines without their newline (None for one over the limit), and how many bytes each took with it."""
    parts: list[bytes] = []
    length = 0
    for block in blocks:
        first, *others = block.split(b"\n")
        for part in others:
            length += len(first) + 1
            yield (b"".join([*parts, first]) if length - 1 <= limit else None), length
            parts, length, first = [], 0, part
        length += len(first)
        if length <= limit:
            parts.append(first)
        else:
            parts = []
    if length:
        yield (b"".join(parts) if length <= limit else None), length
