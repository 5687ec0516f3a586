"""The structure of a text: headings, paragraphs, list entries, code, tables and formulas, as spans that join to it again.

What must stay whole is told apart here once, for the paragraph, filter and chunk rules alike: Markdown, reStructuredText,
LaTeX, the HTML that stands in Markdown, and the numbered chapters of plain text. One compiled pass over the lines.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tasks.code_points import (
    LF,
    CodePoints,
    after_blanks,
    begins_with,
    code_points,
    is_blank,
    is_digit,
    is_newline,
    line_end,
    run_length,
)
from tasks.compiled import compiled
from tasks.headings import heading_level, is_adornment, underlined
from tasks.verbatim import MIN_FENCE, NONE, closing_fence, opens_fence

BlockKind = Literal["heading", "paragraph", "list", "code", "table", "formula"]
KINDS: tuple[BlockKind, ...] = ("heading", "paragraph", "list", "code", "table", "formula")
HEADING, PARAGRAPH, LIST, CODE, TABLE, FORMULA = range(6)

BlockTable = npt.NDArray[np.int64]
"""Start, end, kind (index into KINDS) and level of each block, shape (blocks, 4)."""

# A table or formula whose end is not found within so many lines is taken for text.
LONGEST_SEARCH = 2000


@dataclass(frozen=True)
class Block:
    """Characters `start` to `end` of a text, blank lines that follow included. `level`: 1 to 6 for headings, else 0."""

    start: int
    end: int
    kind: BlockKind
    level: int = 0


def split_blocks(text: str) -> list[Block]:
    """Return the blocks of `text`, in order and without gaps."""
    rows = scan_blocks(code_points(text)).tolist()
    return [Block(start, end, KINDS[kind], level) for start, end, kind, level in rows]


@compiled
def scan_blocks(codes: CodePoints) -> BlockTable:
    """Return the blocks of a text, in order and without gaps."""
    blocks = np.empty((_count_lines(codes), 4), np.int64)
    count, line, after_blank = 0, 0, True
    literal = NONE  # indent of a line that ends in ::, below which reStructuredText has code
    while line < codes.size:
        end = line_end(codes, line)
        if after_blanks(codes, line, end) == end and count:
            line, after_blank = end + 1, True
            continue
        kind, level, stop = _classify(codes, line, end, after_blank, count == 0)
        indent = after_blanks(codes, line, end) - line
        if literal != NONE and after_blank and indent > literal:
            kind, level, stop = CODE, 0, _end_of_indented(codes, end, literal)
        literal = indent if kind == PARAGRAPH and end - line > 1 and codes[end - 1] == codes[end - 2] == 0x3A else NONE
        last = blocks[count - 1, 2] if count and not after_blank else NONE
        joins = kind == last and kind in (PARAGRAPH, TABLE)
        if not joins and not (kind == PARAGRAPH and last == LIST):
            blocks[count, 0], blocks[count, 2], blocks[count, 3] = line, kind, level
            count += 1
        line, after_blank = stop + 1, False
    blocks = blocks[:count]
    for index in range(count):
        blocks[index, 1] = blocks[index + 1, 0] if index + 1 < count else codes.size
    return blocks


@compiled
def _count_lines(codes: CodePoints) -> int:
    count = 1
    for code in codes:
        count += is_newline(code)
    return count


@compiled
def _classify(  # noqa: PLR0911
    codes: CodePoints, line: int, end: int, after_blank: bool, first: bool
) -> tuple[int, int, int]:
    """Return kind and level of the block that begins with a line, and the end of its last line that this decides."""
    start = after_blanks(codes, line, end)
    if start == end:
        return PARAGRAPH, 0, end
    mark, length = opens_fence(codes, line, end, not after_blank)
    if length >= MIN_FENCE:
        close = closing_fence(codes, end + 1, mark, length)
        if close != NONE:
            return CODE, 0, close
    if first and is_adornment(codes, start, end) and codes[start] == 0x2D:
        close = _line_of(codes, end + 1, 0x2D)  # front matter between two lines ---
        if close != NONE:
            return CODE, 0, close
    if begins_with(codes, start, end, ".. code") or begins_with(codes, start, end, ".. sourcecode"):
        return CODE, 0, _end_of_indented(codes, end, start - line)
    if begins_with(codes, start, end, ".. math::"):
        return FORMULA, 0, _end_of_indented(codes, end, start - line)
    stop = _formula_end(codes, start, end)
    if stop != NONE:
        return FORMULA, 0, stop
    stop = _table_end(codes, start, end)
    if stop != NONE:
        return TABLE, 0, stop
    level = heading_level(codes, line, start, end, after_blank)
    if level:
        return HEADING, level, end
    if after_blank:
        level, stop = underlined(codes, line, start, end)
        if level:
            return HEADING, level, stop
    return (LIST if _is_entry(codes, start, end) else PARAGRAPH), 0, end


@compiled
def _table_end(codes: CodePoints, start: int, end: int) -> int:
    """Return the end of the last line of a table that begins with a line, NONE if none does."""
    first = codes[start]
    if first == 0x7C:  # | of Markdown; its lines join
        return end
    if first == 0x2B and start + 1 < end and codes[start + 1] in (0x2D, 0x3D):  # +--- of a grid
        return _end_of_paragraph(codes, end)
    if _is_border(codes, start, end):  # ===  === of a simple table: to the last border before a blank line
        return _last_border(codes, end)
    if begins_with(codes, start, end, "<table"):
        return _end_after(codes, start, "</table>")
    return NONE


@compiled
def _is_border(codes: CodePoints, start: int, end: int) -> bool:
    """Tell whether a line is two or more runs of = with blanks between them."""
    groups, place = 0, start
    while place < end and codes[place] == 0x3D:
        place = after_blanks(codes, place + run_length(codes, place, end), end)
        groups += 1
    return groups >= 2 and place == end


@compiled
def _last_border(codes: CodePoints, end: int) -> int:
    for _ in range(LONGEST_SEARCH):
        line = end + 1
        if line >= codes.size:
            return NONE
        end = line_end(codes, line)
        following = line_end(codes, min(end + 1, codes.size))
        closes = end + 1 >= codes.size or after_blanks(codes, end + 1, following) == following
        if closes and _is_border(codes, after_blanks(codes, line, end), end):
            return end
    return NONE


@compiled
def _end_of_indented(codes: CodePoints, end: int, indent: int) -> int:
    """Return the end of the last line that is indented by more than `indent`, blank lines between left aside."""
    last = end
    while end + 1 < codes.size:
        line = end + 1
        end = line_end(codes, line)
        start = after_blanks(codes, line, end)
        if start < end and start - line <= indent:
            break
        last = end if start < end else last
    return last


@compiled
def _end_of_paragraph(codes: CodePoints, end: int) -> int:
    """Return the end of the last line before a blank one."""
    while end + 1 < codes.size:
        following = line_end(codes, end + 1)
        if after_blanks(codes, end + 1, following) == following:
            break
        end = following
    return end


@compiled
def _formula_end(codes: CodePoints, start: int, end: int) -> int:
    r"""Return the end of the last line of $$ $$, \[ \] or \begin{equation}, NONE if none begins with the line."""
    if begins_with(codes, start, end, "$$"):
        return _end_after(codes, start + 2, "$$")
    if begins_with(codes, start, end, "\\["):
        return _end_after(codes, start + 2, "\\]")
    if begins_with(codes, start, end, "\\begin{"):
        return _end_after(codes, start, "\\end{")
    return NONE


@compiled
def _end_after(codes: CodePoints, start: int, mark: str) -> int:
    """Return the end of the line in which a mark stands next, NONE where it is too far or nowhere."""
    lines = 0
    for place in range(start, codes.size):
        if codes[place] == ord(mark[0]) and begins_with(codes, place, codes.size, mark):
            return line_end(codes, place)
        lines += codes[place] == LF
        if lines > LONGEST_SEARCH:
            break
    return NONE


@compiled
def _line_of(codes: CodePoints, line: int, mark: int) -> int:
    """Return the end of the next line that is all of one mark, at least three times; NONE where it is too far."""
    for _ in range(LONGEST_SEARCH):
        if line >= codes.size:
            break
        end = line_end(codes, line)
        if is_adornment(codes, line, end) and codes[line] == mark:
            return end
        line = end + 1
    return NONE


@compiled
def _is_entry(codes: CodePoints, start: int, end: int) -> bool:
    """Tell whether a line begins with - * + • · or 1. 1) 1、 and more."""
    place = start
    if codes[start] in (0x2D, 0x2A, 0x2B, 0x2022, 0xB7):
        place = start + 1
    else:
        while place < end and place - start < 3 and is_digit(codes[place]):
            place += 1
        if place in (start, end) or codes[place] not in (0x2E, 0x29, 0x3001):
            return False
        place += 1
        if codes[place - 1] == 0x3001:
            return place < end
    return place < end and is_blank(codes[place]) and after_blanks(codes, place, end) < end
