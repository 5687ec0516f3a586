"""The last pass: what each shard keeps, and what goes with the id of the document that it repeats."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.dedup.corpus import (
    DECISION_FILE,
    JACCARD,
    KEPT,
    SAME_TEXT,
    SIGNATURES,
    Numbers,
    Shard,
    index_file,
    load,
    load_corpus,
    work_file,
    work_files,
)
from tasks.dedup.owners import REPEATED
from tasks.dedup.pairs import NumberedShard
from tasks.dedup.resolve import Decisions, WholeCorpus
from tasks.documents import REMOVED, read_table, write_documents
from tasks.files import atomic_path
from tasks.stage import UnitResult

STEPS = {SAME_TEXT: "same text", SIGNATURES: "signatures agree", JACCARD: "exact Jaccard"}
NAMES = "work/names.arrow"

Repeated = npt.NDArray[np.void]


@dataclass(frozen=True)
class Names:
    """Ids of the documents that others repeat, in a file mapped into memory, by ascending number."""

    documents: Numbers
    ids: pa.Array

    def of(self, documents: npt.NDArray[Any]) -> pa.Array:
        return self.ids.take(pa.array(np.searchsorted(self.documents, documents)))


def name_owners(_: WholeCorpus, folder: Path) -> UnitResult:
    """Write the ids of the documents that others repeat, wholly or in a paragraph."""
    corpus = load_corpus(folder)
    owner = load(index_file(folder, DECISION_FILE))["duplicate_of"]
    files = [*work_files(folder, "repeated"), *work_files(folder, "frequent")]
    named = np.zeros(corpus.count, np.bool_)
    named[owner[owner != KEPT]] = True
    for path in files:
        named[load(path)["owner"]] = True
    schema = pa.schema([("document", pa.uint32()), ("id", pa.string())])
    with atomic_path(folder / NAMES) as temporary, pa.OSFile(str(temporary), "wb") as sink:
        rows = []
        for shard in corpus.shards:
            inside = np.flatnonzero(named[shard.first : shard.end])
            if inside.size:
                ids = read_table(Path(shard.documents), ["id"])["id"].take(pa.array(inside)).combine_chunks()
                rows.append(pa.table({"document": pa.array(inside + shard.first, pa.uint32()), "id": ids}, schema))
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(pa.concat_tables([schema.empty_table(), *rows]).combine_chunks())
    return {NAMES: None}, Counter()


def load_names(folder: Path) -> Names:
    """Return what `name_owners` has written."""
    table = pa.ipc.open_file(pa.memory_map(str(folder / NAMES))).read_all().combine_chunks()
    documents, ids = (
        table[name].combine_chunks() if table.num_rows else pa.array([], table[name].type)
        for name in table.column_names
    )
    return Names(documents.to_numpy(), ids)


def write_shard(task: NumberedShard, folder: Path) -> UnitResult:
    """Write the documents that stay, without the paragraphs that go, and all that goes, with the reason."""
    corpus, names, least = load_corpus(folder), load_names(folder), task.config.min_characters_left
    shard = corpus.shards[task.shard]
    documents = read_table(Path(shard.documents))
    first = shard.first - corpus.first_new
    decisions = np.array(load(index_file(folder, DECISION_FILE))[first : first + shard.count])
    duplicate = decisions["duplicate_of"] != KEPT
    taken_down = load(work_file(folder, "taken_down"))[shard.first : shard.end] & ~duplicate
    repeated = _repeated_of(folder, shard)
    texts, paragraphs = _without_repeated(documents["text"], repeated)
    removed = [
        _duplicates(documents, decisions, names, task.config.threshold),
        _removed(documents, np.flatnonzero(taken_down), rule="takedown"),
        _paragraphs(documents, repeated, paragraphs, names),
    ]
    documents = _with_texts(documents, texts)
    left = {row: len(text.strip()) for row, text in texts.items()}
    short = np.array([row for row, length in left.items() if length < least], np.int64)
    scores = pa.array([float(left[row]) for row in short.tolist()], pa.float64())
    removed.append(_removed(documents, short, rule="min_characters_left", score=scores, threshold=float(least)))
    goes = duplicate | taken_down | np.isin(np.arange(shard.count), short)
    number = task.shard - (len(corpus.shards) - len(corpus.new))
    kept = documents.filter(pa.array(~goes))
    files, counts = write_documents(folder, number, shard.count, kept, pa.concat_tables(removed))
    for source, went in zip(documents["source"].to_pylist(), goes.tolist(), strict=True):
        counts[f"documents_in:{source}"] += 1
        counts[f"documents_gone:{source}"] += went
    return files, counts


def _repeated_of(folder: Path, shard: Shard) -> Any:
    """Return `REPEATED` of one shard's documents, by rows of the shard, sorted."""
    found = [np.empty(0, REPEATED)]
    for path in work_files(folder, "repeated"):
        repeated = load(path)
        first, end = np.searchsorted(repeated["document"], [shard.first, shard.end])
        found.append(np.array(repeated[first:end]))
    repeated = np.concatenate(found)
    repeated["document"] -= np.uint32(shard.first)
    return repeated[np.lexsort((repeated["start"], repeated["document"]))]


