"""Where every token goes: documents in random order, end to end, cut into sequences, the sequences in random order.

The chunks of a document stay together, so eos stands exactly at document ends and no text runs on into another's
unmarked. Cutting leaves a tail shorter than a sequence, the only tokens that are dropped; there is no padding.
Sequences are shuffled once more, so that the parts of a long document do not fill a batch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Tokens = npt.NDArray[Any]


@dataclass(frozen=True)
class Spans:
    """Runs of tokens that go from one document to one sequence; arrays of one length, sorted by sequence and start."""

    sequence: Indices
    start: Indices  # place in the sequence
    document: Indices
    document_start: Indices  # place in the document, in tokens
    tokens: Indices


def token_dtype(vocab_size: int) -> npt.DTypeLike:
    """Return the smallest type that holds every id."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def copies_by_weight(weights: npt.NDArray[np.float64], seed: int) -> Indices:
    """Return how often each document is taken, given the weight of its source.

    The whole part of a weight is for every document; its fraction is the share of them that come once more.
    """
    whole = np.floor(weights)
    drawn = np.random.default_rng([seed, 1]).random(weights.size)
    copies: Indices = (whole + (drawn < weights - whole)).astype(np.int64)
    return copies


def place_documents(lengths: Indices, copies: Indices, sequence_tokens: int, seed: int) -> Spans:
    """Return where the tokens of documents go.

    `lengths`: tokens of each document, eos included. `copies`: how often each is taken. `sequence_tokens`: tokens of a
    sequence, that is seq_length + 1.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(np.repeat(np.arange(lengths.size), copies))
    ends = np.cumsum(lengths[order])
    sequences = int(ends[-1]) // sequence_tokens if order.size else 0
    places = random.permutation(sequences)
    total = sequences * sequence_tokens
    document_starts = ends - lengths[order]
    cuts = np.union1d(document_starts, np.arange(sequences) * sequence_tokens)
    cuts = cuts[cuts < total]
    tokens = np.diff(np.append(cuts, total))
    at = np.searchsorted(ends, cuts, side="right")
    spans = Spans(
        sequence=places[cuts // sequence_tokens] if sequences else np.empty(0, np.int64),
        start=cuts % sequence_tokens,
        document=order[at],
        document_start=cuts - document_starts[at],
        tokens=tokens,
    )
    by_place = np.lexsort((spans.start, spans.sequence))
    return Spans(*(getattr(spans, name)[by_place] for name in Spans.__dataclass_fields__))


def fill_sequences(
    spans: Spans, document_tokens: "DocumentTokens", sequence_tokens: int, target: npt.NDArray[Any]
) -> None:
    """Copy every span's tokens into `target`, shape (sequences, sequence_tokens)."""
    flat = target.reshape(-1)
    columns = (spans.sequence * sequence_tokens + spans.start, spans.document, spans.document_start, spans.tokens)
    for place, document, start, count in zip(*(column.tolist() for column in columns), strict=True):
        flat[place : place + count] = document_tokens.read(document, start, count)


@dataclass(frozen=True)
class DocumentTokens:
    """The tokens of all documents, in files of one array a shard that are mapped, not loaded."""

    shards: tuple[Tokens, ...]
    shard_of: Indices
    offset: Indices
    """For each document its shard and where in it the document begins, in tokens."""

    def read(self, document: int, start: int, count: int) -> Tokens:
        begin = int(self.offset[document]) + start
        tokens: Tokens = self.shards[self.shard_of[document]][begin : begin + count]
        return tokens
