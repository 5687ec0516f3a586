"""Repairs text that was decoded with the wrong code page, line by line, where cheap tests say that it was.

Three kinds are met in Chinese corpora. UTF-8 read as Latin-1 or Windows-1252 (ä¸­æ–‡) is ftfy's, behind an expression
that says where there is some: ftfy on everything runs at 3 MB/s and rewrites Chinese punctuation. GBK read as Latin-1
(ÖÐÎÄ) and UTF-8 read as GBK (涓枃) are undone here, and only when the bytes are valid in the right code.
"""

import re

import ftfy
import numpy as np
import numpy.typing as npt

from tasks.code_points import CodePoints
from tasks.compiled import compiled
from tasks.normalize.characters import NEWLINE, RARE, Classes

# The lead byte of a Chinese character or of typographic punctuation, then two continuation bytes as those code pages
# show them.
MOJIBAKE = re.compile(r"[â-ï][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]{2}|Â[\xa0-\xbf]|Ã[\x80-\xbf]")
# Two or more characters of GB 2312 as Latin-1 shows them; no language writes so many accented letters in a row. Bytes
# below A1 are never GB 2312's.
HIGH = re.compile(r"[\x80-\xff€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]{4,}")
GBK_AS_LATIN = re.compile(r"(?:[\xa1-\xf7][\xa1-\xfe])+")
LOST = re.compile("\ufffd+")
MIN_HAN, MIN_FREQUENT_SHARE = 2, 0.7

# A line with so many of the characters that GBK makes of UTF-8 is put to the test: they are 30% of text misread so, and
# 0.03% of ordinary text.
MIN_RARE, MIN_RARE_SHARE = 4, 0.15


def repair_gbk(text: str, codes: CodePoints, table: Classes) -> str:
    """Undo UTF-8 read as GBK; `codes` are the text's code points, `table` has the classes of all."""
    parts, place = [], 0
    for begin, end in _suspicious_lines(codes, table).tolist():
        parts += [text[place:begin], _from_utf8(text[begin:end])]
        place = end
    return "".join([*parts, text[place:]])


def repair_latin(text: str) -> str:
    """Undo UTF-8 or GBK read as Latin-1 or Windows-1252."""
    text = HIGH.sub(lambda match: _from_gbk(match.group()), text)
    if MOJIBAKE.search(text) is None:
        return text
    return "\n".join(ftfy.fix_encoding(line) if MOJIBAKE.search(line) else line for line in text.split("\n"))


def _from_gbk(run: str) -> str:
    """Return a run of high characters in GBK; as it is, when it may be UTF-8 or most of its Han would be rare ones."""
    if GBK_AS_LATIN.fullmatch(run) is None:
        return run
    data = run.encode("latin-1")
    han = [lead for lead in data[::2] if lead >= 0xB0]
    frequent = sum(lead <= 0xD7 for lead in han)  # GB 2312's level 1
    if _is_utf8(data) or len(han) < MIN_HAN or frequent < MIN_FREQUENT_SHARE * len(han):
        return run
    try:
        return data.decode("gb2312")
    except UnicodeDecodeError:
        return run


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _from_utf8(line: str) -> str:
    """Return the line in UTF-8, with U+FFFD where bytes were lost; as it is, when its bytes are no UTF-8 besides."""
    parts = line.split("\ufffd")
    try:
        data = b"\xff".join(part.encode("gb18030") for part in parts)
    except UnicodeEncodeError:
        return line
    repaired = LOST.sub("\ufffd", data.decode("utf-8", errors="replace"))
    return repaired if repaired.count("\ufffd") <= len(parts) else line


@compiled
def _suspicious_lines(codes: CodePoints, table: Classes) -> npt.NDArray[np.int64]:
    """Return beginnings and ends of the lines with many rare characters, shape (lines, 2)."""
    spans = np.empty((codes.size // MIN_RARE + 1, 2), np.int64)
    count, line, found = 0, 0, 0
    for place in range(codes.size + 1):
        if place < codes.size and not table[codes[place]] & NEWLINE:
            found += table[codes[place]] & RARE != 0
            continue
        if found >= MIN_RARE and found >= MIN_RARE_SHARE * (place - line):
            spans[count, 0], spans[count, 1] = line, place
            count += 1
        line, found = place + 1, 0
    return spans[:count]
