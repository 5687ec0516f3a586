"""Finds what must stay as it was written: code, formulas, link targets, HTML tags, URLs.

Compiled, because as a regular expression it ran at 22 MB/s, a fifth of what all of normalize may take. It follows
CommonMark in what matters for a corpus: fences with any indentation and in quotes, closed by a fence at least as long;
code spans between equal runs of back-ticks. An opening mark without a closing one is text; so are tildes under a title,
which underline it in reStructuredText.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.code_points import SPACE, TAB, CodePoints, is_letter, line_end, run_length
from tasks.compiled import compiled

Mask = npt.NDArray[np.bool_]


class Scanned(NamedTuple):
    """A text's code points, and which of them are verbatim."""

    codes: CodePoints
    verbatim: Mask


# A formula, tag or code span longer than this (in characters) is none; it bounds the search for a mark that never comes.
MAX_SPAN = 4096
MIN_FENCE = 3

DOLLAR, BACKSLASH, BACK_TICK, TILDE = 0x24, 0x5C, 0x60, 0x7E
LESS, GREATER, COLON, SLASH, CLOSING_BRACKET, OPENING, CLOSING = 0x3C, 0x3E, 0x3A, 0x2F, 0x5D, 0x28, 0x29
NONE = -1


def scan(codes: CodePoints) -> Scanned:
    """Find the code, formulas, link targets, tags and URLs in a text."""
    return Scanned(codes, _mark_verbatim(codes))


@compiled
def _mark_verbatim(codes: CodePoints) -> Mask:
    mask = np.zeros(codes.size, np.bool_)
    unclosed = np.full(2, codes.size + 1, np.int64)  # from this length on, fences of back-ticks and tildes do not close
    line, below_text = 0, False
    while line < codes.size:
        end = line_end(codes, line)
        mark, length = opens_fence(codes, line, end, below_text)
        below_text = after_indent(codes, line, end) < end
        kind = 0 if mark == BACK_TICK else 1
        if MIN_FENCE <= length < unclosed[kind]:
            close = closing_fence(codes, end + 1, mark, length)
            if close != NONE:
                mask[line:close] = True
                line, below_text = close + 1, False
                continue
            unclosed[kind] = length
        line = _mark_inline(codes, line, end, mask) + 1
    return mask


@compiled
def after_indent(codes: CodePoints, start: int, end: int) -> int:
    while start < end and (codes[start] == SPACE or codes[start] == TAB or codes[start] == GREATER):
        start += 1
    return start


@compiled
def opens_fence(codes: CodePoints, start: int, end: int, below_text: bool) -> tuple[int, int]:
    """Return mark and length of the fence that the line opens, (0, 0) for none."""
    start = after_indent(codes, start, end)
    if start == end or (codes[start] != BACK_TICK and codes[start] != TILDE):
        return 0, 0
    mark, length = codes[start], run_length(codes, start, end)
    if mark == TILDE and below_text and after_indent(codes, start + length, end) == end:
        return 0, 0
    if mark == BACK_TICK:
        for place in range(start + length, end):
            if codes[place] == BACK_TICK:
                return 0, 0
    return mark, length


@compiled
def closing_fence(codes: CodePoints, line: int, mark: int, length: int) -> int:
    """Return the end of the line that closes a fence, or NONE."""
    while line < codes.size:
        end = line_end(codes, line)
        start = after_indent(codes, line, end)
        if start < end and codes[start] == mark:
            run = run_length(codes, start, end)
            if run >= length and after_indent(codes, start + run, end) == end:
                return end
        line = end + 1
    return NONE


@compiled
def _mark_inline(codes: CodePoints, start: int, end: int, mask: Mask) -> int:
    """Mark the spans that begin in a line; return the end of the line in which the last one ends."""
    place = start
    while place < end:
        code = codes[place]
        if code > BACK_TICK:  # no mark is
            place += 1
            continue
        stop, step = NONE, 1
        if code == BACK_TICK:
            step = run_length(codes, place, end)
            stop = _after_code(codes, place, step, end)
        elif code == DOLLAR:
            stop = _after_formula(codes, place, end)
        elif code == BACKSLASH and place + 1 < end:
            step = 2
            stop = _after_latex(codes, place)
        elif code == LESS:
            stop = _after_tag(codes, place, end)
        elif code == CLOSING_BRACKET:
            stop = _after_target(codes, place, end)
        elif code == COLON:
            stop = _after_url(codes, place, end)
        if stop == NONE:
            place += step
            continue
        while code == COLON and place > start and is_letter(codes[place - 1]):  # the scheme of a URL
            place -= 1
        mask[place:stop] = True
        place = stop
        if place > end:
            end = line_end(codes, place)
    return end


