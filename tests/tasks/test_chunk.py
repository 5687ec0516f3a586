"""Chunks join to their document again and are cut where the author cut."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.schema import TokenizerConfig
from tasks import chunk, dedup, filter, normalize
from tasks.blocks import split_blocks
from tasks.chunk import Chunk, split_chunks
from tasks.documents import read_table
from tasks.tokenizer.training import train_tokenizer
from tests.conftest import SAMPLE, MakeConfig, build_chain

MANUAL = """# 手册

前言一句。

## 安装

先装驱动。再装框架。

```bash
# 不是标题
pip install .
```

## 运行

| 参数 | 含义 |
| --- | --- |
| steps | 步数 |

### 单机

直接运行。
"""


def texts(text: str, target: int) -> list[str]:
    return [text[part.start : part.end] for part in split_chunks(text, target)]


def test_blocks_know_headings_code_and_tables() -> None:
    kinds = [(block.kind, block.level) for block in split_blocks(MANUAL)]
    assert kinds == [
        ("heading", 1), ("paragraph", 0), ("heading", 2), ("paragraph", 0), ("code", 0), ("heading", 2),
        ("table", 0), ("heading", 3), ("paragraph", 0),
    ]  # fmt: skip


def test_chapters_of_plain_text_are_headings() -> None:
    levels = [block.level for block in split_blocks("第三章 优化器\n\n正文。\n\n第二节　学习率\n\n正文。")]
    assert levels == [2, 0, 3, 0]


def test_a_chunk_begins_at_a_section_and_keeps_code_whole() -> None:
    parts = texts(MANUAL, 80)
    assert [part.split("\n")[0] for part in parts] == ["# 手册", "## 运行", "### 单机"]
    assert "```bash\n# 不是标题\npip install .\n```" in parts[0]


def test_a_chunk_knows_the_headings_it_stands_under() -> None:
    assert [part.headings for part in split_chunks(MANUAL, 30)][-1] == ("手册", "运行", "单机")


def test_a_long_paragraph_is_cut_after_sentences() -> None:
    text = "第一句话在这里。" * 50
    parts = texts(text, 100)
    assert all(part.endswith("。") and len(part) <= 100 for part in parts)


def test_a_short_text_is_one_chunk() -> None:
    assert split_chunks("一句。", 100) == [Chunk(0, 3, ())]


def test_no_cut_lies_inside_a_formula_or_code() -> None:
    text = "公式 $a。b。c。d。e$ 与 `f。g。h` 之后。" * 5
    for part in texts(text, 40):
        assert part.count("$") % 2 == 0
        assert part.count("`") % 2 == 0


def test_code_that_is_too_long_alone_is_cut_between_lines() -> None:
    parts = texts("```\n" + "x = 1。y\n" * 50 + "```\n", 60)
    assert all(part.endswith("\n") and len(part) <= 60 for part in parts)


def test_quotes_that_close_a_sentence_stay_with_it() -> None:
    assert texts("他说：“训练结束了。”然后走了。" * 3, 20)[0] == "他说：“训练结束了。”然后走了。"
    assert texts("Version 1.5 came out. Then 2.0 came. ", 30) == ["Version 1.5 came out.", " Then 2.0 came. "]


def test_a_piece_below_the_floor_joins_the_one_before() -> None:
    text = "# 一\n\n" + "正文。" * 20 + "\n\n# 二\n\n短。\n"
    assert len(split_chunks(text, 60)) == 2
    assert len(split_chunks(text, 60, floor=15)) == 1


def test_titles_are_words_without_marks() -> None:
    text = "标题一\n======\n\n甲。\n\n<h2>标题二</h2>\n\n乙。\n\n\\subsection{标题三}\n\n丙。\n\n#### 标题四 ##\n\n丁。"
    assert split_chunks(text, 12)[-1].headings == ("标题一", "标题二", "标题三", "标题四")


def test_the_configured_tokenizer_says_how_long_a_token_is(make_config: MakeConfig, tmp_path: Path) -> None:
    train_tokenizer(["训练"], TokenizerConfig(vocab_size=512), tmp_path / "bytes")
    config = make_config(
        inputs=[{"path": str(SAMPLE / "articles"), "source": "articles"}],
        pack={"seq_length": 256, "tokenizer": {"path": str(tmp_path / "bytes")}},
    )
    *_, chunked = build_chain(config, normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE)
    assert 0.3 < chunked.manifest.stats["characters_per_token_estimated"] < 0.6  # nearly a token a byte


@settings(deadline=None)
@given(st.text("一二。\n #`|-a第章1", max_size=300), st.integers(1, 50), st.integers(0, 30))
def test_chunks_join_to_the_text_again(text: str, target: int, floor: int) -> None:
    assert "".join(text[part.start : part.end] for part in split_chunks(text, target, floor)) == text


def test_real_long_documents_join_again(corpus: Path) -> None:
    for file in sorted((corpus / "long").glob("*.md")):
        text = file.read_text(encoding="utf-8")
        parts = texts(text, 6554)
        assert "".join(parts) == text
        assert len(parts) > 1


@pytest.mark.parametrize("seq_length", [64, 512])
def test_the_sample_s_manual_is_cut_at_its_headings(make_config: MakeConfig, seq_length: int) -> None:
    config = make_config(
        inputs=[{"path": str(SAMPLE / "troubles"), "source": "troubles"}], pack={"seq_length": seq_length}
    )
    stages = (normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE)
    *_, filtered, chunked = build_chain(config, *stages)
    documents = {row["id"]: row["text"] for path in filtered.shards for row in read_table(path).to_pylist()}
    joined = dict.fromkeys(documents, "")
    ends = dict.fromkeys(documents, 0)
    for row in (row for path in chunked.shards for row in read_table(path).to_pylist()):
        assert row["start"] == len(joined[row["document_id"]])
        joined[row["document_id"]] += row["text"]
        ends[row["document_id"]] += row["last"]
    assert joined == documents
    assert set(ends.values()) == {1}
