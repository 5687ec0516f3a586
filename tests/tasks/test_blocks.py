"""Headings, code, tables, formulas and lists are told apart in every markup that technical texts come in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.blocks import split_blocks


def kinds(text: str) -> list[tuple[str, int]]:
    return [(block.kind, block.level) for block in split_blocks(text)]


def headings(text: str) -> list[tuple[int, str]]:
    return [
        (block.level, text[block.start : block.end].strip()) for block in split_blocks(text) if block.kind == "heading"
    ]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("# 标题", 1), ("###### 六级", 6), ("####### 七个", 0), ("#标签", 0), ("#!/bin/sh", 0), ("#", 0),
        ("<h2>标题</h2>", 2), ("<h7>没有</h7>", 0), ("<header>", 0),
        (r"\section{引言}", 2), (r"\subsection*{方法}", 3), (r"\chapter{绪论}", 1), (r"\sectioning", 0),
        ("第三章 优化器", 2), ("第二节　学习率", 3), ("第一部分 基础", 1), ("第十条 违约", 4), ("第三条路走不通。", 0),
        ("第一次训练", 0),
        ("1.2 安装", 2), ("1.2.3 环境变量", 3), ("2.1概述", 2), ("1. 一项", 0), ("3.5 是一个数。", 0), ("2026.12.01", 0),
        ("3.14159", 0),
    ],
)  # fmt: skip
def test_a_line_is_a_heading_of_its_level(line: str, level: int) -> None:
    found = split_blocks(f"前文。\n\n{line}\n\n后文。")
    assert found[1].level == level
    assert (found[1].kind == "heading") == (level > 0)


def test_underlined_titles_are_headings() -> None:
    text = "标题一\n======\n\n内容。\n\n标题二\n------\n\n内容。\n\n标题三\n~~~~~~\n\n内容。\n"
    assert headings(text) == [(1, "标题一\n======"), (2, "标题二\n------"), (3, "标题三\n~~~~~~")]
    assert headings("========\n文档标题\n========\n\n内容。\n") == [(1, "========\n文档标题\n========")]


def test_a_rule_below_a_paragraph_of_several_lines_is_no_heading() -> None:
    assert headings("一段话的第一行，\n第二行。\n---\n\n后文。") == []


def test_front_matter_is_set_aside() -> None:
    assert kinds("---\ntitle: 题\n---\n\n正文。") == [("code", 0), ("paragraph", 0)]


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ("```\n# 注释\n\n空行\n```", "code"),
        ("~~~python\nx\n~~~", "code"),
        ("> ```\n> x\n> ```", "code"),
        (".. code-block:: python\n\n   x = 1\n\n   y = 2", "code"),
        ("| a | b |\n| - | - |\n| 1 | 2 |", "table"),
        ("+---+---+\n| a | b |\n+===+===+\n| 1 | 2 |\n+---+---+", "table"),
        ("=====  =====\nA      B\n=====  =====\n1      2\n=====  =====", "table"),
        ("<table>\n<tr><td>1</td></tr>\n\n</table>", "table"),
        ("$$\nx = 1\n\ny\n$$", "formula"),
        ("\\begin{equation}\nx = 1\n\\end{equation}", "formula"),
        ("\\[\nx = 1\n\\]", "formula"),
        (".. math::\n\n   x = 1", "formula"),
        ("- 一项\n  接着说", "list"),
        ("1. 一项", "list"),
        ("2、一项", "list"),
        ("没有结尾的围栏\n```", "paragraph"),
    ],
)
def test_what_must_stay_whole_is_one_block(block: str, kind: str) -> None:
    found = split_blocks(f"前文。\n\n{block}\n\n后文。")
    assert [part.kind for part in found] == ["paragraph", kind, "paragraph"]


def test_code_below_two_colons() -> None:
    assert kinds("例如::\n\n    x = 1\n\n    y = 2\n\n后文。") == [("paragraph", 0), ("code", 0), ("paragraph", 0)]


def test_every_entry_of_a_list_is_a_block() -> None:
    assert kinds("- 一\n- 二\n  续\n- 三\n") == [("list", 0)] * 3


MARKS = st.text("#=-~`|+$\\[]<>/.:*123 一第章节条。a\n\r\t\u3000", max_size=200)


@settings(deadline=None, max_examples=500)
@given(MARKS)
def test_blocks_join_to_the_text_again(text: str) -> None:
    assert "".join(text[block.start : block.end] for block in split_blocks(text)) == text
