"""Traditional to simplified Chinese, by OpenCC, only where the script is traditional.

OpenCC changes simplified text too (昇腾 becomes 升腾), so a line is converted only if it has more characters that are
traditional alone than characters that are simplified alone, never in code, and never in protected words. Japanese stays:
lines, and whole documents, in which a fifth of the letters are kana.
"""

import re
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import opencc

from configs.errors import PipelineError
from tasks.code_points import CodePoints
from tasks.compiled import compiled
from tasks.normalize.characters import HAN, KANA, NEWLINE, SIMPLIFIED, TRADITIONAL, Classes
from tasks.verbatim import Mask, Scanned

SHIPPED_WORDS = Path(__file__).with_name("protected_words.txt")
JAPANESE_KANA_SHARE = 0.2

Spans = npt.NDArray[np.int64]
"""Beginnings and ends, shape (spans, 2)."""


def convert(text: str, scanned: Scanned, table: Classes, configuration: str, words_file: str | None) -> str:
    """Return `text` with its traditional lines converted; `table` has the classes of all characters."""
    codes, verbatim = scanned
    words = protected_words(words_file)
    blocked = verbatim.copy()
    found = [match for match in _pattern(words_file).finditer(text) if not verbatim[match.start()]]
    for match in found:
        blocked[match.start() : match.end()] = True
    lines = _traditional_lines(codes, blocked, table)
    changes = [
        (begin, end, _opencc(configuration).convert(text[begin:end])) for begin, end in _spans(lines, codes, table)
    ]
    changes += [
        (match.start(), match.end(), words[match.group()]) for match in found if lines[match.start()] == BLOCKED
    ]
    parts, position = [], 0
    for begin, end, converted in sorted(changes):
        parts += [text[position:begin], converted]
        position = end
    return "".join([*parts, text[position:]])


@cache
def protected_words(file: str | None) -> dict[str, str]:
    """Return word to what it becomes: those that come with the project, and those of `file`."""
    return _read_words(SHIPPED_WORDS) | (_read_words(Path(file)) if file else {})


@cache
def _pattern(words_file: str | None) -> re.Pattern[str]:
    return re.compile("|".join(sorted(map(re.escape, protected_words(words_file)), key=len, reverse=True)))


@cache
def _opencc(configuration: str) -> opencc.OpenCC:
    return opencc.OpenCC(configuration)


def _read_words(file: Path) -> dict[str, str]:
    """Read a file with one word a line, and what it becomes, if something else.

    Raises:
        PipelineError: the file is missing, not UTF-8, or a line has more than two words.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"normalize.protected_words: {file}: cannot be read as UTF-8 text ({error})") from None
    words = {}
    for number, line in enumerate(lines, start=1):
        parts = line.partition("#")[0].split()
        if len(parts) > 2:
            raise PipelineError(f"{file}: line {number}: found {len(parts)} words, expected one, and what it becomes")
        if parts:
            words[parts[0]] = parts[-1]
    return words


# What a character is to conversion: in a line that stays, to be converted with its line, or blocked in such a line.
STAYS, CONVERTED, BLOCKED = 0, 1, 2


@compiled
def _traditional_lines(codes: CodePoints, blocked: Mask, table: Classes) -> npt.NDArray[np.uint8]:
    """Return for each character STAYS, CONVERTED or BLOCKED."""
    kinds = np.zeros(codes.size, np.uint8)
    all_han = all_kana = line = traditional = simplified = han = kana = 0
    for place in range(codes.size + 1):
        found = table[codes[place]] if place < codes.size else NEWLINE
        if not found & NEWLINE:
            if not blocked[place]:
                traditional += found & TRADITIONAL != 0
                simplified += found & SIMPLIFIED != 0
                han += found & HAN != 0
                kana += found & KANA != 0
            continue
        if traditional > simplified and kana <= JAPANESE_KANA_SHARE * (han + kana):
            for inside in range(line, place):
                kinds[inside] = BLOCKED if blocked[inside] else CONVERTED
        all_han += han
        all_kana += kana
        line, traditional, simplified, han, kana = place + 1, 0, 0, 0, 0
    if all_kana > JAPANESE_KANA_SHARE * (all_han + all_kana):
        kinds[:] = STAYS
    return kinds


@compiled
def _spans(kinds: npt.NDArray[np.uint8], codes: CodePoints, table: Classes) -> Spans:
    """Return the longest spans that hold a traditional character and no Han character that must stay.

    OpenCC leaves everything but Han as it is, so one call may take many lines, with the code and the blanks between.
    """
    spans = np.empty((codes.size, 2), np.int64)
    count, begin, last = 0, 0, -1  # `last`: where the last traditional character of the open span ends
    for place in range(codes.size + 1):
        found = table[codes[place]] if place < codes.size else HAN
        if not found & HAN:
            continue
        if place < codes.size and kinds[place] == CONVERTED:
            if last == -1 and begin == -1:
                begin = place
            if found & TRADITIONAL:
                last = place + 1
            continue
        if last != -1:
            spans[count, 0], spans[count, 1] = begin, place
            count += 1
        begin, last = -1, -1
    return spans[:count]
