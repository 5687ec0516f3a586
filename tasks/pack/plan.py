"""Where every token goes: runs of documents are laid end to end into one stream, and sequences are cut from it.

`concat` lays whole documents (or chunks) in random order and cuts every seq_length tokens. A sequence begins with the
token that the one before ended with, so every token but the first is a label exactly once. Only a tail shorter than a
sequence is dropped; there is no padding.

`best_fit` fills each sequence with pieces that fit (best-fit decreasing, as in bin packing), so that few documents are
cut: those longer than a sequence, at chunk borders where one is near, and as many more as it takes to keep padding low.
A piece that goes on with a document begins with the token before it, so here, too, every token becomes a label.

Sequences are shuffled once more, so that the parts of a long document do not fill a batch. All of it is arrays of some 60
bytes a document; tokens are not touched.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.compiled import compiled
from tasks.files import write_array

Indices = npt.NDArray[np.int64]
PADDING = -1
"""Stands for the document of a run that fills a sequence up."""


@dataclass(frozen=True)
class Runs:
    """Runs of tokens, each from one document; arrays of one length."""

    document: Indices
    start: Indices  # place in the document, in tokens
    tokens: Indices

    def take(self, order: Indices) -> "Runs":
        return Runs(self.document[order], self.start[order], self.tokens[order])


@dataclass(frozen=True)
class Plan:
    """A stream of runs, and the sequences of `width` tokens that are cut from it every `stride` tokens.

    Sequence k is the stream from order[k] * stride on. `ends`: where in the stream each run ends.
    """

    document: Indices
    start: Indices
    ends: Indices
    order: Indices
    stride: int
    width: int

    @property
    def dropped(self) -> int:
        """Tokens at the end of the stream that fill no sequence."""
        total = int(self.ends[-1]) if self.ends.size else 0
        return total - self.covered

    @property
    def covered(self) -> int:
        """Tokens of the stream that are in some sequence."""
        return (self.order.size - 1) * self.stride + self.width if self.order.size else 0

    def ended(self, lengths: Indices) -> int:
        """Return how many documents end in the sequences. `lengths`: tokens of each."""
        real = np.flatnonzero(self.document != PADDING)
        tokens = np.diff(self.ends, prepend=0)[real]
        last = self.start[real] + tokens == lengths[self.document[real]]
        return int(np.count_nonzero(last & (self.ends[real] <= self.covered)))

    def save(self, folder: Path) -> list[Path]:
        """Write the arrays; return their files."""
        files = [folder / f"{name}.npy" for name in ("document", "start", "ends", "order")]
        for file in files:
            write_array(file, getattr(self, file.stem))
        return files

    @classmethod
    def open(cls, folder: Path, stride: int, width: int) -> "Plan":
        """Return a saved plan, its arrays mapped and not loaded."""
        arrays: dict[str, Any] = {
            field.name: np.load(folder / f"{field.name}.npy", mmap_mode="r")
            for field in fields(cls)
            if field.name not in ("stride", "width")
        }
        return cls(**arrays, stride=stride, width=width)


@dataclass(frozen=True)
class Spans:
    """Runs of tokens that go from one document to one sequence, sorted by sequence and place; arrays of one length."""

    sequence: Indices
    start: Indices  # place in the sequence
    document: Indices  # PADDING where nothing is
    document_start: Indices  # place in the document, in tokens
    tokens: Indices


def whole_documents(lengths: Indices, copies: Indices) -> Runs:
    """Return a run for each copy of each document that has tokens."""
    document = np.repeat(np.arange(lengths.size), np.where(lengths > 0, copies, 0))
    return Runs(document, np.zeros_like(document), lengths[document])


def copies_by_weight(weights: npt.NDArray[np.float64], seed: int) -> Indices:
    """Return how often each document is taken, given the weight of its source.

    The whole part of a weight is for every document; its fraction is the share of them that come once more.
    """
    whole = np.floor(weights)
    drawn = np.random.default_rng([seed, 1]).random(weights.size)
    copies: Indices = (whole + (drawn < weights - whole)).astype(np.int64)
    return copies


def concat(units: Runs, width: int, random: np.random.Generator) -> Plan:
    """Return the plan that lays the units in random order. `width`: tokens of a stored sequence, seq_length + 1."""
    laid = units.take(random.permutation(units.tokens.size))
    return _plan(laid, width - 1, width, random)


def best_fit(pieces: Runs, width: int, max_padding_share: float, random: np.random.Generator) -> Plan:
    """Return the plan that puts pieces of at most `width` tokens into sequences of `width` tokens.

    Padding stays under `max_padding_share` of all places, or one sequence of it where there are few.
    """
    pieces = pieces.take(random.permutation(pieces.tokens.size))
    by_length = np.argsort(-pieces.tokens, kind="stable")
    pieces = pieces.take(by_length)
    bins = _fit(pieces.tokens, width)
    count = int(bins.max()) + 1 if bins.size else 0
    free = width - np.bincount(bins, pieces.tokens, count).astype(np.int64)
    # Giving the contents of a sequence to the others takes `width` off the padding.
    padding = int(free.sum())
    surplus = np.ceil((padding / width - max_padding_share * count) / max(1e-9, 1 - max_padding_share))
    dissolved = int(min(max(0, surplus), padding // width))
    if dissolved:
        pieces, bins = _dissolve(pieces, bins, free, width, dissolved)
    return _plan(_filled_up(pieces, bins, width, random), width, width, random)


def cut_documents(lengths: Indices, chunks: Runs, width: int) -> Runs:
    """Return documents as runs of at most `width` tokens: cut at the last chunk border in the second half of what fits,
    else where it is full. `chunks`: those of every document, in order.
    """
    first = np.searchsorted(chunks.document, np.arange(lengths.size + 1))
    return Runs(*_cut(lengths, chunks.start, first, width))


def spans_of(plan: Plan, first: int, count: int) -> Spans:
    """Return where the tokens of sequences `first` to `first + count` come from."""
    begin = plan.order[first : first + count] * plan.stride
    first_run = np.searchsorted(plan.ends, begin, side="right")
    last_run = np.searchsorted(plan.ends, begin + plan.width - 1, side="right")
    number = last_run - first_run + 1
    sequence = np.repeat(np.arange(count), number)
    run = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number) + np.repeat(first_run, number)
    ends = np.asarray(plan.ends[run])
    run_begin = np.where(run > 0, plan.ends[run - 1], 0)
    left = np.maximum(run_begin, begin[sequence])
    right = np.minimum(ends, begin[sequence] + plan.width)
    return Spans(
        sequence=sequence + first,
        start=left - begin[sequence],
        document=np.asarray(plan.document[run]),
        document_start=plan.start[run] + left - run_begin,
        tokens=right - left,
    )


def _plan(laid: Runs, stride: int, width: int, random: np.random.Generator) -> Plan:
    ends = np.cumsum(laid.tokens)
    total = int(ends[-1]) if ends.size else 0
    sequences = (total - width) // stride + 1 if total >= width else 0
    return Plan(laid.document, laid.start, ends, random.permutation(sequences), stride, width)


def _filled_up(pieces: Runs, bins: Indices, width: int, random: np.random.Generator) -> Runs:
    """Return the pieces in the order of their bins, in random order within each, and padding after each bin."""
    free = width - np.bincount(bins, pieces.tokens).astype(np.int64)
    open_bins = np.flatnonzero(free)
    all_bins = np.concatenate([bins, open_bins])
    runs = Runs(
        np.concatenate([pieces.document, np.full(open_bins.size, PADDING)]),
        np.concatenate([pieces.start, np.zeros(open_bins.size, np.int64)]),
        np.concatenate([pieces.tokens, free[open_bins]]),
    )
    drawn = random.random(all_bins.size)
    drawn[bins.size :] = 1
    return runs.take(np.lexsort((drawn, all_bins)))


@compiled
def _fit(tokens: Indices, width: int) -> Indices:
    """Return the bin of each piece; pieces come longest first, and go where least room is left (best-fit decreasing)."""
    size = 1
    while size <= width:
        size *= 2
    there = np.zeros(2 * size, np.bool_)  # a tree over room: whether some bin has so much left
    newest = np.full(width + 1, -1, np.int64)  # of the bins with so much room
    older = np.full(tokens.size, -1, np.int64)
    bins = np.empty(tokens.size, np.int64)
    count = 0
    for piece in range(tokens.size):
        room = _least_room(there, size, tokens[piece])
        if room < 0:
            room, chosen = width, count
            count += 1
        else:
            chosen = newest[room]
            newest[room] = older[chosen]
            if newest[room] < 0:
                _mark(there, size, room, False)
        bins[piece] = chosen
        left = room - tokens[piece]
        if left:
            older[chosen] = newest[left]
            newest[left] = chosen
            _mark(there, size, left, True)
    return bins


@compiled
def _mark(there: npt.NDArray[np.bool_], size: int, room: int, present: bool) -> None:
    node = size + room
    there[node] = present
    while node > 1:
        node //= 2
        there[node] = there[2 * node] or there[2 * node + 1]


@compiled
def _least_room(there: npt.NDArray[np.bool_], size: int, tokens: int) -> int:
    """Return the least room of at least `tokens` that some bin has left, -1 if none has."""
    node = size + tokens
    if there[node]:
        return node - size
    while node > 1:
        if node % 2 == 0 and there[node + 1]:
            node += 1
            while node < size:
                node = 2 * node if there[2 * node] else 2 * node + 1
            return node - size
        node //= 2
    return -1


def _dissolve(pieces: Runs, bins: Indices, free: Indices, width: int, count: int) -> tuple[Runs, Indices]:
    """Cut the pieces of the `count` emptiest bins so that they fill the others, those with the most room first."""
    by_room = np.argsort(-free, kind="stable")
    rank = np.empty_like(by_room)
    rank[by_room] = np.arange(by_room.size)
    moving = rank[bins] < count
    document, start, tokens, target = _pour(
        pieces.document[moving], pieces.start[moving], pieces.tokens[moving], free[by_room[count:]], width
    )
    stays = Runs(pieces.document[~moving], pieces.start[~moving], pieces.tokens[~moving])
    together = Runs(
        np.concatenate([stays.document, document]),
        np.concatenate([stays.start, start]),
        np.concatenate([stays.tokens, tokens]),
    )
    return together, np.concatenate([rank[bins[~moving]] - count, target])


@compiled
def _pour(
    documents: Indices, starts: Indices, tokens: Indices, room: Indices, width: int
) -> tuple[Indices, Indices, Indices, Indices]:
    """Fill room after room with pieces, cut where one does not fit; what is left over opens new bins after the last."""
    out_document, out_start, out_tokens, out_bin = [0][:0], [0][:0], [0][:0], [0][:0]
    bin_, left = -1, 0
    for piece in range(tokens.size):
        start, count = starts[piece], tokens[piece]
        while count > 0:
            if left < 2:  # one place alone would repeat a token and bring nothing new
                bin_ += 1
                left = room[bin_] if bin_ < room.size else width
                continue
            taken = min(left, count)
            out_document.append(documents[piece])
            out_start.append(start)
            out_tokens.append(taken)
            out_bin.append(bin_)
            left -= taken
            if taken == count:
                break
            start += taken - 1
            count -= taken - 1
    return np.array(out_document), np.array(out_start), np.array(out_tokens), np.array(out_bin)


@compiled
def _cut(lengths: Indices, chunk_starts: Indices, first: Indices, width: int) -> tuple[Indices, Indices, Indices]:
    documents, starts, tokens = [0][:0], [0][:0], [0][:0]
    for document in range(lengths.size):
        begin, chunk = 0, first[document]
        while lengths[document] - begin > width:
            end = begin + width
            while chunk < first[document + 1] and chunk_starts[chunk] <= end:
                chunk += 1
            border = chunk_starts[chunk - 1] if chunk > first[document] else 0
            end = border if border > begin + width // 2 else end
            documents.append(document)
            starts.append(begin)
            tokens.append(end - begin)
            begin = end - 1
        if lengths[document]:
            documents.append(document)
            starts.append(begin)
            tokens.append(lengths[document] - begin)
    return np.array(documents), np.array(starts), np.array(tokens)
