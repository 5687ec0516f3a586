"""The structure of a text: headings, paragraphs, code fences and tables, as spans that join to the text again.

What must stay whole (code, tables) is told apart here once, for the paragraph, filter and chunk rules alike.
"""

import re
from dataclasses import dataclass
from typing import Literal

BlockKind = Literal["heading", "paragraph", "code", "table"]

LINE = re.compile(r"[^\n]*\n|[^\n]+")
FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
MARKDOWN_HEADING = re.compile(r"[ ]{0,3}(#{1,6})[ \t]+\S")
CHAPTER = re.compile(r"第[零〇一二三四五六七八九十百千0-9]{1,6}([篇部章节條条])[ \t：:、]?.{0,40}$")
CHAPTER_LEVELS = {"篇": 1, "部": 1, "章": 2, "节": 3, "條": 4, "条": 4}


@dataclass(frozen=True)
class Block:
    """Characters `start` to `end` of a text, blank lines that follow included. `level`: 1 to 6 for headings, else 0."""

    start: int
    end: int
    kind: BlockKind
    level: int = 0


def split_blocks(text: str) -> list[Block]:
    """Return the blocks of `text`, in order and without gaps."""
    found: list[Block] = []
    fence = ""
    after_blank = False
    position = 0
    for line in LINE.findall(text):
        start, position = position, position + len(line)
        if fence:
            _extend(found, position)
            fence = "" if _closes(line, fence) else fence
        elif opening := FENCE.match(line):
            fence = opening.group(1)
            found.append(Block(start, position, "code"))
        elif not line.strip() and found:
            _extend(found, position)
            after_blank = True
            continue
        else:
            block = _classify(line, start, position)
            joins = found and not after_blank and block.kind == found[-1].kind and block.kind != "heading"
            if joins:
                _extend(found, position)
            else:
                found.append(block)
        after_blank = False
    return found


def _classify(line: str, start: int, end: int) -> Block:
    if heading := MARKDOWN_HEADING.match(line):
        return Block(start, end, "heading", len(heading.group(1)))
    if chapter := CHAPTER.match(line.rstrip()):
        return Block(start, end, "heading", CHAPTER_LEVELS[chapter.group(1)])
    return Block(start, end, "table" if line.lstrip().startswith("|") else "paragraph")


def _closes(line: str, fence: str) -> bool:
    mark = line.strip()
    return set(mark) == {fence[0]} and len(mark) >= len(fence)


def _extend(found: list[Block], end: int) -> None:
    last = found[-1]
    found[-1] = Block(last.start, end, last.kind, last.level)