def _without_repeated(texts: pa.ChunkedArray, repeated: Repeated) -> tuple[dict[int, str], list[str]]:
    """Return, by row, the texts that lose paragraphs, without them; and those paragraphs in order."""
    left: dict[int, str] = {}
    cut: list[str] = []
    rows, starts = np.unique(repeated["document"], return_index=True)
    for row, paragraphs in zip(rows.tolist(), np.split(repeated, starts[1:]), strict=False):
        data, place, kept = texts[row].as_py().encode(), 0, []
        for start, end in zip(paragraphs["start"].tolist(), paragraphs["end"].tolist(), strict=True):
            kept.append(data[place:start])
            cut.append(data[start:end].decode())
            place = end
        left[row] = b"".join([*kept, data[place:]]).decode()
    return left, cut


def _with_texts(documents: pa.Table, texts: dict[int, str]) -> pa.Table:
    """Return the table with some texts replaced, by row."""
    if not texts:
        return documents
    replaced = np.isin(np.arange(documents.num_rows), list(texts))
    column = pc.replace_with_mask(
        documents["text"].combine_chunks(), pa.array(replaced), pa.array(texts.values(), pa.string())
    )
    return documents.set_column(documents.column_names.index("text"), documents.schema.field("text"), column)


def _duplicates(documents: pa.Table, decisions: Decisions, names: Names, threshold: float) -> pa.Table:
    rows = np.flatnonzero(decisions["duplicate_of"] != KEPT)
    gone = decisions[rows]
    exact = gone["step"] == SAME_TEXT
    return _removed(
        documents,
        rows,
        rule=pa.array(np.where(exact, "exact_duplicate", "near_duplicate"), pa.string()),
        score=pa.array(gone["similarity"], pa.float64()),
        threshold=threshold,
        duplicate_of=names.of(gone["duplicate_of"]),
        detail=pa.array([STEPS[step] for step in gone["step"].tolist()], pa.string()),
    )


def _paragraphs(documents: pa.Table, repeated: Repeated, texts: list[str], names: Names) -> pa.Table:
    rule = np.where(repeated["edge"] == 1, "repeated_edge", "repeated_paragraph")
    return _removed(
        documents,
        repeated["document"],
        text=pa.array(texts, pa.string()),
        scope="paragraph",
        rule=pa.array(rule, pa.string()),
        duplicate_of=names.of(repeated["owner"]),
    )


def _removed(documents: pa.Table, rows: npt.NDArray[Any], **columns: pa.Array | str | float) -> pa.Table:
    """Return `REMOVED` for some rows of a shard; what `columns` does not give is the document's own."""
    given: dict[str, Any] = {"scope": "document"} | columns
    taken = [name for name in ("id", "source", "text") if name not in given]
    given |= {name: documents[name].take(pa.array(rows)) for name in taken}
    arrays = [
        value if isinstance(value, (pa.Array, pa.ChunkedArray)) else pa.array([value] * len(rows), field.type)
        for field in REMOVED
        for value in [given.get(field.name)]
    ]
    return pa.table(arrays, schema=REMOVED)
