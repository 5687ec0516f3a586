"""Tables with a column of texts: Parquet, Arrow (IPC file and stream), CSV and TSV."""

import csv
import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.encoding import UnknownEncodingError, decode
from tasks.readers.records import BadRecord, Content, Record, TooLargeError, read_all, record_of

BATCH_ROWS = 1024
DAMAGE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, OSError)


def read_parquet(content: Content) -> Iterator[Record | BadRecord]:
    row = 0
    try:
        with content.open() as stream, pq.ParquetFile(stream) as table:
            if missing := _missing_column(content, table.schema_arrow.names):
                yield missing
                return
            for batch in table.iter_batches(batch_size=BATCH_ROWS):
                for record in _rows(content, batch, row):
                    row += 1
                    yield record
    except DAMAGE as error:
        yield BadRecord(str(row + 1), "damaged_parquet", f"cannot be read after row {row}: {error}")


def read_arrow(content: Content) -> Iterator[Record | BadRecord]:
    row = 0
    try:
        with content.open() as stream:
            for batch in _arrow_batches(stream.read()):
                if missing := _missing_column(content, batch.schema.names):
                    yield missing
                    return
                for record in _rows(content, batch, row):
                    row += 1
                    yield record
    except DAMAGE as error:
        yield BadRecord(str(row + 1), "damaged_arrow", f"cannot be read after row {row}: {error}")


def read_csv(content: Content) -> Iterator[Record | BadRecord]:
    """Comma or tab by the name; the first line has the columns' names. Quoted fields may hold newlines."""
    try:
        decoded = decode(read_all(content))
    except UnknownEncodingError as error:
        yield BadRecord("1", "unknown_encoding", str(error))
        return
    except TooLargeError as error:
        yield BadRecord("1", "too_large", f"{error}; write it as JSON lines or Parquet")
        return
    csv.field_size_limit(content.limits.document_bytes)
    delimiter = "\t" if ".tsv" in content.name.lower() else ","
    rows = csv.DictReader(io.StringIO(decoded.text, newline=""), delimiter=delimiter, strict=True)
    number = 1
    try:
        if missing := _missing_column(content, list(rows.fieldnames or ())):
            yield missing
            return
        for number, fields in enumerate(rows, start=1):
            yield record_of(str(number), {str(name): value for name, value in fields.items()}, content, decoded.meta)
    except csv.Error as error:
        yield BadRecord(str(number + 1), "broken_row", f"row {number + 1}, line {rows.line_num}: {error}")


def _arrow_batches(data: bytes) -> Iterator[pa.RecordBatch]:
    if data.startswith(b"ARROW1"):
        with pa.ipc.open_file(data) as reader:
            yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
    else:
        with pa.ipc.open_stream(data) as reader:
            yield from reader


def _rows(content: Content, batch: pa.RecordBatch, before: int) -> Iterator[Record | BadRecord]:
    for number, fields in enumerate(batch.to_pylist(), start=before + 1):
        yield record_of(str(number), fields, content, {})


def _missing_column(content: Content, names: list[str]) -> BadRecord | None:
    if content.text_field in names:
        return None
    return BadRecord("1", "no_text_field", f"no column {content.text_field!r}; its columns: {', '.join(names)}")
