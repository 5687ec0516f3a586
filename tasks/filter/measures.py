"""What is measured of a document, once, whatever the thresholds are: one compiled pass over its blocks.

Prose is headings, paragraphs and list entries; code, tables and formulas are set aside where a measure says so. N-grams
and repetition count units, one Han character or one Latin word, since Chinese has no spaces: Gopher's rules count words.
"""

import unicodedata
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.blocks import HEADING, LIST, PARAGRAPH, BlockTable
from tasks.code_points import NEWLINES, CodePoints, after_blanks, is_letter, line_end
from tasks.compiled import compiled
from tasks.dedup.shingles import unit_hashes
from tasks.normalize.characters import HAN_RANGES, KANA_RANGES, UNICODE, gbk_characters
from tasks.verbatim import Mask, scan

TOP_NGRAM, REPEATED_NGRAM = 4, 10
# With fewer Han characters and words in prose, or a smaller share of all, tables decide about the script too.
ENOUGH_LETTERS, ENOUGH_SHARE = 50, 0.1

STOP_WORDS = "的 年 在 月 是 和 日 了 於 · 為 有 被 人 中 为 他 與 後 也 而 由".split()
"""FineWeb-2's for Chinese."""

BLANK, HAN, KANA, LETTER, DIGIT, DIVIDES, SYMBOL, LOST, MISREAD, ACCENTED = (1 << bit for bit in range(10))
Classes = npt.NDArray[np.uint16]

# What ends or divides a statement, Chinese and ASCII alike: journals print `,` and `.`.
DIVIDERS = "，。、；：！？…—（）《》“”‘’「」『』【】,.;:!?()\"'[]{}"
TERMINATORS = (0x3002, 0xFF01, 0xFF1F, 0x2026, 0xFF1B, 0xFF1A, 0x2E, 0x21, 0x3F, 0x3B, 0x3A)
# 锟斤拷 and 锘 are what GBK makes of U+FFFD and the BOM; 烫 and 屯 what it makes of fresh memory.
KUN, JIN, KAO, BOM_OF_GBK, TANG, TUN = map(ord, "锟斤拷锘烫屯")


class Measures(NamedTuple):
    """The measures of one document; shares are of what each rule's description says."""

    characters: float
    han_share: float
    kana_share: float
    garbled_share: float
    characters_without_punctuation: float
    symbol_share: float
    digit_share: float
    url_share: float
    link_share: float
    list_share: float
    repeated_line_share: float
    repeated_ngram_share: float
    top_ngram_share: float
    ellipsis_line_share: float
    punctuated_line_share: float
    stop_words: float
    prose_lines: float


def measure(text: str, codes: CodePoints, blocks: BlockTable) -> Measures:
    """Return the measures of a text; `codes` and `blocks` are its own."""
    counts = _count(codes, scan(codes).verbatim, blocks, classes())
    prose = _prose(codes, blocks)
    prose.setflags(write=False)  # as `code_points` gives them: another type would be compiled anew
    lines = _line_counts(prose)
    units = unit_hashes(prose)
    repeated, _ = _ngrams(units, REPEATED_NGRAM)
    _, top = _ngrams(units, TOP_NGRAM)
    characters, prose_characters, all_lines = max(1.0, counts[15]), max(1.0, counts[1]), max(1.0, lines[0])
    enough = counts[2:5].sum() >= max(ENOUGH_LETTERS, ENOUGH_SHARE * counts[12:15].sum())
    letters = counts[2:5] if enough else counts[12:15]
    all_letters = max(1.0, letters.sum())
    return Measures(
        characters=counts[0],
        han_share=letters[0] / all_letters,
        kana_share=letters[2] / all_letters,
        garbled_share=counts[5] / characters,
        characters_without_punctuation=counts[6],
        symbol_share=counts[7] / prose_characters,
        digit_share=counts[8] / prose_characters,
        url_share=counts[9] / characters,
        link_share=counts[10] / prose_characters,
        list_share=counts[11] / all_lines,
        repeated_line_share=lines[1] / max(1.0, lines[2]),
        repeated_ngram_share=repeated,
        top_ngram_share=top,
        ellipsis_line_share=lines[3] / all_lines,
        punctuated_line_share=lines[4] / all_lines,
        stop_words=float(sum(word in text for word in STOP_WORDS)),
        prose_lines=lines[0],
    )


