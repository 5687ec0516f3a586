"""The tokenized documents of all shards as one numbered list: where each lies, how long it is, from which source.

What is known of a document is in arrays, saved once by the planning pass and mapped by the others: 22 bytes a document.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.documents import read_table
from tasks.files import write_array
from tasks.pack.tokens import FOLDER, document_file, map_tokens, token_dtype
from tasks.tokenizer import read_description

NAMES = "lengths", "offsets", "sources", "first_of_shard"


@dataclass(frozen=True)
class Corpus:
    """Documents numbered through all shards. Arrays may be mapped."""

    folder: Path
    """Of the tokens artifact."""
    lengths: npt.NDArray[np.int64]
    """Tokens of each document, bos and eos included; 0 without text."""
    offsets: npt.NDArray[np.int64]
    """Where in its shard's file each begins, in tokens."""
    sources: npt.NDArray[np.uint16]
    """Each one's place in the list of source names."""
    first_of_shard: npt.NDArray[np.int64]
    """Number of the first document of each shard, and at the end how many there are."""

    @property
    def shards(self) -> int:
        return self.first_of_shard.size - 1

    def place_of(self, documents: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the shard of each document and where in it the document begins, in tokens."""
        return np.searchsorted(self.first_of_shard, documents, side="right") - 1, self.offsets[documents]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Of the ids in the files."""
        return token_dtype(read_description(self.folder / FOLDER).vocab_size)

    def tokens(self, shard: int) -> npt.NDArray[Any]:
        return map_tokens(self.folder, shard, self.dtype)

    @classmethod
    def read(cls, folder: Path, shards: int, names: Sequence[str]) -> "Corpus":
        """Return the corpus of a tokens artifact. `names`: the sources, in the order that numbers them."""
        number = {name: place for place, name in enumerate(names)}
        lengths, offsets, sources = [], [], []
        for shard in range(shards):
            table = read_table(document_file(folder, shard), ["source", "tokens"])
            tokens = table["tokens"].to_numpy()
            lengths.append(tokens)
            offsets.append(np.cumsum(tokens) - tokens)
            sources.append(np.array([number[name] for name in table["source"].to_pylist()], np.uint16))
        first = np.cumsum([0, *(part.size for part in lengths)])
        return cls(folder, np.concatenate(lengths), np.concatenate(offsets), np.concatenate(sources), first)

    def save(self, draft: Path) -> list[Path]:
        """Write what is known of the documents; return the files."""
        for name in NAMES:
            write_array(_saved(draft, name), getattr(self, name))
        return [_saved(draft, name) for name in NAMES]

    @classmethod
    def open(cls, draft: Path, folder: Path) -> "Corpus":
        """Return the corpus that the planning pass saved in a draft."""
        lengths, offsets, sources, first = (np.load(_saved(draft, name), mmap_mode="r") for name in NAMES)
        return cls(folder, lengths, offsets, sources, first)


def _saved(draft: Path, name: str) -> Path:
    return draft / "work" / f"corpus-{name}.npy"
