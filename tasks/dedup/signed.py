"""The first pass: what has to be known of each document to compare it, written by shard and read over all shards."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from configs.schema import DedupConfig
from tasks.dedup.pairs import Indices
from tasks.dedup.paragraphs import hash_text, long_paragraphs
from tasks.dedup.signatures import Shingles, permutations_of, shingle, sign
from tasks.documents import read_table
from tasks.files import atomic_path
from tasks.stage import UnitResult


@dataclass(frozen=True)
class SignShard:
    """The work of one unit."""

    index: int
    documents: Path
    config: DedupConfig


def sign_shard(task: SignShard, folder: Path) -> UnitResult:
    """Write, for one shard: signatures, shingles, hashes of whole texts, hashes of long paragraphs."""
    texts = read_table(task.documents, ["text"])["text"].to_pylist()
    permutations = permutations_of(task.config.permutations)
    shingles = [shingle(text, task.config.shingle_units) for text in texts]
    signatures = [sign(values, permutations) for values in shingles]
    paragraphs = [
        (index, value)
        for index, text in enumerate(texts)
        for _, value in long_paragraphs(text, task.config.paragraph_characters)
    ]
    arrays: dict[str, npt.NDArray[Any]] = {
        "signatures": np.array(signatures, np.uint32).reshape(len(texts), task.config.permutations),
        "shingles": np.concatenate([np.empty(0, np.uint64), *shingles]),
        "shingle_counts": np.array([s.size for s in shingles], np.int64),
        "texts": np.frombuffer(b"".join(map(hash_text, texts)), np.dtype("V16")),
        "paragraph_documents": np.array([index for index, _ in paragraphs], np.int64),
        "paragraphs": np.array([value for _, value in paragraphs], np.uint64),
    }
    files: dict[str, int | None] = {}
    for name, array in arrays.items():
        path = _file(folder, task.index, name)
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            np.save(stream, array)
        files[path.relative_to(folder).as_posix()] = None
    return files, Counter(documents=len(texts))


@dataclass(frozen=True)
class Signed:
    """The first pass's files of all shards, in document order. Shingles stay on the disk until they are asked for."""

    folder: Path
    shards: int

    def joined(self, name: str) -> npt.NDArray[Any]:
        """Return one of the arrays over all shards."""
        return np.concatenate(self._all(name))

    @cached_property
    def starts(self) -> Indices:
        """The index of each shard's first document, and at the end how many there are."""
        return np.cumsum([0, *(counts.size for counts in self._all("shingle_counts"))])

    @property
    def paragraph_documents(self) -> Indices:
        """The document, counted over all shards, of each long paragraph."""
        local = self._all("paragraph_documents")
        return np.concatenate([start + indices for start, indices in zip(self.starts, local, strict=False)])

    def shingles_of(self, document: int) -> Shingles:
        """Return the sorted shingle hashes of a document."""
        shard = int(np.searchsorted(self.starts, document, side="right")) - 1
        place = document - int(self.starts[shard])
        ends = self._shingle_ends[shard]
        return np.asarray(self._shingles[shard][ends[place - 1] if place else 0 : ends[place]])

    @cached_property
    def _shingles(self) -> list[Shingles]:
        return [np.load(_file(self.folder, shard, "shingles"), mmap_mode="r") for shard in range(self.shards)]

    @cached_property
    def _shingle_ends(self) -> list[Indices]:
        return [np.cumsum(counts) for counts in self._all("shingle_counts")]

    def _all(self, name: str) -> list[npt.NDArray[Any]]:
        return [np.load(_file(self.folder, shard, name)) for shard in range(self.shards)]


def _file(folder: Path, shard: int, name: str) -> Path:
    return folder / "work" / f"{name}-{shard:05d}.npy"
