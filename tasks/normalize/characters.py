"""What each character is to normalization, as lookup tables over all of Unicode, and what it becomes.

Tables, because a class of thousands of characters costs a regular expression hundreds of times more (4 MB/s against
800 MB/s), and because one pass over the code points can then do every step.
"""

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt
import opencc

from configs.schema import NormalizeConfig
from tasks.code_points import NEWLINES, CodePoints

Classes = npt.NDArray[np.uint16]
"""Bits of classes for each code point, shape (UNICODE,)."""

UNICODE = 0x110000
DELETED = np.uint32(0xFFFFFFFF)

# Bits of a class.
NEWLINE, HAN, TRADITIONAL, SIMPLIFIED, KANA, HALF_WIDTH_KANA, ACCENTED, RARE, COMPOSES = (1 << bit for bit in range(9))

HAN_RANGES = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
KANA_RANGES = ((0x3041, 0x3096), (0x30A1, 0x30FA), (0xFF66, 0xFF9F))
# What begins a character of UTF-8 or GBK that was read as Latin-1; °, · and ± are too common in good text to tell.
ACCENTED_LATIN = tuple(range(0xB8, 0xF8))
# GBK rows that hold what begins a Han character of UTF-8.
GBK_ROWS = range(0xE4, 0xEA)

# Soft hyphen, Mongolian vowel separator, zero width space, marks and embeddings of direction, word joiner and invisible
# operators, isolates, BOM; C0 and C1 controls but tab and newlines. The joiners U+200C and U+200D stay: emoji and Indic
# scripts need them. So do variation selectors, which choose between forms of a character.
INVISIBLE = (
    *(code for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, *NEWLINES)),
    0xAD, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2065), *range(0x2066, 0x2070), 0xFEFF,
)  # fmt: skip
# No meaning outside the font that drew them.
PRIVATE_USE = (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE), *range(0x100000, 0x10FFFE))

# Radicals that text from PDF carries in place of the ordinary characters. NFKC maps the Kangxi block; the block of
# supplements has no mapping in Unicode, so those seen in print stand here.
KANGXI = range(0x2F00, 0x2FD6)
RADICALS = "⺠⺟⻄⻅⻆⻉⻋⻓⻔⻘⻙⻚⻛⻜⻝⻢⻣⻤⻥⻦⻨⻩⻬⻮⻰⻳"
UNIFIED = "民母西见角贝车长门青韦页风飞食马骨鬼鱼鸟麦黄齐齿龙龟"

# Full-width letters, digits and symbols that Chinese does not punctuate with; ，。！？：；（）～ and the like stay.
FULL_WIDTH = (
    *range(0xFF10, 0xFF1A), *range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B),
    *map(ord, "＂＃＄％＆＇＊＋－．／＜＝＞＠［＼］＾＿｀｛｜｝"),
)  # fmt: skip
SPACES = (0x3000, 0xA0)


@cache
def replacements(invisible: bool, radicals: bool, width: bool) -> CodePoints:
    """Return what each code point becomes under the steps that are on, shape (UNICODE,); `DELETED` for nothing."""
    table = np.arange(UNICODE, dtype=np.uint32)
    if invisible:
        table[[*INVISIBLE, *PRIVATE_USE]] = DELETED
    if radicals:
        table[list(KANGXI)] = [ord(unicodedata.normalize("NFKC", chr(code))) for code in KANGXI]
        table[[ord(radical) for radical in RADICALS]] = [ord(han) for han in UNIFIED]
    if width:
        table[list(FULL_WIDTH)] = [code - 0xFEE0 for code in FULL_WIDTH]
        table[list(SPACES)] = ord(" ")
    return table


def replacements_of(config: NormalizeConfig) -> CodePoints:
    return replacements(config.invisible, config.radicals, config.width)


@cache
def classes(conversion: str) -> Classes:
    """Return each code point's classes. Traditional alone is what the OpenCC configuration `conversion` changes;
    simplified alone is what OpenCC would make traditional and Big5 lacks (后, 里, 台 are in both scripts).
    """
    table = np.zeros(UNICODE, np.uint16)
    for members, bit in (
        (NEWLINES, NEWLINE), (ACCENTED_LATIN, ACCENTED), (gbk_characters(), RARE), (_composing(), COMPOSES),
    ):  # fmt: skip
        table[list(members)] |= bit
    for ranges, bit in ((HAN_RANGES, HAN), (KANA_RANGES, KANA), (KANA_RANGES[-1:], HALF_WIDTH_KANA)):
        for first, last in ranges:
            table[first : last + 1] |= bit
    if conversion != "off":
        han = [chr(code) for first, last in HAN_RANGES[:2] for code in range(first, last + 1)]
        to_simplified, to_traditional = opencc.OpenCC(conversion).convert, opencc.OpenCC("s2t").convert
        traditional = [char for char in han if to_simplified(char) != char]
        simplified = [char for char in han if to_traditional(char) != char and not char.encode("cp950", "ignore")]
        table[[ord(char) for char in traditional]] |= TRADITIONAL
        table[[ord(char) for char in set(simplified) - set(traditional)]] |= SIMPLIFIED
    return table


def gbk_characters() -> list[int]:
    """Return the code points of `GBK_ROWS`."""
    pairs = (bytes((row, trail)) for row in GBK_ROWS for trail in (*range(0x40, 0x7F), *range(0x80, 0xFF)))
    texts = (pair.decode("gbk", errors="ignore") for pair in pairs)
    return [ord(text) for text in texts if len(text) == 1]


def _composing() -> list[int]:
    """Return the code points without which a text is in NFC: marks, what follows in a composition, what NFC replaces."""
    found = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}  # Hangul vowels and finals
    for code in range(0x80, 0x30000):
        char = chr(code)
        parts = unicodedata.decomposition(char).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.add(int(parts[1], 16))
        if unicodedata.combining(char) or (parts and not unicodedata.is_normalized("NFC", char)):
            found.add(code)
    return sorted(found)
