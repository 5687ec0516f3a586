"""Normalizes one text. Small steps in a fixed order; what each may touch is written beside it.

No NFKC and no ftfy width or quote fixing: both turn Chinese punctuation into ASCII. Code fences, inline code, URLs and
LaTeX are left as they are by the steps that rewrite characters (width, conversion).
"""

import re
import unicodedata
from collections.abc import Callable

import ftfy

from configs.schema import NormalizeConfig
from tasks.normalize.conversion import converter

# UTF-8 that was read as Latin-1 or Windows-1252: the lead byte of a Chinese character or of typographic punctuation,
# then two continuation bytes as those code pages show them.
MOJIBAKE = re.compile(r"[â-ï][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]{2}|Â[\xa0-\xbf]|Ã[\x80-\xbf]")

NEWLINES = re.compile("\r\n|[\r\x85\u2028\u2029]")

# Zero width space, soft hyphen, BOM, word joiner, bidirectional controls, and the C0 and C1 controls but tab and
# newline. The joiners U+200C and U+200D stay: emoji and Indic scripts need them.
INVISIBLE = re.compile("[\u200b\u00ad\ufeff\u2060\u200e\u200f\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f\x7f-\x9f]")

# Radicals that text from PDF carries in place of the ordinary characters. NFKC maps the Kangxi block; the block of
# supplements has no mapping in Unicode, so those seen in print stand here.
KANGXI = re.compile("[\u2f00-\u2fd5]")
RADICALS = str.maketrans(
    "⺠⺟⻄⻅⻆⻉⻋⻓⻔⻘⻙⻚⻛⻜⻝⻢⻣⻤⻥⻦⻨⻩⻬⻮⻰⻳", "民母西见角贝车长门青韦页风飞食马骨鬼鱼鸟麦黄齐齿龙龟"
)
RADICAL = re.compile("[\u2e80-\u2ef3]")

# Full-width letters, digits and symbols that Chinese does not punctuate with; ，。！？：；（）～ and the like stay.
FULL_WIDTH = re.compile(
    "[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a＂＃＄％＆＇＊＋－．／＜＝＞＠［＼］＾＿｀｛｜｝\u3000\xa0]+"
)
HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5E)} | {0x3000: 0x20, 0xA0: 0x20}

VERBATIM = re.compile(
    r"(?P<fence>^[ ]{0,3}(?P<mark>`{3,}|~{3,})[^\n]*\n(?:.*?\n)??[ ]{0,3}(?P=mark)[^\S\n]*$)"
    r"|`[^`\n]+`"
    r"|\b(?:https?|ftp)://[!-~]+"
    r"|\$\$[^$]+\$\$|\$[^$\n]+\$",
    re.MULTILINE | re.DOTALL,
)

TRAILING_SPACE = re.compile(r"[ \t]+$", re.MULTILINE)
BLANK_LINES = re.compile(r"\n{4,}")


def normalize_text(text: str, config: NormalizeConfig) -> str:
    """Return `text` in one script, one width and with "\\n" alone as newline. Doing it twice changes nothing more."""
    if config.mojibake:
        text = repair_mojibake(text)
    text = NEWLINES.sub("\n", text)
    text = INVISIBLE.sub("", text)
    text = unicodedata.normalize("NFC", text)
    text = KANGXI.sub(lambda match: unicodedata.normalize("NFKC", match.group()), text)
    text = RADICAL.sub(lambda match: match.group().translate(RADICALS), text)
    text = outside_verbatim(text, prose_steps(config))
    text = TRAILING_SPACE.sub("", text)
    return BLANK_LINES.sub("\n\n\n", text).strip("\n")


def repair_mojibake(text: str) -> str:
    """Return `text` with the lines repaired that show UTF-8 read with the wrong code page."""
    if MOJIBAKE.search(text) is None:
        return text
    return "\n".join(ftfy.fix_encoding(line) if MOJIBAKE.search(line) else line for line in text.split("\n"))


def narrow(text: str) -> str:
    """Return `text` with full-width letters, digits, ASCII-like symbols and spaces in ASCII."""
    return FULL_WIDTH.sub(lambda match: match.group().translate(HALF_WIDTH), text)


def prose_steps(config: NormalizeConfig) -> Callable[[str], str]:
    """Return the steps that only prose gets, as one function."""
    steps: list[Callable[[str], str]] = []
    if config.width:
        steps.append(narrow)
    if config.conversion != "off":
        steps.append(converter(config.conversion, config.protected_words))

    def apply(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return apply


def outside_verbatim(text: str, change: Callable[[str], str]) -> str:
    """Return `text` with `change` applied to everything but code, URLs and formulas."""
    parts, position = [], 0
    for match in VERBATIM.finditer(text):
        parts += [change(text[position : match.start()]), match.group()]
        position = match.end()
    return "".join([*parts, change(text[position:])])
