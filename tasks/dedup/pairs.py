"""Which documents are similar: candidates from bands, sorted out by their signatures, verified by their shingles.

Every pass is cut into units of bounded memory that read sorted runs from files and write their own. A pair is one uint64,
later document above earlier, so that sorting by number sorts by later document first.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from configs.schema import DedupConfig
from tasks.compiled import compiled
from tasks.dedup.corpus import JACCARD, SIGNATURES, Corpus, Numbers, Shard, load, load_corpus, save, work_file
from tasks.dedup.shingles import Offsets, Shingles, Texts, distinct_shingles, texts_of
from tasks.dedup.signatures import Signatures, agreement
from tasks.documents import read_table
from tasks.stage import UnitResult

Pairs = npt.NDArray[np.uint64]
SIMILAR = np.dtype([("later", "u4"), ("earlier", "u4"), ("similarity", "f8"), ("step", "u1")])
"""A pair that is similar, and which step said so; step 0 while its Jaccard similarity is still to be computed."""
UNSURE = 0

# Signatures that agree to so much more than the threshold settle a pair; so much less, and it is dropped. Between them
# lie, at 128 permutations, one and a half and three standard errors.
SURE_ABOVE, DROPPED_BELOW = 0.05, 0.1
# The report says what thresholds so much lower and higher would remove.
REPORTED_BESIDE = 0.1
# Beyond the limit, a bucket's later documents are compared with so many of its first, and so many just before them.
NEIGHBOURS = 4

RANGE_DOCUMENTS, MOST_RANGES = 65_536, 64


@dataclass(frozen=True)
class BandRange:
    """One unit of candidates: a band, and which part of the range of its keys."""

    band: int
    part: int
    parts: int
    config: DedupConfig


@dataclass(frozen=True)
class NumberedShard:
    """One unit of a pass over shards. `shard`: its place among all."""

    shard: int
    config: DedupConfig


def parts_of(count: int) -> int:
    """Return into how many ranges so many documents or paragraphs are cut."""
    return min(MOST_RANGES, 1 + count // RANGE_DOCUMENTS)


def in_range(sorted_keys: npt.NDArray[np.uint64], part: int, parts: int) -> slice:
    """Return the slice of sorted 64-bit keys that lies in one of equal parts of their range."""
    width = 2**64 // parts
    first = int(np.searchsorted(sorted_keys, np.uint64(part * width)))
    last = sorted_keys.size if part == parts - 1 else int(np.searchsorted(sorted_keys, np.uint64((part + 1) * width)))
    return slice(first, last)


def find_candidates(task: BandRange, folder: Path) -> UnitResult:
    """Write the pairs that agree in a band, for keys in one range: sorted, each once."""
    corpus = load_corpus(folder)
    first_copy = load(work_file(folder, "first_copy"))
    keys, documents = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)]
    for shard in corpus.shards:
        run = shard.array(folder, "band_keys")[task.band]
        inside = in_range(run, task.part, task.parts)
        numbers = shard.array(folder, "band_documents")[task.band, inside] + np.uint32(shard.first)
        original = first_copy[numbers] == numbers
        keys.append(run[inside][original])
        documents.append(numbers[original])
    key, document = np.concatenate(keys), np.concatenate(documents)
    order = np.argsort(key, kind="stable")
    limit = task.config.bucket_limit
    pairs, hot, hot_documents = pairs_of_buckets(key[order], document[order], np.uint32(corpus.first_new), limit)
    files = save(folder, {work_file(folder, "candidates", task.band, task.part): np.sort(pairs)})
    return files, Counter(hot_buckets=hot, documents_in_hot_buckets=hot_documents)


@compiled
def pairs_of_buckets(
    keys: npt.NDArray[np.uint64], documents: Numbers, first_new: np.uint32, limit: int
) -> tuple[Pairs, int, int]:
    """Return the pairs of documents with equal keys whose later one is new, how many buckets are hot, and their documents.

    `keys` are sorted; documents ascend in each bucket. Which pairs a document gets depends on those before it alone, so
    that documents added later change nothing.
    """
    count = hot = hot_documents = 0
    pairs = np.empty(0, np.uint64)
    for fill in (False, True):
        if fill:
            pairs = np.empty(count, np.uint64)
        count, begin = 0, 0
        for index in range(keys.size):
            if keys[index] != keys[begin]:
                begin = index
            place = index - begin
            if not fill and place >= limit:
                hot += place == limit
                hot_documents += limit + 1 if place == limit else 1
            if documents[index] < first_new:
                continue
            partners = place if place < limit else 2 * NEIGHBOURS
            for partner in range(partners if fill else 0):
                first = begin if place < limit or partner < NEIGHBOURS else index - partners
                later, earlier = np.uint64(documents[index]), np.uint64(documents[first + partner])
                pairs[count + partner] = later << np.uint64(32) | earlier
            count += partners
    return pairs, hot, hot_documents


def estimate_pairs(task: NumberedShard, folder: Path) -> UnitResult:
    """Write the candidates of one shard's documents: `SIMILAR` where the signatures settle it, and those still unsure."""
    corpus = load_corpus(folder)
    shard = corpus.shards[task.shard]
    pairs = _candidates_of(shard, folder)
    similar = np.zeros(pairs.size, SIMILAR)
    similar["later"], similar["earlier"] = pairs >> np.uint64(32), pairs & np.uint64(0xFFFFFFFF)
    if task.config.verify == "signatures":
        similar["similarity"] = _compare(
            corpus, task.shard, similar, lambda place: corpus.shards[place].array(folder, "signatures"), agreements
        )
        threshold = task.config.threshold
        similar["step"][similar["similarity"] >= threshold + SURE_ABOVE] = SIGNATURES
        similar = similar[similar["similarity"] >= threshold - DROPPED_BELOW]
    unsure = int(np.count_nonzero(similar["step"] == UNSURE))
    counts = Counter(candidate_pairs=pairs.size, pairs_compared_exactly=unsure)
    return save(folder, {work_file(folder, "estimated", task.shard): similar}), counts


