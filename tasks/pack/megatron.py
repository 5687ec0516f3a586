"""Documents as Megatron keeps them: `.bin` with the ids of one document after another, `.idx` with their lengths and
places. Its loader shuffles documents and cuts them into sequences by itself, so documents are whole here, each with its
eos, in the order of the corpus.

Format: github.com/NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py (`_IndexWriter`).
"""

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from tasks.files import atomic_path
from tasks.pack.corpus import Corpus
from tasks.pack.write import plan_folder
from tasks.stage import UnitResult

HEADER = b"MMIDIDX\x00\x00"
VERSION = 1
DTYPE_CODES = {np.dtype(np.int32): 4, np.dtype(np.uint16): 8}
FOLDER = "megatron"


@dataclass(frozen=True)
class WriteMegatron:
    """The work of one unit: the documents of token shards `first` to `last` (not included)."""

    name: str
    corpus: Path
    first: int
    last: int
    copies: str
    """Name of the saved array that says how often each document is taken."""


def write_megatron(task: WriteMegatron, folder: Path) -> UnitResult:
    """Write `<name>.bin` and `<name>.idx`."""
    corpus = Corpus.open(folder, task.corpus)
    copies = np.load(plan_folder(folder, f"{task.copies}.npy"), mmap_mode="r")
    prefix = folder / FOLDER / task.name
    taken = [_taken(corpus, copies, shard) for shard in range(task.first, task.last)]
    lengths = corpus.lengths[np.concatenate(taken)]
    digest = xxhash.xxh3_64()
    with atomic_path(prefix.with_suffix(".bin")) as temporary, temporary.open("wb") as stream:
        for shard, documents in zip(range(task.first, task.last), taken, strict=True):
            for block in _documents(corpus, shard, documents):
                data = block.tobytes()
                digest.update(data)
                stream.write(data)
    dtype = corpus.dtype
    with atomic_path(prefix.with_suffix(".idx")) as temporary, temporary.open("wb") as stream:
        write_index(stream, lengths, dtype)
    names = [f"{FOLDER}/{task.name}{suffix}" for suffix in (".bin", ".idx")]
    counts = Counter(documents=lengths.size, tokens=int(lengths.sum()), checksum=digest.intdigest())
    return dict.fromkeys(names), counts


def write_index(stream: BinaryIO, lengths: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Write the index of documents that are one sequence each. `lengths` in tokens."""
    pointers = (np.cumsum(lengths) - lengths) * dtype.itemsize
    stream.write(HEADER + struct.pack("<QBQQ", VERSION, DTYPE_CODES[dtype], lengths.size, lengths.size + 1))
    stream.write(lengths.astype(np.int32).tobytes())
    stream.write(pointers.astype(np.int64).tobytes())
    stream.write(np.arange(lengths.size + 1, dtype=np.int64).tobytes())


def groups(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges (first, last) of token shards that together have at most about `most` bytes."""
    first, total = 0, 0
    for shard, size in enumerate(sizes):
        if total and total + size > most:
            yield first, shard
            first, total = shard, 0
        total += size
    if first < len(sizes):
        yield first, len(sizes)


def _taken(corpus: Corpus, copies: npt.NDArray[Any], shard: int) -> npt.NDArray[np.int64]:
    """Return the documents of a shard, each as often as it is taken; those without tokens are left out."""
    numbers = np.arange(corpus.first_of_shard[shard], corpus.first_of_shard[shard + 1])
    return np.repeat(numbers, np.where(corpus.lengths[numbers] > 0, copies[numbers], 0))


def _documents(corpus: Corpus, shard: int, documents: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[Any]]:
    tokens = corpus.tokens(shard)
    for number in documents:
        begin = corpus.offsets[number]
        yield tokens[begin : begin + corpus.lengths[number]]
