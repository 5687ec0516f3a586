"""Reads raw files record by record; what cannot be read comes out as a `BadRecord`, and reading goes on.

A format is a suffix in one of the tables below and a function that reads it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from tasks.encoding import UnknownEncodingError
from tasks.readers.archives import ReadMember, read_tar, read_warc, read_zip
from tasks.readers.html import is_page, main_text, read_html
from tasks.readers.lines import read_json_lines
from tasks.readers.notebook import read_notebook
from tasks.readers.office import read_docx, read_pdf
from tasks.readers.records import BadRecord, Content, Record, TooLargeError, text_record
from tasks.readers.tables import read_arrow, read_csv, read_parquet

WHOLE: dict[str, Callable[[Content], Record | BadRecord]] = {
    ".txt": text_record,
    ".md": text_record,
    ".rst": text_record,
    ".html": read_html,
    ".htm": read_html,
    ".ipynb": read_notebook,
    ".docx": read_docx,
    ".pdf": read_pdf,
}
"""Formats of which a file is one document."""

MANY: dict[str, Callable[[Content], Iterator[Record | BadRecord]]] = {
    **dict.fromkeys((".jsonl", ".jsonl.gz", ".jsonl.bz2", ".jsonl.xz", ".jsonl.zst"), read_json_lines),
    ".parquet": read_parquet,
    **dict.fromkeys((".arrow", ".feather", ".ipc"), read_arrow),
    **dict.fromkeys((".csv", ".tsv"), read_csv),
}
"""Formats of which a file is many documents."""

ARCHIVES: dict[str, Callable[[Content, ReadMember], Iterator[Record | BadRecord]]] = {
    ".zip": read_zip,
    **dict.fromkeys((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"), read_tar),
    **dict.fromkeys((".warc", ".warc.gz"), read_warc),
}
"""Formats of which a file holds other files."""

Reader = TypeVar("Reader")

FORMATS = (*WHOLE, *MANY, *ARCHIVES)


def read_records(content: Content) -> Iterator[Record | BadRecord]:
    """Yield what a raw file holds, in order. A text that is an HTML page comes as its main text, whatever held it."""
    archive = _reader(content.name, ARCHIVES)
    records = archive(content, _read_member) if archive else _read_member(content)
    return map(_extracted, records)


def _read_member(content: Content) -> Iterator[Record | BadRecord]:
    """Yield what a file that is no archive holds; nothing for a format that is not known."""
    if many := _reader(content.name, MANY):
        yield from many(content)
    elif whole := _reader(content.name, WHOLE):
        try:
            yield whole(content)
        except UnknownEncodingError as error:
            yield BadRecord("", "unknown_encoding", str(error))
        except TooLargeError as error:
            yield BadRecord("", "too_large", str(error))


def _reader(name: str, readers: dict[str, Reader]) -> Reader | None:
    suffix = max((suffix for suffix in readers if name.lower().endswith(suffix)), key=len, default=None)
    return readers[suffix] if suffix else None


def _extracted(record: Record | BadRecord) -> Record | BadRecord:
    if isinstance(record, BadRecord) or not is_page(record.text):
        return record
    text = main_text(record.text)
    if text is None:
        return BadRecord(record.place, "no_main_text", "the page has no main text: only navigation, scripts or forms")
    return replace(record, text=text)