def list_unsure(_: None, folder: Path) -> UnitResult:
    """Write for each document whether its shingles are needed."""
    corpus = load_corpus(folder)
    needed = np.zeros(corpus.count, np.bool_)
    for place, shard in enumerate(corpus.shards):
        if shard.is_new:
            similar = load(work_file(folder, "estimated", place))
            unsure = similar[similar["step"] == UNSURE]
            needed[unsure["later"]] = needed[unsure["earlier"]] = True
    return save(folder, {work_file(folder, "needed"): needed}), Counter()


def shingle_shard(task: NumberedShard, folder: Path) -> UnitResult:
    """Write the distinct shingles of one shard's documents of unsure pairs, and where each document's end."""
    shard = load_corpus(folder).shards[task.shard]
    needed = np.flatnonzero(load(work_file(folder, "needed"))[shard.first : shard.end])
    hashes, ends = np.empty(0, np.uint64), np.zeros(shard.count, np.int64)
    if needed.size:
        texts = texts_of(read_table(Path(shard.documents), ["text"])["text"].take(needed))
        hashes, sizes = shingles_of(texts, task.config.shingle_kind == "mixed", task.config.shingle_units)
        ends[needed] = sizes
    arrays = {
        work_file(folder, "shingles", task.shard): hashes,
        work_file(folder, "shingle_ends", task.shard): np.cumsum(ends),
    }
    return save(folder, arrays), Counter()


def verify_pairs(task: NumberedShard, folder: Path) -> UnitResult:
    """Write `SIMILAR` of one shard's documents, those below the threshold included as far as the report needs them."""
    corpus = load_corpus(folder)
    similar = np.array(load(work_file(folder, "estimated", task.shard)))
    unsure = similar["step"] == UNSURE

    def shingles(place: int) -> tuple[Shingles, Offsets]:
        return load(work_file(folder, "shingles", place)), load(work_file(folder, "shingle_ends", place))

    similar["similarity"][unsure] = _compare(corpus, task.shard, similar[unsure], shingles, jaccards)
    similar["step"][unsure] = JACCARD
    similar = similar[similar["similarity"] >= task.config.threshold - REPORTED_BESIDE]
    return save(folder, {work_file(folder, "similar", task.shard): similar}), Counter(similar_pairs=similar.size)


