"""Texts with white space folded, and their paragraphs: what is compared exactly.

A repeated paragraph is a licence note, a reader's note, a passage that was copied; an edge is the first or the
last block of a document, where the header or footer of its source stands, mostly short. Code, tables and headings are never
among them, nor entries of lists, which would be missed between their neighbours.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from tasks.blocks import PARAGRAPH, scan_blocks
from tasks.code_points import SPACE, CodePoints
from tasks.compiled import compiled
from tasks.dedup.shingles import Offsets, Texts, Utf8, decode, is_space

PARAGRAPHS = np.dtype([("hash", "u8"), ("document", "u4"), ("start", "u4"), ("end", "u4")])
"""One paragraph: hash of its folded text (the lowest bit is 1 for a short edge), document, first and last byte in it,
with the blank lines that follow."""
Paragraphs = npt.NDArray[np.void]

# Bytes with which no white space begins.
NEVER_SPACE = np.array([not (byte <= SPACE or 0xC2 <= byte <= 0xE3) for byte in range(256)])
Spans = npt.NDArray[np.int64]
"""Paragraphs as document, start and end in its bytes, and 1 for a short edge or else 0; shape (paragraphs, 4)."""


class Folded(NamedTuple):
    """Folded texts in UTF-8, one after another, and where each begins (and the last one ends)."""

    data: Utf8
    offsets: Offsets


def hash_texts(texts: Texts) -> npt.NDArray[np.uint64]:
    """Return the XXH3-128 of each text with white space folded, shape (texts, 2)."""
    return np.frombuffer(b"".join(_digests(fold_texts(texts), xxhash.xxh3_128_digest)), np.uint64).reshape(-1, 2)


def hash_paragraphs(texts: Texts, sources: list[str], min_characters: int, edge_characters: int) -> Paragraphs:
    """Return the paragraphs of texts in order, hashed with white space folded. `sources`: of each text.

    A short edge equals those of its own source alone.
    """
    spans = find_paragraphs(texts, min_characters, edge_characters)
    paragraphs = np.empty(len(spans), PARAGRAPHS)
    for column, name in enumerate(("document", "start", "end")):
        paragraphs[name] = spans[:, column]
    hashes = np.fromiter(_digests(fold_spans(texts, spans), xxhash.xxh3_64_intdigest), np.uint64, len(spans))
    names, source_of = np.unique(sources, return_inverse=True)
    salts = np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in names.tolist()], np.uint64)
    edge = spans[:, 3].astype(np.uint64)
    hashes ^= salts[source_of[spans[:, 0]]] * edge
    paragraphs["hash"] = hashes & ~np.uint64(1) | edge
    return paragraphs


def _digests(folded: Folded, digest: Callable[[memoryview], Any]) -> Iterator[Any]:
    view, places = memoryview(folded.data), folded.offsets.tolist()  # type: ignore[arg-type]
    return (digest(view[start:end]) for start, end in pairwise(places))


@compiled
def fold_texts(texts: Texts) -> Folded:
    """Fold each run of white space to one space, and leave out those at both ends."""
    folded = np.empty(texts.data.size, np.uint8)
    offsets = np.zeros(texts.offsets.size, np.int64)
    for index in range(texts.offsets.size - 1):
        text = texts.data[texts.offsets[index] : texts.offsets[index + 1]]
        offsets[index + 1] = offsets[index] + _fold(text, folded[offsets[index] :])
    return Folded(folded[: offsets[-1]], offsets)


@compiled
def fold_spans(texts: Texts, spans: Spans) -> Folded:
    """Fold the white space of paragraphs."""
    folded = np.empty((spans[:, 2] - spans[:, 1]).sum(), np.uint8)
    offsets = np.zeros(len(spans) + 1, np.int64)
    for index in range(len(spans)):
        document, start, end, _ = spans[index]
        first = texts.offsets[document]
        offsets[index + 1] = offsets[index] + _fold(texts.data[first + start : first + end], folded[offsets[index] :])
    return Folded(folded[: offsets[-1]], offsets)


@compiled
def find_paragraphs(texts: Texts, min_characters: int, edge_characters: int) -> Spans:
    """Return the paragraphs of at least `min_characters`, and the edges of at least `edge_characters`; 0 asks for none."""
    count = texts.offsets.size - 1
    most = texts.data.size // min_characters if min_characters else 0
    spans = np.empty((most + 2 * count, 4), np.int64)
    found = 0
    for index in range(count):
        points = decode(texts.data[texts.offsets[index] : texts.offsets[index + 1]])
        blocks = scan_blocks(points)
        byte = 0
        for block in range(len(blocks)):
            start, stop, kind = blocks[block, 0], blocks[block, 1], blocks[block, 2]
            first_byte, byte = byte, byte + _bytes_of(points[start:stop])
            if kind != PARAGRAPH:
                continue
            length = _stripped_length(points[start:stop])
            at_edge = block in (0, len(blocks) - 1)
            is_long = min_characters and length >= min_characters
            is_edge = edge_characters and at_edge and length >= edge_characters
            if is_long or is_edge:
                spans[found] = (index, first_byte, byte, 0 if is_long else 1)
                found += 1
    return spans[:found]


@compiled
def _fold(text: Utf8, folded: Utf8) -> int:
    """Write a folded text to the beginning of `folded`; return its bytes."""
    end, place = 0, 0
    gap = False
    while place < text.size:
        byte = text[place]
        width = 0 if NEVER_SPACE[byte] else _space_width(text, place)
        if width:
            gap = True
            place += width
            continue
        if gap and end:
            folded[end] = SPACE
            end += 1
        gap = False
        folded[end] = byte
        end += 1
        place += 1
    return end


@compiled
def _space_width(text: Utf8, place: int) -> int:  # noqa: PLR0911
    """Return how many bytes the white space at a place takes, 0 where there is none (or the middle of a character)."""
    byte = text[place]
    if byte < 0x80:
        return int(byte == SPACE or 0x09 <= byte <= 0x0D or 0x1C <= byte <= 0x1F)
    if byte == 0xC2:
        return 2 if text[place + 1] in (0x85, 0xA0) else 0
    if byte not in (0xE1, 0xE2, 0xE3):
        return 0
    second, third = text[place + 1], text[place + 2]
    if byte == 0xE3:
        return 3 if second == 0x80 and third == 0x80 else 0
    if byte == 0xE1:
        return 3 if second == 0x9A and third == 0x80 else 0
    if second == 0x80:
        return 3 if third <= 0x8A or third in (0xA8, 0xA9, 0xAF) else 0
    return 3 if second == 0x81 and third == 0x9F else 0


@compiled
def _bytes_of(points: CodePoints) -> int:
    count = 0
    for point in points:
        count += 1 + (point >= 0x80) + (point >= 0x800) + (point >= 0x10000)
    return count


@compiled
def _stripped_length(points: CodePoints) -> int:
    """Return the number of characters without white space at both ends."""
    start, end = 0, points.size
    while start < end and is_space(points[start]):
        start += 1
    while end > start and is_space(points[end - 1]):
        end -= 1
    return end - start