@compiled
def _after_code(codes: CodePoints, start: int, length: int, end: int) -> int:
    """`code`, ``co`de``: to the next run of as many back-ticks in the line."""
    place, end = start + length, min(end, start + MAX_SPAN)
    while place < end:
        if codes[place] != BACK_TICK:
            place += 1
            continue
        run = run_length(codes, place, end)
        if run == length and place > start + length:
            return place + run
        place += run
    return NONE


@compiled
def _after_formula(codes: CodePoints, start: int, end: int) -> int:
    """$x$ in a line, not before a digit ($5 and $10 are prices); $$x$$ also over lines."""
    display = start + 1 < codes.size and codes[start + 1] == DOLLAR
    first = start + 2 if display else start + 1
    stop = min(codes.size if display else end, start + MAX_SPAN)
    for place in range(first, stop):
        if codes[place] == DOLLAR:
            if place == first:
                return NONE
            if display:
                return place + 2 if place + 1 < codes.size and codes[place + 1] == DOLLAR else NONE
            return NONE if place + 1 < codes.size and 0x30 <= codes[place + 1] <= 0x39 else place + 1
    return NONE


@compiled
def _after_latex(codes: CodePoints, start: int) -> int:
    r"""\( x \) and \[ x \]."""
    opening = codes[start + 1]
    if opening not in (OPENING, 0x5B):
        return NONE
    closing = CLOSING if opening == OPENING else CLOSING_BRACKET
    for place in range(start + 2, min(codes.size - 1, start + MAX_SPAN)):
        if codes[place] == BACKSLASH and codes[place + 1] == closing:
            return place + 2
    return NONE


@compiled
def _after_tag(codes: CodePoints, start: int, end: int) -> int:
    """<tag attribute="">, </tag>, <!-- -->, <https://address>."""
    if start + 1 >= end or not (is_letter(codes[start + 1]) or codes[start + 1] == SLASH or codes[start + 1] == 0x21):
        return NONE
    for place in range(start + 1, min(end, start + MAX_SPAN)):
        if codes[place] == GREATER:
            return place + 1
        if codes[place] == LESS:
            return NONE
    return NONE


@compiled
def _after_target(codes: CodePoints, start: int, end: int) -> int:
    """](target) of a Markdown link."""
    if start + 1 >= end or codes[start + 1] != OPENING:
        return NONE
    for place in range(start + 2, min(end, start + MAX_SPAN)):
        if codes[place] == CLOSING:
            return place + 1
        if codes[place] == OPENING:
            return NONE
    return NONE


@compiled
def _after_url(codes: CodePoints, start: int, end: int) -> int:
    """://host/path, with other letters than ASCII only where they begin after a mark such as / or = .

    Prose often follows an address without a space: in https://a.cn了解 the address ends before 了.
    """
    if start == 0 or start + 2 >= end or not is_letter(codes[start - 1]):
        return NONE
    if codes[start + 1] != SLASH or codes[start + 2] != SLASH:
        return NONE
    place = start + 3
    while place < end:
        code, before = codes[place], codes[place - 1]
        if code >= 0x80:
            letter = 0x3400 <= code <= 0x9FFF or 0xFF10 <= code <= 0xFF5A or 0xC0 <= code <= 0x24F
            follows = before >= 0x80 or before in (SLASH, 0x3D, 0x5F, 0x2D, 0x23, 0x25, 0x26, 0x2B, 0x3F)
            if not (letter and follows):
                break
        elif code <= SPACE or code in (LESS, GREATER, 0x22, BACK_TICK):
            break
        place += 1
    return place