@cache
def classes() -> Classes:
    """Return what each code point is to the measures, shape (UNICODE,)."""
    table = np.zeros(UNICODE, np.uint16)
    for code in range(0x30000):
        category = unicodedata.category(chr(code))
        if category[0] == "L":
            table[code] = LETTER
        elif category[0] == "Z" or code in NEWLINES or code == 0x09:
            table[code] = BLANK
        elif category == "Nd":
            table[code] = DIGIT
        elif category[0] in "SP":
            table[code] = SYMBOL
        elif category in ("Cc", "Co"):
            table[code] = LOST
    for ranges, bit in ((HAN_RANGES, HAN), (KANA_RANGES, KANA)):
        for first, last in ranges:
            table[first : last + 1] = bit
    table[[ord(mark) for mark in DIVIDERS]] = DIVIDES
    table[gbk_characters()] |= MISREAD
    table[0xA1:0xFF] |= ACCENTED
    table[0xFFFD] = LOST
    return table


@compiled
def _count(codes: CodePoints, verbatim: Mask, blocks: BlockTable, table: Classes) -> npt.NDArray[np.float64]:
    """Return: characters but symbols; those of prose, symbols too; Han, words of other scripts and kana of prose;
    garbled; longest stretch without punctuation; symbols and digits of prose; characters of URLs; of links in prose;
    list entries; Han, words of other scripts and kana again, tables included; all characters.
    """
    counts = np.zeros(16)
    for index in range(blocks.shape[0]):
        start, end, kind = blocks[index, 0], blocks[index, 1], blocks[index, 2]
        prose = kind in (HEADING, PARAGRAPH, LIST)
        characters = visible = han = words = kana = symbols = digits = 0
        before = np.uint16(0)
        for place in range(start, end):
            found = table[codes[place]]
            characters += not found & (BLANK | SYMBOL)
            visible += not found & BLANK
            if not verbatim[place]:
                han += found & HAN != 0
                kana += found & KANA != 0
                words += found & LETTER & ~before != 0
                symbols += found & SYMBOL != 0
                digits += found & DIGIT != 0
            before = np.uint16(0) if verbatim[place] else found
        counts[0] += characters
        counts[15] += visible
        counts[12] += han
        counts[13] += words
        counts[14] += kana
        counts[11] += kind == LIST
        if prose:
            counts[1] += visible
            counts[2] += han
            counts[3] += words
            counts[4] += kana
            counts[7] += symbols if kind != HEADING else 0
            counts[8] += digits
            counts[10] += _link_characters(codes, start, end)
            counts[6] = max(counts[6], _longest_stretch(codes, verbatim, start, end, table) if kind != HEADING else 0)
    counts[5] = _garbled(codes, table, counts[12])
    counts[9] = _url_characters(codes)
    return counts


@compiled
def _longest_stretch(codes: CodePoints, verbatim: Mask, start: int, end: int, table: Classes) -> int:
    """Return the most characters between two marks of punctuation, a Latin word or number counted as one."""
    longest = stretch = 0
    in_latin = False
    for place in range(start, end):
        found = table[codes[place]]
        if found & DIVIDES or verbatim[place]:
            longest = max(longest, stretch)
            stretch, in_latin = 0, False
        elif found & (HAN | KANA | LETTER | DIGIT):
            latin = codes[place] < 0x80
            stretch += not (latin and in_latin)
            in_latin = latin
        elif found & BLANK:
            in_latin = False
    return max(longest, stretch)


