"""Normalizes one text: mojibake, newlines, invisible characters, radicals, width, script, blanks.

All steps but the first and the conversion are one compiled pass over the code points. No NFKC and no ftfy width or quote
fixing: both turn Chinese punctuation into ASCII. Code, formulas, link targets, tags and URLs (`verbatim.py`) only get
one kind of newline.
"""

import re
import unicodedata
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from configs.schema import NormalizeConfig
from tasks.code_points import CR, LF, SPACE, TAB, CodePoints, code_points
from tasks.compiled import compiled
from tasks.normalize.characters import (
    ACCENTED,
    COMPOSES,
    DELETED,
    HALF_WIDTH_KANA,
    NEWLINE,
    RARE,
    TRADITIONAL,
    Classes,
    classes,
    replacements_of,
)
from tasks.normalize.conversion import convert
from tasks.normalize.mojibake import repair_gbk, repair_latin
from tasks.verbatim import Mask, Scanned, scan

HALF_WIDTH_KATAKANA = re.compile("[\uff66-\uff9f]+")
SURROGATE = re.compile("[\ud800-\udfff]")

MAX_NEWLINES = 3


def normalize_text(text: str, config: NormalizeConfig) -> str:
    """Return `text` in one script, one width and with "\\n" alone as newline. Doing it twice changes nothing more.

    Lone surrogates, which no encoding can hold, become U+FFFD.
    """
    settled = False
    while not settled:
        text, settled = _normalize_once(text, config)
    return text


def _normalize_once(text: str, config: NormalizeConfig) -> tuple[str, bool]:
    """Return the text, and whether it is settled: what a character became may give another pass something to do."""
    given, table = text, classes(config.conversion)
    try:
        codes = code_points(text)
    except UnicodeEncodeError:
        text = SURROGATE.sub("\ufffd", text)
        codes = code_points(text)
    present = _present(codes, table)
    if config.mojibake and present & (ACCENTED | RARE):
        text = repair_gbk(text, codes, table) if present & RARE else text
        text = repair_latin(text) if present & ACCENTED else text
        codes = codes if text is given else code_points(text)
    scanned = scan(codes)
    if _needs_composing(text, present, config):
        text = _outside(text, scanned.verbatim, lambda prose: _compose(prose, config))
        scanned = scan(code_points(text))
    settled = text == given
    scanned, replaced = _rewrite(scanned, table, replacements_of(config), config.newlines, config.blanks)
    scanned.codes.setflags(write=False)  # as `code_points` gives them: another type would be compiled anew
    text = scanned.codes.tobytes().decode("utf-32-le")
    if replaced:
        settled = settled and not _opens_more(text, scanned, present)
    if present & TRADITIONAL:
        text = convert(text, scanned, table, config.conversion, config.protected_words)
    return text, settled


def _opens_more(text: str, scanned: Scanned, present: int) -> bool:
    """Tell whether replaced characters give another pass something to do: other code, mojibake, a mark to compose."""
    if present & (ACCENTED | RARE | COMPOSES):
        return True
    return not np.array_equal(scanned.verbatim, scan(scanned.codes).verbatim)


def _needs_composing(text: str, present: int, config: NormalizeConfig) -> bool:
    half_width = config.width and present & HALF_WIDTH_KANA
    composes = config.radicals and present & COMPOSES
    return bool(half_width) or bool(composes and not unicodedata.is_normalized("NFC", text))


def _compose(text: str, config: NormalizeConfig) -> str:
    """Compose letters with their marks; compatibility ideographs and half-width katakana become the ordinary ones."""
    if config.width:
        text = HALF_WIDTH_KATAKANA.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    return unicodedata.normalize("NFC", text) if config.radicals else text


def _outside(text: str, verbatim: Mask, change: Callable[[str], str]) -> str:
    """Return `text` with `change` applied to each stretch of prose."""
    edges = [0, *(np.flatnonzero(verbatim[1:] != verbatim[:-1]) + 1).tolist(), len(text)]
    parts = [text[begin:end] for begin, end in pairwise(edges)]
    first = int(verbatim.size > 0 and verbatim[0])
    return "".join(part if index % 2 != first else change(part) for index, part in enumerate(parts))


@compiled
def _present(codes: CodePoints, table: Classes) -> int:
    """Return the classes that occur."""
    found = 0
    for code in codes:
        found |= table[code]
    return found


@compiled
def _rewrite(
    scanned: Scanned, table: Classes, replacement: CodePoints, newlines: bool, blanks: bool
) -> tuple[Scanned, bool]:
    """Return the text with every replacement made in prose, and whether any was made.

    `newlines`: every kind becomes LF. `blanks`: spaces at line ends and more than two blank lines go, as do newlines at
    both ends of the text.
    """
    codes, verbatim = scanned
    out, mask = np.empty_like(codes), np.empty_like(verbatim)
    size, replaced = 0, False
    for place in range(codes.size):
        code, fixed = codes[place], verbatim[place]
        if table[code] & NEWLINE:
            if newlines and code == LF and place > 0 and codes[place - 1] == CR:
                continue
            if blanks and not fixed:
                size = _without_blanks(out, mask, size)
                if size == 0 or _newlines_before(out, mask, size) == MAX_NEWLINES:
                    continue
            code = LF if newlines else code
        elif not fixed:
            new = replacement[code]
            replaced |= new != code
            if new == DELETED:
                continue
            code = new
        out[size], mask[size] = code, fixed
        size += 1
    if blanks:
        size = _without_blanks(out, mask, size)
        while size > 0 and not mask[size - 1] and out[size - 1] == LF:
            size = _without_blanks(out, mask, size - 1)
    return Scanned(out[:size], mask[:size]), replaced


@compiled
def _without_blanks(out: CodePoints, mask: Mask, size: int) -> int:
    """Return the size without the spaces and tabs that end the last line."""
    while size > 0 and not mask[size - 1] and (out[size - 1] == SPACE or out[size - 1] == TAB):
        size -= 1
    return size


@compiled
def _newlines_before(out: CodePoints, mask: Mask, size: int) -> int:
    count = 0
    while count < MAX_NEWLINES and count < size and not mask[size - 1 - count] and out[size - 1 - count] == LF:
        count += 1
    return count
