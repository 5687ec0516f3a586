"""Texts to shingles, compiled, over the UTF-8 bytes as they lie in an Arrow column: no Python object a document.

A shingle is n consecutive units. In `mixed` shingles a unit is one character of a script without spaces (Han, kana,
Hangul) or one word or number of another; white space and punctuation are skipped, so layout does not matter. Against
character 5-grams this halves the candidate pairs, and Latin words no longer weigh by their length. In `char` shingles a
unit is any character, with white space folded. A shingle's hash is a polynomial over the hashes of its units, so the next
one costs two multiplications, whatever n is.
"""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.code_points import SPACE, CodePoints
from tasks.compiled import compiled

Shingles = npt.NDArray[np.uint64]
"""Hashes of shingles, shape (shingles,)."""
ShingleKind = Literal["mixed", "char"]
Utf8 = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

BASE = np.uint64(0x9E3779B97F4A7C15)


class Texts(NamedTuple):
    """Texts as Arrow holds them: their UTF-8 bytes one after another, and where each begins (and the last one ends)."""

    data: Utf8
    offsets: Offsets


def texts_of(column: pa.ChunkedArray) -> Texts:
    """Return a column of strings without nulls as bytes and offsets, without copying where it is one chunk."""
    array = column.cast(pa.large_string()).combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # no chunk at all, or more than one
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.large_string())
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return Texts(np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), places)


def shingle(text: str, kind: ShingleKind, units: int) -> Shingles:
    """Return the distinct hashes of a text's shingles, sorted; empty when it has fewer than `units` units."""
    return distinct_shingles(np.frombuffer(text.encode(), np.uint8), kind == "mixed", units)


@compiled
def distinct_shingles(data: Utf8, mixed: bool, units: int) -> Shingles:
    """Return the distinct hashes of the shingles of one text in UTF-8, sorted."""
    hashes = shingle_hashes(decode(data), mixed, units)
    hashes.sort()
    count = 0
    for index in range(hashes.size):
        if index == 0 or hashes[index] != hashes[count - 1]:
            hashes[count] = hashes[index]
            count += 1
    return hashes[:count]


@compiled
def decode(data: Utf8) -> CodePoints:
    """Return the code points of valid UTF-8."""
    points = np.empty(data.size, np.uint32)
    count, place = 0, 0
    while place < data.size:
        byte = np.uint32(data[place])
        if byte < 0x80:
            points[count] = byte
            place += 1
        elif byte < 0xE0:
            points[count] = (byte & np.uint32(0x1F)) << np.uint32(6) | (np.uint32(data[place + 1]) & np.uint32(0x3F))
            place += 2
        elif byte < 0xF0:
            points[count] = (
                (byte & np.uint32(0x0F)) << np.uint32(12)
                | (np.uint32(data[place + 1]) & np.uint32(0x3F)) << np.uint32(6)
                | (np.uint32(data[place + 2]) & np.uint32(0x3F))
            )
            place += 3
        else:
            points[count] = (
                (byte & np.uint32(0x07)) << np.uint32(18)
                | (np.uint32(data[place + 1]) & np.uint32(0x3F)) << np.uint32(12)
                | (np.uint32(data[place + 2]) & np.uint32(0x3F)) << np.uint32(6)
                | (np.uint32(data[place + 3]) & np.uint32(0x3F))
            )
            place += 4
        count += 1
    return points[:count]


@compiled
def shingle_hashes(points: CodePoints, mixed: bool, units: int) -> Shingles:
    """Return the hash of each shingle of a text, in order and with repetitions."""
    hashes = unit_hashes(points) if mixed else _character_units(points)
    if hashes.size < units:
        return hashes[:0]
    leaving = np.uint64(1)
    for _ in range(units):
        leaving *= BASE
    rolling = np.empty(hashes.size - units + 1, np.uint64)
    value = np.uint64(0)
    for index in range(units):
        value = value * BASE + hashes[index]
    rolling[0] = value
    for index in range(1, rolling.size):
        value = value * BASE + hashes[index + units - 1] - hashes[index - 1] * leaving
        rolling[index] = value
    return rolling


@compiled
def mix64(value: np.uint64) -> np.uint64:
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
        0x4E00 <= point <= 0x9FFF
        or 0x3041 <= point <= 0x30FF
        or 0x3400 <= point <= 0x4DBF
        or 0xAC00 <= point <= 0xD7A3
        or 0xF900 <= point <= 0xFAFF
        or 0x20000 <= point <= 0x3FFFF
    )


@compiled
def _in_word(point: int) -> bool:
    return (
        0x61 <= point <= 0x7A
        or 0x30 <= point <= 0x39
        or 0x41 <= point <= 0x5A
        or (0xC0 <= point <= 0x1FFF and point not in (0xD7, 0xF7))
    )


@compiled
def is_space(point: int) -> bool:
    """Tell whether Python's `str.isspace` holds."""
    return (
        point == SPACE
        or 0x09 <= point <= 0x0D
        or 0x1C <= point <= 0x1F
        or point in (0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
        or 0x2000 <= point <= 0x200A
    )


@compiled
def unit_hashes(points: CodePoints) -> Shingles:
    """Return a hash of each unit of a text, in order."""
    hashes = np.empty(points.size, np.uint64)
    count = 0
    word = np.uint64(0)
    for index in range(points.size):
        point = points[index]
        if point < 0x3041:
            if _in_word(point):
                lower = point + 32 if 0x41 <= point <= 0x5A else point
                word = (word ^ np.uint64(lower)) * np.uint64(0x100000001B3) + np.uint64(1)
                continue
            alone = False
        else:
            alone = _stands_alone(point)
        if word:
            hashes[count] = mix64(word)
            count += 1
            word = np.uint64(0)
        if alone:
            hashes[count] = mix64(np.uint64(point))
            count += 1
    if word:
        hashes[count] = mix64(word)
        count += 1
    return hashes[:count]


@compiled
def _character_units(points: CodePoints) -> Shingles:
    """Return a hash of each character, with white space folded."""
    hashes = np.empty(points.size, np.uint64)
    count = 0
    gap = False
    for index in range(points.size):
        point = points[index]
        if is_space(point):
            gap = True
            continue
        if gap and count:
            hashes[count] = mix64(np.uint64(SPACE))
            count += 1
        gap = False
        hashes[count] = mix64(np.uint64(point))
        count += 1
    return hashes[:count]
