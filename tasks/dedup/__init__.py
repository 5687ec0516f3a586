"""Documents without those that repeat an earlier one: exact copies, near-duplicates, repeated paragraphs.

Three passes, each restartable by shard: sign (read every document once), resolve (compare, decide in order), write.
What the passes hand on lies in the draft's `work/` and goes when the artifact is published.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from configs.schema import DedupConfig
from tasks.artifact import merge_counts
from tasks.dedup.pairs import KEPT, Indices, bands_and_rows, candidate_pairs, resolve
from tasks.dedup.paragraphs import first_owners, long_paragraphs
from tasks.dedup.signed import Signed, SignShard, sign_shard
from tasks.documents import DOCUMENTS, read_table, removed_document, write_documents, write_table
from tasks.stage import Stage, StageResult, StageRun, UnitResult


@dataclass(frozen=True)
class ResolveCorpus:
    """The work of the second pass's one unit."""

    shards: tuple[Path, ...]
    config: DedupConfig


@dataclass(frozen=True)
class WriteShard:
    """The work of one unit of the third pass."""

    index: int
    documents: Path
    first_document: int
    config: DedupConfig


def build(run: StageRun) -> StageResult:
    config = run.config.dedup
    shards = run.artifact("normalize").shards
    signed = run.map("sign", sign_shard, [SignShard(index, path, config) for index, path in enumerate(shards)])
    resolved = run.map("resolve", resolve_corpus, [ResolveCorpus(tuple(shards), config)])
    starts = np.cumsum([0, *(record.counts["documents"] for record in signed)]).tolist()
    writes = [WriteShard(index, path, starts[index], config) for index, path in enumerate(shards)]
    written = run.map("write", write_shard, writes)
    return StageResult([file for record in written for file in record.files], dict(merge_counts([*resolved, *written])))


def resolve_corpus(task: ResolveCorpus, folder: Path) -> UnitResult:
    """Decide about every document, and find which document owns each repeated paragraph."""
    signed = Signed(folder, len(task.shards))
    exact_first = _first_with_same_text(signed.joined("texts"))
    indices = np.arange(exact_first.size)
    comparable = indices[(exact_first == indices) & (signed.joined("shingle_counts") > 0)]
    bands, rows = bands_and_rows(task.config.threshold, task.config.permutations)
    pairs = candidate_pairs(signed.joined("signatures")[comparable], comparable, bands, rows)
    decisions = resolve(exact_first, pairs, signed.shingles_of, task.config.threshold)
    stays = decisions.duplicate_of == KEPT
    ids = pa.chunked_array(
        [chunk for path in task.shards for chunk in read_table(path, ["id"])["id"].chunks], pa.string()
    )
    table = pa.table(
        {
            "duplicate_of": ids.take(pa.array(decisions.duplicate_of, pa.int64(), mask=stays)),
            "similarity": decisions.similarity,
            "exact": exact_first != indices,
        }
    )
    documents, paragraphs = signed.paragraph_documents, signed.joined("paragraphs")
    owners = first_owners(paragraphs[stays[documents]], documents[stays[documents]])
    owned = pa.table(
        {"paragraph": pa.array(owners.keys(), pa.uint64()), "owner": pa.array(owners.values(), pa.int64())}
    )
    owned = owned.append_column("owner_id", ids.take(owned["owner"]))
    files: dict[str, int | None] = {
        "work/decisions.parquet": write_table(folder / "work" / "decisions.parquet", table),
        "work/owners.parquet": write_table(folder / "work" / "owners.parquet", owned),
    }
    return files, Counter(candidate_pairs=len(pairs))


def write_shard(task: WriteShard, folder: Path) -> UnitResult:
    """Write what one shard keeps, and what goes with the document that it repeats."""
    documents = read_table(task.documents).to_pylist()
    decisions = read_table(folder / "work" / "decisions.parquet").slice(task.first_document, len(documents)).to_pylist()
    owners = {row["paragraph"]: row for row in read_table(folder / "work" / "owners.parquet").to_pylist()}
    kept, removed = [], []
    for index, (document, decision) in enumerate(zip(documents, decisions, strict=True), start=task.first_document):
        if decision["duplicate_of"] is not None:
            rule = "exact_duplicate" if decision["exact"] else "near_duplicate"
            removed.append(
                removed_document(document, rule, decision["similarity"], task.config.threshold)
                | {"duplicate_of": decision["duplicate_of"]}
            )
            continue
        text, repeated = _without_repeated(document, index, owners, task.config.paragraph_characters)
        kept.append(document | {"text": text})
        removed.extend(repeated)
    return write_documents(folder, task.index, len(documents), pa.Table.from_pylist(kept, schema=DOCUMENTS), removed)


def _without_repeated(
    document: dict[str, Any], index: int, owners: dict[int, dict[str, Any]], min_characters: int
) -> tuple[str, list[dict[str, Any]]]:
    """Return a document's text without the paragraphs that an earlier one owns, and those paragraphs."""
    text = document["text"]
    kept, removed, position = [], [], 0
    for block, value in long_paragraphs(text, min_characters):
        owner = owners.get(value)
        if owner is None or owner["owner"] == index:
            continue
        kept.append(text[position : block.start])
        position = block.end
        removed.append(
            removed_document(document, "repeated_paragraph", None, None)
            | {"scope": "paragraph", "text": text[block.start : block.end], "duplicate_of": owner["owner_id"]}
        )
    return "".join([*kept, text[position:]]), removed


def _first_with_same_text(hashes: npt.NDArray[Any]) -> Indices:
    """Return for each document the first one whose text has the same hash."""
    _, first, inverse = np.unique(hashes.view("S16"), return_index=True, return_inverse=True)
    return np.asarray(first[inverse], np.int64)


STAGE = Stage(
    name="dedup",
    version=2,
    libraries=("datasketch", "numba", "xxhash", "pyarrow"),
    settings=lambda config: config.dedup.model_dump(),
    build=build,
)
