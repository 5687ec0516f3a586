"""Shingles and MinHash signatures, compiled.

A shingle is n consecutive units; a unit is one character of a script without spaces (Han, kana, Hangul), or one word or
number of another. White space and punctuation are skipped, so layout does not matter. Against plain character 5-grams
this halves the candidate pairs, and Latin words no longer weigh by their length.

Signatures equal those of `datasketch.MinHash(scheme="affine32")` over the same 32-bit shingle hashes, bit for bit:
permutations and seed are datasketch's own.
"""

import numpy as np
import numpy.typing as npt
from datasketch import MinHash

from tasks.compiled import compiled

Signature = npt.NDArray[np.uint32]
Shingles = npt.NDArray[np.uint64]

SEED = 1
EMPTY = np.uint32(0xFFFFFFFF)


def permutations_of(count: int) -> npt.NDArray[np.uint32]:
    """Return datasketch's multipliers and offsets, shape (2, count)."""
    return np.ascontiguousarray(MinHash(num_perm=count, seed=SEED, scheme="affine32").permutations, dtype=np.uint32)


def shingle(text: str, units: int) -> Shingles:
    """Return the distinct 64-bit hashes of a text's shingles, sorted; empty when it has fewer than `units` units."""
    points = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype=np.uint32)
    hashes: Shingles = np.unique(_shingle_hashes(points, units))
    return hashes


def sign(shingles: Shingles, permutations: npt.NDArray[np.uint32]) -> Signature:
    """Return the MinHash signature, shape (permutations,), of distinct shingle hashes (their lower 32 bits)."""
    return _minima((shingles & np.uint64(0xFFFFFFFF)).astype(np.uint32), permutations[0], permutations[1])


@compiled
def jaccard(left: Shingles, right: Shingles) -> float:
    """Return the Jaccard similarity of two sorted sets of hashes, 0 for two empty ones."""
    i = j = both = 0
    while i < left.size and j < right.size:
        if left[i] == right[j]:
            both += 1
            i += 1
            j += 1
        elif left[i] < right[j]:
            i += 1
        else:
            j += 1
    union = left.size + right.size - both
    return both / union if union else 0.0


@compiled
def _mix64(value: np.uint64) -> np.uint64:
    """splitmix64's finalizer."""
    value ^= value >> np.uint64(30)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _stands_alone(point: int) -> bool:
    """Tell whether a character is a unit by itself: kana, Han, Hangul, and the rarer Han planes."""
    return (
        0x3041 <= point <= 0x30FF
        or 0x3400 <= point <= 0x4DBF
        or 0x4E00 <= point <= 0x9FFF
        or 0xAC00 <= point <= 0xD7A3
        or 0xF900 <= point <= 0xFAFF
        or 0x20000 <= point <= 0x3FFFF
    )


@compiled
def _in_word(point: int) -> bool:
    return (
        0x30 <= point <= 0x39
        or 0x41 <= point <= 0x5A
        or 0x61 <= point <= 0x7A
        or (0xC0 <= point <= 0x1FFF and point not in (0xD7, 0xF7))
    )


@compiled
def unit_hashes(points: npt.NDArray[np.uint32]) -> Shingles:
    """Return a 64-bit hash of each unit of a text, in order."""
    hashes = np.empty(points.size, np.uint64)
    count = 0
    word = np.uint64(0)
    for index in range(points.size):
        point = points[index]
        if _in_word(point):
            lower = point + 32 if 0x41 <= point <= 0x5A else point
            word = (word ^ np.uint64(lower)) * np.uint64(0x100000001B3) + np.uint64(1)
            continue
        if word:
            hashes[count] = _mix64(word)
            count += 1
            word = np.uint64(0)
        if _stands_alone(point):
            hashes[count] = _mix64(np.uint64(point))
            count += 1
    if word:
        hashes[count] = _mix64(word)
        count += 1
    return hashes[:count]


@compiled
def _shingle_hashes(points: npt.NDArray[np.uint32], units: int) -> Shingles:
    of_units = unit_hashes(points)
    if of_units.size < units:
        return np.empty(0, np.uint64)
    hashes = np.empty(of_units.size - units + 1, np.uint64)
    for first in range(hashes.size):
        value = np.uint64(0)
        for offset in range(units):
            value = _mix64(value * np.uint64(0x9E3779B97F4A7C15) + of_units[first + offset])
        hashes[first] = value
    return hashes


@compiled
def _minima(
    hashes: npt.NDArray[np.uint32], multipliers: npt.NDArray[np.uint32], offsets: npt.NDArray[np.uint32]
) -> Signature:
    """Permutations outermost: each keeps its two constants and its minimum in registers, and the loop vectorizes."""
    mixed = np.empty(hashes.size, np.uint32)
    for index in range(hashes.size):
        value = hashes[index]
        value ^= value >> np.uint32(16)
        value = np.uint32(value * np.uint32(0x85EBCA6B))
        value ^= value >> np.uint32(13)
        value = np.uint32(value * np.uint32(0xC2B2AE35))
        mixed[index] = value ^ (value >> np.uint32(16))
    signature = np.empty(multipliers.size, np.uint32)
    for permutation in range(multipliers.size):
        multiplier, offset = multipliers[permutation], offsets[permutation]
        least = EMPTY
        for index in range(mixed.size):
            least = min(least, np.uint32(np.uint32(multiplier * mixed[index]) + offset))
        signature[permutation] = least
    return signature
