"""Texts as arrays of code points, and the few compiled functions that every scan of lines needs."""

import numpy as np
import numpy.typing as npt

from tasks.compiled import compiled

CodePoints = npt.NDArray[np.uint32]
"""A text as its code points, shape (characters,)."""

# LF, VT, FF, CR, NEL, LS, PS.
NEWLINES = (0x0A, 0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029)
LF, CR, TAB, SPACE = 0x0A, 0x0D, 0x09, 0x20
IDEOGRAPHIC_SPACE = 0x3000


def code_points(text: str) -> CodePoints:
    """Return the code points of a text without surrogates."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


@compiled
def is_newline(code: int) -> bool:
    return 0x0A <= code <= 0x0D or code in (0x85, 0x2028, 0x2029)


@compiled
def is_blank(code: int) -> bool:
    return code in (SPACE, TAB, IDEOGRAPHIC_SPACE, 0xA0)


@compiled
def is_letter(code: int) -> bool:
    """Tell whether a code point is an ASCII letter."""
    return 0x41 <= code <= 0x5A or 0x61 <= code <= 0x7A


@compiled
def is_digit(code: int) -> bool:
    return 0x30 <= code <= 0x39


@compiled
def is_han(code: int) -> bool:
    return (
        0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF
    )


@compiled
def line_end(codes: CodePoints, start: int) -> int:
    """Return the place of the next newline, or the text's end."""
    while start < codes.size and not is_newline(codes[start]):
        start += 1
    return start


@compiled
def after_blanks(codes: CodePoints, start: int, end: int) -> int:
    """Return the place of the first character that is no blank, or `end`."""
    while start < end and is_blank(codes[start]):
        start += 1
    return start


@compiled
def run_length(codes: CodePoints, start: int, end: int) -> int:
    """Return how often the character at `start` is repeated."""
    stop = start
    while stop < end and codes[stop] == codes[start]:
        stop += 1
    return stop - start


@compiled
def begins_with(codes: CodePoints, start: int, end: int, word: str) -> bool:
    if start + len(word) > end:
        return False
    for place in range(len(word)):  # noqa: SIM110 - compiled
        if codes[start + place] != ord(word[place]):
            return False
    return True
