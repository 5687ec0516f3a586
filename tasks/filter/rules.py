"""The rules for whole documents: what each measures, and which limit it must keep.

A rule bears the name of its key in `configs/schema.py` (`FilterConfig`); `min_` and `max_` say the direction. Add one
by writing a measure, a line in `RULES` and a field in the configuration.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from configs.schema import FilterConfig
from tasks.blocks import split_blocks
from tasks.normalize.mojibake import MOJIBAKE

WHITE_SPACE = re.compile(r"\s+")
HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
WORD = re.compile(r"(?:(?![\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[^\W\d_])+")
# What ends or divides a statement, Chinese and ASCII alike: journals print `,` and `.`; a list mark begins a new one.
PUNCTUATION = re.compile(
    r"[，。、；：！？…—（）《》“”‘’「」『』【】,.;:!?()\"'\[\]{}]|\n[ \t]*(?:[-*+•·]|\d{1,3}[.)、])[ \t]"
)
# Code, URLs and formulas.
VERBATIM = re.compile(
    r"(?P<fence>^[ ]{0,3}(?P<mark>`{3,}|~{3,})[^\n]*\n(?:.*?\n)??[ ]{0,3}(?P=mark)[^\S\n]*$)"
    r"|`[^`\n]+`"
    r"|\b(?:https?|ftp)://[!-~]+"
    r"|\$\$[^$]+\$\$|\$[^$\n]+\$",
    re.MULTILINE | re.DOTALL,
)
LATIN_WORD = re.compile(r"[A-Za-z0-9_+\-/=@#$%&\\^~<>*]+")
# Traces of failed decoding: replacement characters, private use, and what UTF-8 and freshly allocated memory become
# when they are read as GBK.
GARBLED = re.compile("[\ufffd\ue000-\uf8ff\x00-\x08\x0e-\x1f\x7f-\x9f]|锟斤拷|[锟锘]|烫{2,}|屯{3,}")


@dataclass(frozen=True)
class Rule:
    """One rule: a document goes when its measure lies beyond the limit that the configuration gives under `name`."""

    name: str
    measure: Callable[[str], float]


@dataclass(frozen=True)
class Verdict:
    """The rule that a document breaks, what was measured, and the limit."""

    rule: str
    score: float
    threshold: float


def characters(text: str) -> int:
    """Return how many characters are no white space."""
    return len(WHITE_SPACE.sub("", text))


def han_share(text: str) -> float:
    """Return the share of Han characters among Han characters and words of other scripts; 0 when there are neither.

    Code, URLs and formulas are left aside. Words are counted, not their letters: by letters a page of Chinese about
    `torch.nn.functional` is English.
    """
    prose = VERBATIM.sub(" ", text)
    han = len(HAN.findall(prose))
    units = han + len(WORD.findall(prose))
    return han / units if units else 0.0


def characters_without_punctuation(text: str) -> int:
    """Return the longest stretch of prose without punctuation, in characters; a Latin word or number counts as one.

    Code, tables and headings are left aside.
    """
    paragraphs = (text[block.start : block.end] for block in split_blocks(text) if block.kind in ("paragraph", "list"))
    return max((_longest_stretch(paragraph) for paragraph in paragraphs), default=0)


def garbled_share(text: str) -> float:
    """Return the share of characters that failed decoding left."""
    spoiled = sum(len(match) for match in GARBLED.findall(text))
    spoiled += sum(len(match) for match in MOJIBAKE.findall(text))
    return spoiled / len(text) if text else 0.0


RULES = (
    Rule("min_characters", characters),
    Rule("max_garbled_share", garbled_share),
    Rule("min_han_share", han_share),
    Rule("max_characters_without_punctuation", characters_without_punctuation),
)


def judge_document(text: str, config: FilterConfig) -> Verdict | None:
    """Return the first rule that a document breaks, or None for one to keep."""
    for rule in RULES:
        score, threshold = rule.measure(text), getattr(config, rule.name)
        if score < threshold if rule.name.startswith("min_") else score > threshold:
            return Verdict(rule.name, score, threshold)
    return None


def _longest_stretch(paragraph: str) -> int:
    prose = LATIN_WORD.sub("w", PUNCTUATION.sub("\0", VERBATIM.sub("\0", paragraph)))
    return max(map(len, WHITE_SPACE.sub("", prose).split("\0")))
