"""Every token has its place, every token but a document's first is a label once, and padding stays under its share."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.pack.plan import (
    PADDING,
    Plan,
    Runs,
    best_fit,
    concat,
    copies_by_weight,
    cut_documents,
    spans_of,
    whole_documents,
)

LENGTHS = st.lists(st.integers(2, 40), min_size=1, max_size=40)
WIDTHS = st.integers(4, 14)
Token = tuple[int, int]


def rows_of(plan: Plan) -> list[list[Token]]:
    """Return each sequence as (document, place in it); padding as (PADDING, 0)."""
    rows: list[list[Token]] = [[(PADDING, 0)] * plan.width for _ in range(plan.order.size)]
    spans = spans_of(plan, 0, plan.order.size)
    for row, start, document, first, count in zip(
        spans.sequence, spans.start, spans.document, spans.document_start, spans.tokens, strict=True
    ):
        if document != PADDING:
            for token in range(count):
                rows[row][start + token] = (int(document), int(first + token))
    return rows


def labels_in_context(rows: list[list[Token]]) -> Counter[Token]:
    """Return the tokens that are predicted from the token before them in their document."""
    return Counter(
        label
        for row in rows
        for before, label in pairwise(row)
        if label[0] != PADDING and before == (label[0], label[1] - 1)
    )


def units(lengths: list[int]) -> Runs:
    return whole_documents(np.array(lengths), np.ones(len(lengths), np.int64))


def as_chunks(lengths: list[int], size: int) -> Runs:
    """Return the documents cut into chunks of `size` tokens."""
    pieces = [(d, s, min(size, length - s)) for d, length in enumerate(lengths) for s in range(0, length, size)]
    return Runs(*(np.array(column) for column in zip(*pieces, strict=True)))


@given(LENGTHS, WIDTHS, st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_concat_drops_a_tail_alone_and_makes_every_other_token_a_label_once(
    lengths: list[int], width: int, seed: int
) -> None:
    plan = concat(units(lengths), width, np.random.default_rng(seed))
    rows = rows_of(plan)
    assert plan.covered + plan.dropped == sum(lengths)
    assert 0 <= plan.dropped < width
    labels = Counter(token for row in rows for token in row[1:])
    assert set(labels.values()) <= {1}
    assert labels.total() == max(0, plan.covered - 1)
    by_place = sorted(range(len(rows)), key=lambda k: plan.order[k])
    assert all(rows[a][-1] == rows[b][0] for a, b in pairwise(by_place))


@given(LENGTHS, WIDTHS, st.floats(0, 0.5), st.integers(1, 20))
@settings(max_examples=300, deadline=None)  # the first example compiles
def test_best_fit_keeps_every_token_and_every_label_and_little_padding(
    lengths: list[int], width: int, share: float, size: int
) -> None:
    pieces = cut_documents(np.array(lengths), as_chunks(lengths, size), width)
    plan = best_fit(pieces, width, share, np.random.default_rng(1))
    rows = rows_of(plan)
    everything = {(d, t) for d, length in enumerate(lengths) for t in range(length)}
    assert {token for row in rows for token in row} - {(PADDING, 0)} == everything
    labels = labels_in_context(rows)
    assert set(labels) == {token for token in everything if token[1]}
    # Twice only where a piece happens to lie after the end of the one that it goes on from.
    assert labels.total() - len(labels) <= 2
    padding = sum(row.count((PADDING, 0)) for row in rows)
    # The last sequences may stay open: what is left over opens one, and a single free place is not worth a cut.
    assert padding <= share * len(rows) * width + 2 * width + len(rows)
    assert all(row[0] != (PADDING, 0) for row in rows)
    assert plan.dropped == 0


@given(st.lists(st.integers(2, 14), min_size=1, max_size=40))
@settings(deadline=None)
def test_best_fit_that_may_pad_freely_cuts_no_document_that_fits(lengths: list[int]) -> None:
    pieces = cut_documents(np.array(lengths), as_chunks(lengths, 5), 14)
    assert pieces.tokens.tolist() == lengths
    plan = best_fit(pieces, 14, 1.0, np.random.default_rng(0))
    assert sorted(np.diff(plan.ends, prepend=0)[plan.document != PADDING].tolist()) == sorted(lengths)


def test_best_fit_needs_no_more_sequences_than_it_must() -> None:
    """Of 7, 6, 5, 4, 3, 3, 2 (30 in all) with room for 10, three suffice: 7+3, 6+4, 5+3+2."""
    lengths = [7, 6, 5, 4, 3, 3, 2]
    plan = best_fit(units(lengths), 10, 0.0, np.random.default_rng(0))
    assert plan.order.size == 3
    assert not (plan.document == PADDING).any()


def test_a_long_document_is_cut_at_the_last_chunk_border_that_leaves_half() -> None:
    """Width 10, chunks at 0, 4, 8, 12, 16: cut at 8, the piece from 7 on at 16, and four of 19 tokens are left."""
    pieces = cut_documents(np.array([19]), as_chunks([19], 4), 10)
    assert list(zip(pieces.start.tolist(), pieces.tokens.tolist(), strict=True)) == [(0, 8), (7, 9), (15, 4)]
    whole = cut_documents(np.array([17]), as_chunks([17], 100), 10)
    assert list(zip(whole.start.tolist(), whole.tokens.tolist(), strict=True)) == [(0, 10), (9, 8)]


def test_a_seed_decides_the_order() -> None:
    lengths = list(range(2, 60))
    first, again, other = (rows_of(concat(units(lengths), 8, np.random.default_rng(seed))) for seed in (1, 1, 2))
    assert first == again != other


def test_parts_of_a_long_document_are_spread_over_the_dataset() -> None:
    plan = concat(units([1000, *[20] * 50]), 11, np.random.default_rng(0))
    own = [k for k, row in enumerate(rows_of(plan)) if all(document == 0 for document, _ in row)]
    assert max(np.diff(own)) > 1
    assert np.mean(np.diff(own) == 1) < 0.8


def test_chunks_in_random_order_part_the_chunks_of_a_document() -> None:
    lengths = [40, 40, 40]
    plan = concat(as_chunks(lengths, 10), 11, np.random.default_rng(3))
    documents = plan.document.tolist()
    assert sorted(documents) == [0] * 4 + [1] * 4 + [2] * 4
    assert documents != sorted(documents)
    assert labels_in_context(rows_of(plan)).total() < sum(lengths) - 3


def test_the_fraction_of_a_weight_is_the_share_of_documents_that_come_once_more() -> None:
    assert abs(copies_by_weight(np.full(1000, 2.5), 3).sum() - 2500) < 50
    assert set(copies_by_weight(np.full(1000, 2.5), 3).tolist()) == {2, 3}
    assert copies_by_weight(np.ones(10), 3).tolist() == [1] * 10


def test_documents_without_tokens_have_no_run() -> None:
    runs = whole_documents(np.array([3, 0, 2]), np.array([2, 5, 1]))
    assert runs.document.tolist() == [0, 0, 2]