@compiled
def shingles_of(texts: Texts, mixed: bool, units: int) -> tuple[Shingles, Offsets]:
    """Return the distinct shingles of texts one after another, and how many each has."""
    hashes = np.empty(texts.data.size, np.uint64)
    sizes = np.empty(texts.offsets.size - 1, np.int64)
    end = 0
    for index in range(sizes.size):
        found = distinct_shingles(texts.data[texts.offsets[index] : texts.offsets[index + 1]], mixed, units)
        hashes[end : end + found.size] = found
        end += found.size
        sizes[index] = found.size
    return hashes[:end], sizes


@compiled
def agreements(left: Signatures, left_rows: Offsets, right: Signatures, right_rows: Offsets) -> npt.NDArray[np.float64]:
    """Return the estimated similarity of each pair of rows of signatures."""
    shares = np.empty(left_rows.size, np.float64)
    for index in range(left_rows.size):
        shares[index] = agreement(left[left_rows[index]], right[right_rows[index]])
    return shares


@compiled
def jaccards(
    left: tuple[Shingles, Offsets], left_rows: Offsets, right: tuple[Shingles, Offsets], right_rows: Offsets
) -> npt.NDArray[np.float64]:
    """Return the Jaccard similarity of each pair of documents of two shards."""
    similarity = np.empty(left_rows.size, np.float64)
    for index in range(left_rows.size):
        similarity[index] = jaccard(_row(left, left_rows[index]), _row(right, right_rows[index]))
    return similarity


@compiled
def jaccard(left: Shingles, right: Shingles) -> float:
    """Return the Jaccard similarity of two sorted sets of hashes, 0 for two empty ones."""
    i = j = both = 0
    while i < left.size and j < right.size:
        here, there = left[i], right[j]
        both += here == there
        i += here <= there
        j += there <= here
    union = left.size + right.size - both
    return both / union if union else 0.0


@compiled
def _row(shard: tuple[Shingles, Offsets], row: int) -> Shingles:
    hashes, ends = shard
    return hashes[(ends[row - 1] if row else 0) : ends[row]]


def _candidates_of(shard: Shard, folder: Path) -> Pairs:
    """Return the candidate pairs of all bands whose later document is in the shard, sorted."""
    found = [np.empty(0, np.uint64)]
    for path in sorted((folder / "work").glob("candidates-*.npy")):
        pairs = load(path)
        first, last = np.searchsorted(pairs, [np.uint64(shard.first << 32), np.uint64(shard.end << 32)])
        found.append(np.array(pairs[first:last]))  # copied, so that the file is not kept mapped
    return np.unique(np.concatenate(found))


def _compare(
    corpus: Corpus,
    shard: int,
    pairs: npt.NDArray[np.void],
    load_shard: Callable[[int], Any],
    compare: Callable[[Any, Offsets, Any, Offsets], npt.NDArray[np.float64]],
) -> npt.NDArray[np.float64]:
    """Return the similarity of pairs whose later document is in `shard`, going through the shards of the earlier ones."""
    similarity = np.empty(len(pairs), np.float64)
    own = load_shard(shard)
    for place, chosen in _by_value(corpus.shard_of(pairs["earlier"])):
        own_rows = pairs["later"][chosen].astype(np.int64) - corpus.shards[shard].first
        rows = pairs["earlier"][chosen].astype(np.int64) - corpus.shards[place].first
        similarity[chosen] = compare(own, own_rows, load_shard(place), rows)
    return similarity


def _by_value(values: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each distinct value with the places where it stands."""
    order = np.argsort(values, kind="stable")
    distinct, starts = np.unique(values[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(order, starts[1:]), strict=False)
