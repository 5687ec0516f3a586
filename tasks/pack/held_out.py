"""Which documents are kept from training, for evaluation: chosen by a hash of their ids, so that they stay the same ones
when the corpus grows, and none that is a near-duplicate of a training document.

Deduplication has taken out what is above its threshold. What is left below it would still make the evaluation too good, so
chosen documents whose signature agrees to 0.7 with that of a training document go back to training.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tasks.dedup.shingles import texts_of
from tasks.dedup.signatures import band_keys, permutations_of, sign_texts
from tasks.documents import read_table
from tasks.files import write_array
from tasks.stage import UnitResult

NEAR = 0.7
PERMUTATIONS, BANDS, ROWS = 128, 32, 4
"""32 bands of 4 rows find 99.98% of the pairs that agree to 0.7."""
SHINGLE_UNITS = 5


@dataclass(frozen=True)
class HoldOutShard:
    """The work of a unit of either pass. `first`: number of the shard's first document."""

    index: int
    documents: Path
    first: int
    share: float
    seed: int


def choose_shard(task: HoldOutShard, folder: Path) -> UnitResult:
    """First pass: choose the documents of one shard, and sign them."""
    table = read_table(task.documents, ["id", "text"])
    chosen = np.flatnonzero(_chosen(table["id"].to_pylist(), task.share, task.seed))
    signatures, comparable = _sign(table["text"].take(pa.array(chosen)))
    numbers, signed = _files(folder, task.index)
    write_array(numbers, chosen + task.first)
    write_array(signed, np.where(comparable[:, None], signatures, 0))
    return {path.relative_to(folder).as_posix(): None for path in (numbers, signed)}, Counter(chosen=chosen.size)


def compare_shard(task: tuple[HoldOutShard, int], folder: Path) -> UnitResult:
    """Second pass: find chosen documents, of all shards, that a training document of this one nearly repeats."""
    shard, shards = task
    numbers, signatures = _load(folder, shards)
    table = read_table(shard.documents, ["id", "text"])
    training = np.flatnonzero(~_chosen(table["id"].to_pylist(), shard.share, shard.seed))
    ours, comparable = _sign(table["text"].take(pa.array(training)))
    near = np.zeros(numbers.size, np.bool_)
    for theirs, keys in zip(band_keys(signatures, BANDS, ROWS), band_keys(ours, BANDS, ROWS), strict=True):
        order = np.argsort(theirs, kind="stable")
        left, right = (np.searchsorted(theirs[order], keys, side=side) for side in ("left", "right"))
        for document in np.flatnonzero((right > left) & comparable):
            candidates = order[left[document] : right[document]]
            near[candidates] |= (signatures[candidates] == ours[document]).mean(axis=1) >= NEAR
    file = _near_file(folder, shard.index)
    write_array(file, numbers[near])
    return {file.relative_to(folder).as_posix(): None}, Counter(near=int(near.sum()))


def held_out_documents(folder: Path, shards: int, documents: int) -> tuple[npt.NDArray[np.bool_], int]:
    """Return which documents are held out, and how many went back as near-duplicates; none without the two passes."""
    held_out = np.zeros(documents, np.bool_)
    if not shards:
        return held_out, 0
    held_out[_load(folder, shards)[0]] = True
    near = np.unique(np.concatenate([np.load(_near_file(folder, shard)) for shard in range(shards)]))
    held_out[near] = False
    return held_out, near.size


def _chosen(names: list[str], share: float, seed: int) -> npt.NDArray[np.bool_]:
    limit = int(share * 2**64)
    return np.array([xxhash.xxh3_64_intdigest(name.encode(), seed) < limit for name in names], np.bool_)


def _sign(texts: pa.ChunkedArray) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """Return the signatures, and which texts are long enough to be compared."""
    signatures, shingles = sign_texts(texts_of(texts), True, SHINGLE_UNITS, permutations_of(PERMUTATIONS))
    return signatures, shingles > 0


def _load(folder: Path, shards: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
    pairs = [[np.load(file) for file in _files(folder, shard)] for shard in range(shards)]
    numbers, signatures = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return numbers, signatures


def _files(folder: Path, shard: int) -> tuple[Path, Path]:
    return folder / "work" / f"held-out-{shard:05d}.npy", folder / "work" / f"held-out-signatures-{shard:05d}.npy"


def _near_file(folder: Path, shard: int) -> Path:
    return folder / "work" / f"held-out-near-{shard:05d}.npy"
