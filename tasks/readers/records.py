"""What readers take and give: content with a name, and records that were read or could not be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from tasks.encoding import decode


@dataclass(frozen=True)
class Limits:
    """What a reader refuses, in bytes, so that one file cannot exhaust the memory."""

    document_bytes: int
    unpacked_bytes: int
    """Of one archive or compressed file."""


@dataclass(frozen=True)
class Content:
    """Something to read: its name says the format; `open` gives its bytes from the beginning, each time it is called."""

    name: str
    open: Callable[[], BinaryIO]
    text_field: str
    id_field: str
    limits: Limits
    begin: int = 0
    """With `end`: only the lines that begin in this range of bytes; the first of them is line `first_line`."""
    end: int | None = None
    first_line: int = 1


@dataclass(frozen=True)
class Record:
    """A document as it came: `place` is where in its file it stood ("" for the whole file, else line, row or member)."""

    place: str
    text: str
    meta: dict[str, Any]


@dataclass(frozen=True)
class BadRecord:
    """A record, or the rest of a file, that cannot be read."""

    place: str
    rule: str
    detail: str


class TooLargeError(Exception):
    """More bytes than the limits allow."""


def read_all(content: Content) -> bytes:
    """Return the bytes of one document.

    Raises:
        TooLargeError: it has more than a document may have.
    """
    limit = content.limits.document_bytes
    with content.open() as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise TooLargeError(f"more than {limit / 2**20:g} MiB, which is what one document may have")
    return data


def text_record(content: Content) -> Record:
    """Return the whole content as one text.

    Raises:
        UnknownEncodingError, TooLargeError
    """
    decoded = decode(read_all(content))
    return Record("", decoded.text, dict(decoded.meta))


def record_of(place: str, fields: dict[str, Any], content: Content, meta: Mapping[str, Any]) -> Record | BadRecord:
    """Return the record in the fields of a line or row; what is beside its text becomes its meta."""
    text = fields.pop(content.text_field, None)
    if not isinstance(text, str):
        found = "no such field" if text is None else f"a {type(text).__name__}"
        return BadRecord(place, "no_text_field", f"expected text in field {content.text_field!r}, found {found}")
    if content.id_field in fields:
        fields["id"] = fields.pop(content.id_field)
    return Record(place, text, fields | dict(meta))
