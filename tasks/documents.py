"""The tables that flow between the data stages, and the one reader and writer of them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.files import atomic_path

DOCUMENTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),  # source/file#position, the same in every run
        pa.field("source", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("meta", pa.string(), nullable=False),  # JSON object: what the raw record had beside its text
    ]
)

REMOVED = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),  # what was taken out: the document, paragraph or line
        pa.field("scope", pa.string(), nullable=False),  # "document", "paragraph" or "line"
        pa.field("rule", pa.string(), nullable=False),
        pa.field("score", pa.float64()),
        pa.field("threshold", pa.float64()),
        pa.field("duplicate_of", pa.string()),  # id of the document that it repeats
        pa.field("detail", pa.string()),
    ]
)

CHUNKS = pa.schema(
    [
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),  # characters from the document's beginning
        pa.field("last", pa.bool_(), nullable=False),  # ends its document
        pa.field("heading", pa.string(), nullable=False),  # path of headings, joined by " > "
        pa.field("text", pa.string(), nullable=False),
    ]
)


def write_table(target: Path, table: pa.Table) -> int:
    """Write a table as Parquet under its final name at once; return its rows."""
    with atomic_path(target) as temporary:
        names = [name for name in table.column_names if name != "text"]  # of long texts no two are equal
        pq.write_table(table, temporary, compression="zstd", use_dictionary=names, write_statistics=names)
    return int(table.num_rows)


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    return pq.read_table(path, columns=columns)


def removed_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=REMOVED)


def removed_document(
    document: Mapping[str, Any], rule: str, score: float | None, threshold: float | None
) -> dict[str, Any]:
    """Return the row of `REMOVED` for a whole document. Units of score and threshold are the rule's."""
    row = {"id": document["id"], "source": document["source"], "text": document["text"], "scope": "document"}
    return row | {"rule": rule, "score": score, "threshold": threshold}


def write_documents(
    folder: Path, index: int, documents_in: int, kept: pa.Table, removed: pa.Table
) -> tuple[dict[str, int | None], Counter[str]]:
    """Write shard `index`: the documents that stay, and a table `REMOVED` of what goes. Return files and counts."""
    name = f"part-{index:05d}.parquet"
    files: dict[str, int | None] = {
        name: write_table(folder / name, kept),
        f"removed/{name}": write_table(folder / "removed" / name, removed),
    }
    gone = int(pc.sum(pc.equal(removed["scope"], "document")).as_py() or 0)
    if documents_in != kept.num_rows + gone:
        raise RuntimeError(f"{folder / name}: {documents_in} documents came in, but {kept.num_rows} stay and {gone} go")
    characters = pc.sum(pc.utf8_length(kept["text"])).as_py() or 0
    counts = Counter(documents_in=documents_in, documents_kept=kept.num_rows, characters=characters)
    for row in removed.group_by(["scope", "rule"]).aggregate([([], "count_all")]).to_pylist():
        counts[f"{row['scope']}s_removed:{row['rule']}"] = row["count_all"]
    return files, counts
