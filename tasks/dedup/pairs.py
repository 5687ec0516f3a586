"""Which documents are similar: candidates from bands, sorted out by their signatures, verified by their shingles.

Every pass is cut into units of bounded memory that read sorted runs from files and write their own. A pair is one uint64,
later document above earlier, so that sorting by number sorts by later document first.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from configs.schema import DedupConfig
from tasks.compiled import compiled
from tasks.dedup.corpus import JACCARD, SIGNATURES, Corpus, Numbers, load, load_corpus, save, work_file, work_files
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

# Every unit opens the files of all shards, so there are never more than so many units in a pass over pairs.
RANGE_DOCUMENTS, MOST_RANGES = 250_000, 64


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


@dataclass(frozen=True)
class ComparedShards:
    """One unit of a pass over pairs: whose later documents lie in some consecutive shards. `number`: of the unit."""

    number: int
    shards: range
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


def comparisons(corpus: Corpus, config: DedupConfig) -> list[ComparedShards]:
    """Return the units of a pass over pairs."""
    places = range(len(corpus.shards) - len(corpus.new), len(corpus.shards))
    units = min(MOST_RANGES, len(places))
    cuts = [len(places) * unit // units for unit in range(units + 1)] if units else [0]
    return [ComparedShards(unit, places[start:end], config) for unit, (start, end) in enumerate(pairwise(cuts))]


def estimate_pairs(task: ComparedShards, folder: Path) -> UnitResult:
    """Write the candidates of some documents: `SIMILAR` where the signatures settle it, and those still unsure."""
    corpus = load_corpus(folder)
    pairs = _candidates_of(corpus.shards[task.shards[0]].first, corpus.shards[task.shards[-1]].end, folder)
    similar = np.zeros(pairs.size, SIMILAR)
    similar["later"], similar["earlier"] = pairs >> np.uint64(32), pairs & np.uint64(0xFFFFFFFF)
    if task.config.verify == "signatures":
        similar["similarity"] = _compare(
            corpus, task.shards, similar, lambda place: corpus.shards[place].array(folder, "signatures"), agreements
        )
        threshold = task.config.threshold
        similar["step"][similar["similarity"] >= threshold + SURE_ABOVE] = SIGNATURES
        similar = similar[similar["similarity"] >= threshold - DROPPED_BELOW]
    unsure = int(np.count_nonzero(similar["step"] == UNSURE))
    counts = Counter(candidate_pairs=pairs.size, pairs_compared_exactly=unsure)
    return save(folder, {work_file(folder, "estimated", task.number): similar}), counts


def list_unsure(_: None, folder: Path) -> UnitResult:
    """Write for each document whether its shingles are needed."""
    corpus = load_corpus(folder)
    needed = np.zeros(corpus.count, np.bool_)
    for path in work_files(folder, "estimated"):
        similar = load(path)
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


def verify_pairs(task: ComparedShards, folder: Path) -> UnitResult:
    """Write `SIMILAR` of some documents, those below the threshold included as far as the report needs them."""
    corpus = load_corpus(folder)
    similar = np.array(load(work_file(folder, "estimated", task.number)))
    unsure = similar["step"] == UNSURE

    def shingles(place: int) -> tuple[Shingles, Offsets]:
        return load(work_file(folder, "shingles", place)), load(work_file(folder, "shingle_ends", place))

    similar["similarity"][unsure] = _compare(corpus, task.shards, similar[unsure], shingles, jaccards)
    similar["step"][unsure] = JACCARD
    similar = similar[similar["similarity"] >= task.config.threshold - REPORTED_BESIDE]
    return save(folder, {work_file(folder, "similar", task.number): similar}), Counter(similar_pairs=similar.size)


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


def _candidates_of(first: int, end: int, folder: Path) -> Pairs:
    """Return the candidate pairs of all bands whose later document lies from `first` to before `end`, sorted."""
    bounds = np.array([first << 32, end << 32], np.uint64)
    found = [np.empty(0, np.uint64)]
    for path in work_files(folder, "candidates"):
        pairs = load(path)
        found.append(
            np.array(pairs[slice(*np.searchsorted(pairs, bounds))])
        )  # copied, so as not to keep the file mapped
    return np.unique(np.concatenate(found))


def _compare(
    corpus: Corpus,
    shards: range,
    pairs: npt.NDArray[np.void],
    load_shard: Callable[[int], Any],
    compare: Callable[[Any, Offsets, Any, Offsets], npt.NDArray[np.float64]],
) -> npt.NDArray[np.float64]:
    """Return the similarity of pairs whose later documents are in `shards`; the shards of the earlier ones pass by once."""
    similarity = np.empty(len(pairs), np.float64)
    own = {place: load_shard(place) for place in shards}
    own_places = corpus.shard_of(pairs["later"])
    for place, chosen in _by_value(corpus.shard_of(pairs["earlier"])):
        there = load_shard(place)
        for own_place, inside in _by_value(own_places[chosen]):
            these = chosen[inside]
            own_rows = pairs["later"][these].astype(np.int64) - corpus.shards[own_place].first
            rows = pairs["earlier"][these].astype(np.int64) - corpus.shards[place].first
            similarity[these] = compare(own[own_place], own_rows, there, rows)
    return similarity


def _by_value(values: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each distinct value with the places where it stands."""
    order = np.argsort(values, kind="stable")
    distinct, starts = np.unique(values[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(order, starts[1:]), strict=False)
