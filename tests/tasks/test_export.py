"""Plain text: one paragraph a line, documents apart, and nothing lost."""

from pathlib import Path

import pytest

from configs.errors import PipelineError
from tasks import chunk, dedup, filter, normalize, pack
from tasks.export import export_text, one_paragraph_a_line
from tests.conftest import SAMPLE, MakeConfig, build_chain


def test_wrapped_lines_are_joined_and_code_keeps_its_lines() -> None:
    prose = "# 标题\n\n第一行，\n第二行有\nEnglish words\nwrapped too.\n\n"
    others = "```\na = 1\n\n  b = 2\n```\n\n- 一项\n- 两项\n\n| a |\n| - |\n"
    lines = one_paragraph_a_line(prose + others).split("\n")
    assert lines[:2] == ["# 标题", "第一行，第二行有 English words wrapped too."]
    assert lines[2:] == ["```", "a = 1", "  b = 2", "```", "- 一项", "- 两项", "| a |", "| - |"]
    assert one_paragraph_a_line("这是一句话\n分成两行。") == "这是一句话分成两行。"


def test_chunks_and_documents_give_the_same_text(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(inputs=[{"path": str(SAMPLE / "articles"), "source": "articles"}], pack={"seq_length": 64})
    *_, filtered, chunked = build_chain(config, normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE)
    documents = filtered.manifest.stats["documents_kept"]
    assert export_text(filtered.folder, tmp_path / "documents.txt") == documents
    assert export_text(chunked.folder, None) == documents
    text = (tmp_path / "documents.txt").read_text(encoding="utf-8")
    assert capsys.readouterr().out == text
    assert text.count("\n\n") == documents
    assert text.startswith("# 字节级 BPE 分词\n")


def test_an_artifact_without_text_is_named(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(
        inputs=[{"path": str(SAMPLE / "articles"), "source": "articles"}],
        pack={"seq_length": 64, "tokenizer": {"vocab_size": 600}},
    )
    stages = (normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE, pack.STAGE)
    packed = build_chain(config, *stages)[-1]
    with pytest.raises(PipelineError, match="a pack artifact holds no text; give one of chunk or before"):
        export_text(packed.folder, tmp_path / "out.txt")
    assert not (tmp_path / "out.txt").exists()