@compiled
def _garbled(codes: CodePoints, table: Classes, han: float) -> float:
    """Count what failed decoding left: U+FFFD and its like, 锟斤拷, and characters that only misreading makes so many."""
    lost = misread = accented = run = 0
    place = 0
    while place < codes.size:
        code, found = codes[place], table[codes[place]]
        following = codes[place + 1] if place + 1 < codes.size else np.uint32(0)
        lost += found & LOST != 0 or code == BOM_OF_GBK
        lost += 3 if code == KUN and following == JIN else (code == KUN)
        lost += code in (TANG, TUN) and code == following
        misread += found & MISREAD != 0
        run = run + 1 if found & ACCENTED else 0
        accented += 4 if run == 4 else (run > 4)
        place += 1
    return lost + accented + (misread if misread > 0.1 * han else 0)


@compiled
def _url_characters(codes: CodePoints) -> float:
    total, place = 0, 1
    while place + 2 < codes.size:
        if (
            codes[place] != 0x3A
            or codes[place + 1] != 0x2F
            or codes[place + 2] != 0x2F
            or not is_letter(codes[place - 1])
        ):
            place += 1
            continue
        begin = place
        while begin > 0 and is_letter(codes[begin - 1]):
            begin -= 1
        while place < codes.size and 0x21 <= codes[place] <= 0x7E:
            place += 1
        total += place - begin
    return total


@compiled
def _link_characters(codes: CodePoints, start: int, end: int) -> float:
    """Count the characters of [words](target)."""
    total, opened = 0, -1
    for place in range(start, end):
        code = codes[place]
        if code == 0x5B:
            opened = place
        elif code == 0x5D and opened >= 0 and place + 1 < end and codes[place + 1] == 0x28:
            close = place + 1
            while close < end and codes[close] != 0x29 and codes[close] not in (0x0A, 0x0D):
                close += 1
            total += close - opened
            opened = -1
    return total


@compiled
def _prose(codes: CodePoints, blocks: BlockTable) -> CodePoints:
    """Return the code points of headings, paragraphs and list entries."""
    prose, size = np.empty_like(codes), 0
    for index in range(blocks.shape[0]):
        if blocks[index, 2] in (HEADING, PARAGRAPH, LIST):
            length = blocks[index, 1] - blocks[index, 0]
            prose[size : size + length] = codes[blocks[index, 0] : blocks[index, 1]]
            size += length
    return prose[:size]


@compiled
def _line_counts(codes: CodePoints) -> npt.NDArray[np.float64]:
    """Return: lines that are not blank; characters of lines that stood before; characters of all lines; lines that end
    in an ellipsis; lines that end in a mark of punctuation.
    """
    counts, seen = np.zeros(5), {np.uint64(0)}
    line = 0
    while line < codes.size:
        end = line_end(codes, line)
        start = after_blanks(codes, line, end)
        if start < end:
            value = np.uint64(14695981039346656037)
            for place in range(start, end):
                value = (value ^ np.uint64(codes[place])) * np.uint64(0x100000001B3)
            counts[0] += 1
            counts[1] += end - start if value in seen else 0
            counts[2] += end - start
            counts[3] += codes[end - 1] == 0x2026 or (end - start > 2 and codes[end - 1] == 0x2E == codes[end - 2])
            counts[4] += codes[end - 1] in TERMINATORS
            seen.add(value)
        line = end + 1
    return counts


@compiled
def _ngrams(units: npt.NDArray[np.uint64], size: int) -> tuple[float, float]:
    """Return which shares of the units lie in n-grams that stood before, and in the most frequent n-gram."""
    count = units.size - size + 1
    if count <= 1:
        return 0.0, 0.0
    capacity = 4
    while capacity < 2 * count:
        capacity *= 2
    keys, numbers = np.zeros(capacity, np.uint64), np.zeros(capacity, np.int32)
    covered_to = covered = most = 0
    for first in range(count):
        value = np.uint64(1)
        for offset in range(size):
            value = (value ^ units[first + offset]) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
        slot = np.int64(value & np.uint64(capacity - 1))
        while keys[slot] != 0 and keys[slot] != value:
            slot = (slot + 1) & (capacity - 1)
        keys[slot] = value
        numbers[slot] += 1
        if numbers[slot] > 1:
            covered += first + size - max(first, covered_to)
            covered_to = first + size
            most = max(most, numbers[slot])
    return covered / units.size, min(1.0, most * size / units.size)
