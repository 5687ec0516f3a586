"""Writes one shard of the dataset: gathers the tokens of its sequences from the shards of the tokens artifact, checks that
they are what the plan says, and keeps which run came from which document.

    train-00000.bin              ids, sequence after sequence, no header (train.json describes them)
    train-00000.spans.parquet    sequence, start, document (its number), document_start, tokens

Runs are copied in the order in which they lie in their source, so the files are read forwards. Memory is one shard.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.compiled import compiled
from tasks.documents import write_table
from tasks.files import atomic_path, write_array
from tasks.pack.corpus import Corpus
from tasks.pack.plan import PADDING, Indices, Plan, Spans, spans_of
from tasks.stage import UnitResult
from tasks.tokenizer import TokenIds

Tokens = npt.NDArray[Any]


@dataclass(frozen=True)
class ShardPlace:
    """Which sequences of a plan make a shard. `number`: that of its first sequence in the whole split."""

    name: str
    plan: str
    first: int
    sequences: int
    number: int


@dataclass(frozen=True)
class WriteShard:
    """The work of one unit."""

    place: ShardPlace
    corpus: Path
    """Folder of the tokens artifact."""
    stride: int
    width: int
    ids: TokenIds
    dtype: str


def plan_folder(folder: Path, plan: str) -> Path:
    return folder / "work" / plan


def write_shard(task: WriteShard, folder: Path) -> UnitResult:
    """Write one shard of `task.place.sequences` sequences of `task.width` tokens.

    Raises:
        RuntimeError: the tokens are not what the plan says, which is a fault of this code.
    """
    place = task.place
    plan = Plan.open(plan_folder(folder, place.plan), task.stride, task.width)
    corpus = Corpus.open(folder, task.corpus)
    spans = spans_of(plan, place.first, place.sequences)
    sequences = np.empty((place.sequences, task.width), task.dtype)
    if (spans.document == PADDING).any():
        sequences.fill(task.ids.pad)
    flat_places = (spans.sequence - place.first) * task.width + spans.start
    gather(corpus, spans, flat_places, sequences.reshape(-1))
    counts = check_sequences(sequences, spans, place.first, corpus.lengths, task.ids)
    name = f"{place.name}.bin"
    with atomic_path(folder / name) as temporary, temporary.open("wb") as stream:
        stream.write(sequences.data)
    rows = write_table(folder / f"{place.name}.spans.parquet", _spans_table(spans, place.number - place.first))
    sources = f"work/{place.name}.sources.npy"
    write_array(folder / sources, _source_of_each(spans, corpus, place))
    return {name: None, f"{place.name}.spans.parquet": rows, sources: None}, counts


def gather(corpus: Corpus, spans: Spans, places: Indices, target: Tokens) -> None:
    """Copy the tokens of each span to its place in `target`."""
    real = np.flatnonzero(spans.document != PADDING)
    documents = spans.document[real]
    shard, offset = corpus.place_of(documents)
    offset = offset + spans.document_start[real]
    order = np.lexsort((offset, shard))
    first = np.searchsorted(shard[order], np.arange(corpus.shards + 1))
    for index in range(corpus.shards):
        chosen = order[first[index] : first[index + 1]]
        if chosen.size:
            source = corpus.tokens(index)
            _copy_runs(source, target, offset[chosen], places[real[chosen]], spans.tokens[real[chosen]])


def check_sequences(
    sequences: Tokens, spans: Spans, first: int, lengths: npt.NDArray[Any], ids: TokenIds
) -> Counter[str]:
    """Compare sequences with their spans, and count what is in them.

    Raises:
        RuntimeError: an id is not in the vocabulary, a sequence is all padding, or eos stands elsewhere than at the ends of
            documents.
    """
    real = spans.document != PADDING
    width = sequences.shape[1]
    ends = real.copy()
    ends[real] = spans.document_start[real] + spans.tokens[real] == lengths[spans.document[real]]
    rows, last = spans.sequence - first, spans.start + spans.tokens - 1
    padding = int(spans.tokens[~real].sum())
    found, largest = _count(sequences, ids.eos), int(sequences.max())
    if (sequences[rows[ends], last[ends]] != ids.eos).any() or found != int(ends.sum()):
        raise RuntimeError(f"pack: {found} eos in the sequences from {first} on, but {ends.sum()} ends of documents")
    if largest >= ids.vocab_size:
        raise RuntimeError(f"pack: token id {largest} in a vocabulary of {ids.vocab_size}")
    if (spans.start[~real] == 0).any():
        raise RuntimeError(f"pack: a sequence from {first} on is all padding")
    if int(spans.tokens.sum()) != sequences.size:
        raise RuntimeError(f"pack: spans of {spans.tokens.sum()} tokens for {sequences.size} places")
    # The last place of a sequence is only a label; where the next begins with the same token it counts there.
    begun = real & (spans.document_start == 0) & (spans.start < width - 1)
    cut = spans.tokens[begun] < lengths[spans.document[begun]]
    counts = Counter(sequences=len(sequences), padding=padding, eos_labels=int((ends & (last > 0)).sum()))
    counts["documents_cut"] = int(cut.sum())
    counts["documents_in_a_sequence"] = int(np.bincount(rows[real]).max()) if real.any() else 0
    return counts


def _source_of_each(spans: Spans, corpus: Corpus, place: ShardPlace) -> npt.NDArray[np.uint16]:
    """Return the source of the first document of each sequence."""
    beginning = np.searchsorted(spans.sequence, np.arange(place.first, place.first + place.sequences))
    return np.asarray(corpus.sources[spans.document[beginning]], np.uint16)


def _spans_table(spans: Spans, shift: int) -> pa.Table:
    real = spans.document != PADDING
    return pa.table(
        {
            "sequence": spans.sequence[real] + shift,
            "start": spans.start[real].astype(np.int32),
            "document": spans.document[real],
            "document_start": spans.document_start[real],
            "tokens": spans.tokens[real].astype(np.int32),
        }
    )


def _count(sequences: Tokens, token: int) -> int:
    """Return how often a token occurs; in blocks that stay in the processor's cache."""
    blocks = np.array_split(sequences.reshape(-1), max(1, sequences.size // 2**16))
    return sum(int(np.count_nonzero(block == token)) for block in blocks)


@compiled
def _copy_runs(source: Tokens, target: Tokens, begin: Indices, place: Indices, count: Indices) -> None:
    for run in range(begin.size):
        target[place[run] : place[run] + count[run]] = source[begin[run] : begin[run] + count[run]]
