"""Reads a token dataset back: its sequences, and the documents that each was made from."""

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from configs.errors import PipelineError
from tasks.pack.tokens import FOLDER, document_files
from tasks.tokenizer import Tokenizer, open_tokenizer


@dataclass(frozen=True)
class Span:
    """Tokens of one sequence that come from one document; places in tokens."""

    start: int
    tokens: int
    document: str
    document_start: int
    ends: bool
    """Whether the document ends with it, that is, whether its last token is eos."""


class Dataset:
    """One split, `train` or `held_out`, of a pack artifact."""

    def __init__(self, folder: Path, split: str = "train") -> None:
        self.folder, self.split = folder, split
        try:
            self.header: dict[str, Any] = json.loads((folder / f"{split}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise PipelineError(f"{folder}: no split {split!r} in it") from None
        self._first = [0, *accumulate(file["rows"] for file in self.header["files"])]

    def __len__(self) -> int:
        return int(self._first[-1])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return open_tokenizer(self.folder / FOLDER)

    def sequence(self, number: int) -> npt.NDArray[Any]:
        """Return the ids of one sequence, padding included.

        Raises:
            PipelineError: there is no such sequence.
        """
        name, row = self._place(number)
        return np.asarray(self.rows(name)[row])

    def rows(self, name: str) -> npt.NDArray[Any]:
        """Return one file as an array of ids, shape (rows, seq_length + 1), mapped and not loaded."""
        rows = np.memmap(self.folder / f"{name}.bin", self.header["dtype"], "r")
        return rows.reshape(-1, self.header["tokens_a_row"])

    @property
    def names(self) -> list[str]:
        return [Path(file["name"]).stem for file in self.header["files"]]

    def spans(self, number: int) -> list[Span]:
        """Return what one sequence is made of, in order."""
        name, _ = self._place(number)
        found = pq.read_table(self.folder / f"{name}.spans.parquet", filters=[("sequence", "=", number)]).to_pylist()
        documents = self._documents([row["document"] for row in found])
        return [
            Span(
                start=row["start"],
                tokens=row["tokens"],
                document=document["id"],
                document_start=row["document_start"],
                ends=row["document_start"] + row["tokens"] == document["tokens"],
            )
            for row, document in zip(found, documents, strict=True)
        ]

    def decoded(self, number: int) -> Iterator[tuple[Span, list[str]]]:
        """Yield each span of a sequence with the text of each of its tokens, eos left out.

        A token that ends inside a character has no text; the one that completes the character has it.
        """
        ids = self.sequence(number).tolist()
        for span in self.spans(number):
            yield span, token_texts(self.tokenizer, ids[span.start : span.start + span.tokens - span.ends])

    def _place(self, number: int) -> tuple[str, int]:
        if not 0 <= number < len(self):
            raise PipelineError(f"{self.folder}: no sequence {number}; its sequences are 0 to {len(self) - 1}")
        file = bisect_right(self._first, number) - 1
        return self.names[file], number - self._first[file]

    def _documents(self, numbers: list[int]) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        first = 0
        for path in document_files(self.folder):
            file = pq.ParquetFile(path)
            rows = file.metadata.num_rows
            wanted = sorted({number - first for number in numbers if first <= number < first + rows})
            if wanted:
                taken = file.read(["id", "tokens"]).take(wanted).to_pylist()
                found |= {first + place: row for place, row in zip(wanted, taken, strict=True)}
            first += rows
        return [found[number] for number in numbers]


def token_texts(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """Return the text of each token; bytes that make no character show as U+FFFD."""
    texts, pending = [], b""
    for token in ids:
        pending += tokenizer.piece(token)
        try:
            text, pending = pending.decode(), b""
        except UnicodeDecodeError as error:
            if len(pending) - error.start > 3 or error.reason != "unexpected end of data":
                text, pending = pending.decode(errors="replace"), b""
            else:
                text, pending = pending[: error.start].decode(), pending[error.start :]
        texts.append(text)
    if pending and texts:
        texts[-1] += pending.decode(errors="replace")
    return texts
