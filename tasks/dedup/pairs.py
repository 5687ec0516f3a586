"""Which documents go: candidate pairs from LSH bands, verified exactly, resolved in one ordered pass.

A document goes if and only if an earlier document that was kept is similar enough (a star, not a connected component):
deleting whole components of unverified candidates removes documents that have no similar survivor.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from datasketch import MinHashLSH

from tasks.dedup.signatures import Shingles, jaccard

# Missing a duplicate costs more than verifying a false candidate, so recall weighs heavily: 16 bands of 8 rows for
# threshold 0.8 and 128 permutations find 99% of the pairs at 0.85.
FALSE_POSITIVE_WEIGHT, FALSE_NEGATIVE_WEIGHT = 0.05, 0.95

# A document is compared with at most this many of the earliest in a bucket, so that a template page that stands in the
# corpus a million times costs a million comparisons for each of the bands, not their square.
EARLIEST_IN_BUCKET = 50

KEPT = -1

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Decisions:
    """For each document, in order: the index of the kept document that it repeats (KEPT if it stays), and how similar."""

    duplicate_of: Indices
    similarity: npt.NDArray[np.float64]


def bands_and_rows(threshold: float, permutations: int) -> tuple[int, int]:
    """Return datasketch's optimal number of bands, and of rows in each, for a Jaccard threshold."""
    weights = (FALSE_POSITIVE_WEIGHT, FALSE_NEGATIVE_WEIGHT)
    lsh = MinHashLSH(threshold=threshold, num_perm=permutations, weights=weights)
    return lsh.b, lsh.r


def candidate_pairs(signatures: npt.NDArray[np.uint32], documents: Indices, bands: int, rows: int) -> Indices:
    """Return pairs (earlier, later) of documents that agree in at least one band, shape (pairs, 2), sorted by later.

    `signatures` has shape (n, permutations); `documents` gives the index, ascending, of the document behind each row.
    """
    found = [
        np.stack(pair, axis=1)
        for band in range(bands)
        for pair in _bucket_pairs(np.ascontiguousarray(signatures[:, band * rows : (band + 1) * rows]))
    ]
    if not found:
        return np.empty((0, 2), np.int64)
    pairs = np.unique(np.concatenate(found), axis=0)
    in_order: Indices = documents[pairs[np.lexsort((pairs[:, 0], pairs[:, 1]))]]
    return in_order


def resolve(
    exact_first: Indices, pairs: Indices, shingles_of: Callable[[int], Shingles], threshold: float
) -> Decisions:
    """Decide for every document in order.

    `exact_first`: for each document the first one with the same text (itself if it is the first). `pairs` as from
    `candidate_pairs`. `shingles_of` gives a document's sorted shingle hashes.
    """
    duplicate_of = np.full(exact_first.size, KEPT, np.int64)
    similarity = np.zeros(exact_first.size)
    starts = np.searchsorted(pairs[:, 1], np.arange(exact_first.size + 1))
    for document, first in enumerate(exact_first):
        if first != document:
            duplicate_of[document] = first if duplicate_of[first] == KEPT else duplicate_of[first]
            similarity[document] = 1.0 if duplicate_of[first] == KEPT else similarity[first]
            continue
        for earlier in pairs[starts[document] : starts[document + 1], 0]:
            if duplicate_of[earlier] != KEPT:
                continue
            similar = jaccard(shingles_of(earlier), shingles_of(document))
            if similar >= threshold:
                duplicate_of[document], similarity[document] = earlier, similar
                break
    return Decisions(duplicate_of, similarity)


def _bucket_pairs(band: npt.NDArray[np.uint32]) -> Iterator[tuple[Indices, Indices]]:
    """Yield arrays of (earlier, later) rows whose values in this band are equal."""
    keys = band.view(np.dtype((np.void, band.itemsize * band.shape[1]))).ravel()
    order = np.argsort(keys, kind="stable").astype(np.int64)
    same_as_previous = np.concatenate([[False], keys[order[1:]] == keys[order[:-1]]])
    place_in_bucket = np.arange(order.size) - np.maximum.accumulate(
        np.where(same_as_previous, 0, np.arange(order.size))
    )
    for distance in range(1, int(place_in_bucket.max(initial=0)) + 1):
        later = np.flatnonzero(place_in_bucket >= distance)
        if distance > EARLIEST_IN_BUCKET:
            break
        first = later - place_in_bucket[later]
        yield order[first + distance - 1], order[later]
