"""MinHash signatures, compiled, equal bit for bit to `datasketch.MinHash`'s over the same shingle hashes.

Permutations, seed and mixing are datasketch's own: scheme `affine32` over the lower 32 bits of the shingle hashes,
`affine64` over all 64. Repeated shingles need no removal before, for they do not change a minimum.
"""

from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from datasketch import MinHash, MinHashLSH

from tasks.compiled import compiled
from tasks.dedup.shingles import Shingles, Texts, decode, mix64, shingle_hashes

Scheme = Literal["affine32", "affine64"]
Signatures = npt.NDArray[Any]
"""Minimum of each permutation, shape (documents, permutations), uint32 or uint64 by the scheme."""
Permutations = npt.NDArray[Any]
"""Multipliers and offsets, shape (2, permutations), of the scheme's width."""

SEED = 1
# So many shingles and their minima fit the fastest cache; each permutation goes over them before the next block comes.
BLOCK = 2048
# Missing a duplicate costs more than verifying a false candidate, so recall weighs heavily: 16 bands of 8 rows for
# threshold 0.8 and 128 permutations find 99% of the pairs at 0.85.
FALSE_POSITIVE_WEIGHT, FALSE_NEGATIVE_WEIGHT = 0.05, 0.95


def permutations_of(count: int, scheme: Scheme = "affine32", seed: int = SEED) -> Permutations:
    """Return datasketch's multipliers and offsets, shape (2, count)."""
    width = np.uint32 if scheme == "affine32" else np.uint64
    return np.ascontiguousarray(MinHash(num_perm=count, seed=seed, scheme=scheme).permutations, dtype=width)


@cache
def bands_and_rows(threshold: float, permutations: int) -> tuple[int, int]:
    """Return datasketch's optimal number of bands, and of rows in each, for a Jaccard threshold."""
    weights = (FALSE_POSITIVE_WEIGHT, FALSE_NEGATIVE_WEIGHT)
    lsh = MinHashLSH(threshold=threshold, num_perm=permutations, weights=weights)
    return lsh.b, lsh.r


@compiled
def sign(hashes: Shingles, permutations: Permutations, signature: npt.NDArray[Any]) -> None:
    """Lower each value of `signature`, shape (permutations,), to the minimum over the shingle hashes.

    Permutations are the outer loop: each keeps its two constants and its minimum in registers, and the inner loop
    becomes vector instructions.
    """
    width = permutations.dtype.type  # numba widens a product of two uint32: put back into the width, it wraps
    mixed = np.empty(BLOCK, permutations.dtype)
    for start in range(0, hashes.size, BLOCK):
        size = min(BLOCK, hashes.size - start)
        _mix(hashes[start : start + size], mixed)
        for permutation in range(signature.size):
            multiplier, offset = permutations[0, permutation], permutations[1, permutation]
            least = signature[permutation]
            for index in range(size):
                least = min(least, width(width(multiplier * mixed[index]) + offset))
            signature[permutation] = least


@compiled
def sign_texts(texts: Texts, mixed: bool, units: int, permutations: Permutations) -> tuple[Signatures, Shingles]:
    """Return the signatures of texts, and the number of shingles (with repetitions) of each."""
    count = texts.offsets.size - 1
    signatures = np.full((count, permutations.shape[1]), -1).astype(permutations.dtype)
    shingles = np.empty(count, np.uint64)
    for index in range(count):
        hashes = shingle_hashes(decode(texts.data[texts.offsets[index] : texts.offsets[index + 1]]), mixed, units)
        shingles[index] = hashes.size
        sign(hashes, permutations, signatures[index])
    return signatures, shingles


@compiled
def _mix(hashes: Shingles, mixed: npt.NDArray[Any]) -> None:
    """MurmurHash3's finalizers, of 32 bits or of 64, by which datasketch spreads hashes before it permutes them."""
    if mixed.itemsize == 4:
        for index in range(hashes.size):
            value = np.uint32(hashes[index])
            value ^= value >> np.uint32(16)
            value = np.uint32(value * np.uint32(0x85EBCA6B))
            value ^= value >> np.uint32(13)
            value = np.uint32(value * np.uint32(0xC2B2AE35))
            mixed[index] = value ^ (value >> np.uint32(16))
    else:
        for index in range(hashes.size):
            wide = hashes[index]
            wide ^= wide >> np.uint64(33)
            wide *= np.uint64(0xFF51AFD7ED558CCD)
            wide ^= wide >> np.uint64(33)
            wide *= np.uint64(0xC4CEB9FE1A85EC53)
            mixed[index] = wide ^ (wide >> np.uint64(33))


@compiled
def band_keys(signatures: Signatures, bands: int, rows: int) -> Shingles:
    """Return a 64-bit hash of each band of each signature, shape (bands, documents)."""
    keys = np.empty((bands, signatures.shape[0]), np.uint64)
    for document in range(signatures.shape[0]):
        for band in range(bands):
            key = np.uint64(band)
            for row in range(band * rows, (band + 1) * rows):
                key = mix64(key ^ np.uint64(signatures[document, row])) + np.uint64(row)
            keys[band, document] = key
    return keys


@compiled
def agreement(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """Return the share of permutations in which two signatures agree: an estimate of the Jaccard similarity."""
    same = 0
    for index in range(left.size):
        same += left[index] == right[index]
    return same / left.size
