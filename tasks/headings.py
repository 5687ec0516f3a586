"""Which lines are headings, and of which level: Markdown, reStructuredText, HTML, LaTeX, and numbered chapters."""

from tasks.code_points import (
    SPACE,
    CodePoints,
    after_blanks,
    begins_with,
    is_digit,
    is_han,
    is_letter,
    line_end,
    run_length,
)
from tasks.compiled import compiled

LONGEST_TITLE = 100
LONGEST_NUMBERED_TITLE = 40


@compiled
def heading_level(codes: CodePoints, line: int, start: int, end: int, after_blank: bool) -> int:
    """Return the level of a heading that says so in its own line, 0 for none."""
    first = codes[start]
    if first == 0x23:  # #
        length = run_length(codes, start, end)
        after = start + length
        if length <= 6 and start - line <= 3 and after < end and after_blanks(codes, after, end) not in (after, end):
            return length
    elif first == 0x3C:  # <h1> to <h6>
        if start + 3 < end and codes[start + 1] in (0x48, 0x68) and 0x31 <= codes[start + 2] <= 0x36:
            return codes[start + 2] - 0x30 if codes[start + 3] in (SPACE, 0x3E) else 0
    elif first == 0x5C:  # \section{
        return _latex_level(codes, start + 1, end)
    elif first == 0x7B2C:  # 第
        return _chapter_level(codes, start + 1, end)
    elif is_digit(first) and after_blank:
        return _numbered_level(codes, start, end)
    return 0


@compiled
def _latex_level(codes: CodePoints, start: int, end: int) -> int:
    r"""\part, \chapter: 1; \section: 2; \subsection: 3; \subsubsection: 4."""
    for name, level in (("part", 1), ("chapter", 1), ("section", 2), ("subsection", 3), ("subsubsection", 4)):
        after = start + len(name)
        if begins_with(codes, start, end, name) and after < end and codes[after] in (0x7B, 0x2A, 0x5B):
            return level
    return 0


@compiled
def _chapter_level(codes: CodePoints, start: int, end: int) -> int:
    """第三章: 篇 and 部 1, 章 2, 节 3, 条 4; the line must be short."""
    place = start
    while place < end and place - start < 6 and (is_digit(codes[place]) or _is_numeral(codes[place])):
        place += 1
    if place in (start, end) or end - place > LONGEST_NUMBERED_TITLE + 1:
        return 0
    unit = codes[place]
    if unit in (0x7BC7, 0x90E8):  # 篇 部
        return 1
    if unit == 0x7AE0:  # 章
        return 2
    if unit == 0x8282:  # 节
        return 3
    return 4 if unit in (0x6761, 0x689D) and not _ends_a_sentence(codes, end) else 0  # 条 條


@compiled
def _is_numeral(code: int) -> bool:
    """零〇一二三四五六七八九十百千."""
    return code in (
        0x96F6, 0x3007, 0x4E00, 0x4E8C, 0x4E09, 0x56DB, 0x4E94, 0x516D, 0x4E03, 0x516B, 0x4E5D, 0x5341, 0x767E, 0x5343,
    )  # fmt: skip


@compiled
def _numbered_level(codes: CodePoints, start: int, end: int) -> int:
    """1.2 Title, 1.2.3 Title: as many levels as numbers; short, after a blank line, and no sentence."""
    if end - start > LONGEST_NUMBERED_TITLE or _ends_a_sentence(codes, end):
        return 0
    numbers, place = 1, start
    while place < end and (is_digit(codes[place]) or codes[place] == 0x2E):
        if codes[place] == 0x2E:
            if place + 1 == end or not is_digit(codes[place + 1]):
                place += 1
                break
            numbers += 1
        place += 1
    title = after_blanks(codes, place, end)
    if numbers == 1 or numbers > 6 or title == end or not (is_han(codes[title]) or is_letter(codes[title])):
        return 0
    return numbers if title > place or is_han(codes[title]) else 0


@compiled
def _ends_a_sentence(codes: CodePoints, end: int) -> bool:
    """Tell whether a line ends in 。！？；，、：.!?;,:"""
    return codes[end - 1] in (
        0x3002,
        0xFF01,
        0xFF1F,
        0xFF1B,
        0xFF0C,
        0x3001,
        0xFF1A,
        0x2E,
        0x21,
        0x3F,
        0x3B,
        0x2C,
        0x3A,
    )


@compiled
def underlined(codes: CodePoints, line: int, start: int, end: int) -> tuple[int, int]:
    """Return level and end of a title with a line of marks below it, or one above and one below; 0 for none."""
    above = is_adornment(codes, start, end)
    title, title_end = line, end
    if above:
        title, title_end = end + 1, line_end(codes, min(end + 1, codes.size))
    if title >= codes.size or after_blanks(codes, title, title_end) == title_end or title_end - title > LONGEST_TITLE:
        return 0, end
    below, below_end = title_end + 1, line_end(codes, min(title_end + 1, codes.size))
    if below >= codes.size or is_adornment(codes, after_blanks(codes, title, title_end), title_end):
        return 0, end
    if not is_adornment(codes, below, below_end) or (above and codes[below] != codes[start]):
        return 0, end
    if above:
        return 1, below_end
    return _adornment_level(codes[below]), below_end


@compiled
def is_adornment(codes: CodePoints, start: int, end: int) -> bool:
    """Tell whether a line is three or more of one of = - ~ ^ " * + # ."""
    if start >= end or codes[start] not in (0x3D, 0x2D, 0x7E, 0x5E, 0x22, 0x2A, 0x2B, 0x23):
        return False
    length = run_length(codes, start, end)
    return length >= 3 and after_blanks(codes, start + length, end) == end


@compiled
def _adornment_level(mark: int) -> int:
    """= 1, - 2, ~ 3, ^ 4, others 5: CommonMark's two, and the order that most reStructuredText keeps."""
    if mark == 0x3D:
        return 1
    if mark == 0x2D:
        return 2
    if mark == 0x7E:
        return 3
    return 4 if mark == 0x5E else 5
