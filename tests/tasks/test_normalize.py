"""Normalize mends what it should and harms nothing else."""

import json
from pathlib import Path

import ftfy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.errors import PipelineError
from configs.schema import NormalizeConfig
from tasks import normalize
from tasks.documents import read_table
from tasks.normalize import group_files
from tasks.normalize.text import normalize_text
from tasks.raw import RawFile
from tests.conftest import SAMPLE, MakeConfig, build_chain, removed_by

DEFAULT = NormalizeConfig()


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("第一行\r\n第二行\r第三行\u2028第四行\x85第五行", "第一行\n第二行\n第三行\n第四行\n第五行"),
        ("ＭｉｎｄＳｐｏｒｅ　２．９版，好！", "MindSpore 2.9版，好！"),
        ("深度學習框架的編譯器會最佳化運算圖。", "深度学习框架的编译器会最佳化运算图。"),
        ("昇思與昇騰協同訓練模型，開發者無須改動程式。", "昇思与昇腾协同训练模型，开发者无须改动程式。"),
        ("昇思与昇腾协同训练模型", "昇思与昇腾协同训练模型"),
        ("零\u200b宽\ufeff字符\u00ad", "零宽字符"),
        ("康熙部首⼀⽤⾏与补充部首⻓⻔", "康熙部首一用行与补充部首长门"),
        ("行尾空格  \n\n\n\n\n下一段", "行尾空格\n\n\n下一段"),
        ("家庭👨\u200d👩\u200d👧表情", "家庭👨\u200d👩\u200d👧表情"),
    ],
)
def test_each_trouble_is_mended(given_text: str, expected: str) -> None:
    assert normalize_text(given_text, DEFAULT) == expected


@pytest.mark.parametrize(
    "kept",
    [
        "```python\nｘ = '全角（）與繁體'\n```",
        "行内代码 `ｆｏｏ（１）` 不动",
        "公式 $ｘ＝１$ 不动",
        "网址 https://example.com/a_(b)?c=1 后面",
        "中文标点：“引号”，（括号）；《书名》——破折号……",
        "乾隆年间的乾清宫",
    ],
)
def test_code_formulas_and_chinese_punctuation_stay(kept: str) -> None:
    assert normalize_text(kept, DEFAULT) == kept


def test_mojibake_is_repaired_line_by_line() -> None:
    good = "这一行完好，带“引号”与……省略号。"
    text = f"{good}\n{'混合精度训练需要损失缩放'.encode().decode('latin-1')}\n{good}"
    assert normalize_text(text, DEFAULT) == f"{good}\n混合精度训练需要损失缩放\n{good}"


def test_a_step_that_is_off_does_nothing() -> None:
    off = NormalizeConfig(mojibake=False, width=False, conversion="off")
    assert normalize_text("ＡＢＣ學習", off) == "ＡＢＣ學習"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_doing_it_twice_changes_nothing_more(text: str) -> None:
    once = normalize_text(text, DEFAULT)
    assert normalize_text(once, DEFAULT) == once


@given(st.text("机器学习 模型训练，。：；（）“”abcXYZ019.,()\n", min_size=1))
def test_simplified_half_width_text_stays_but_for_blanks(text: str) -> None:
    assert normalize_text(text, DEFAULT).split() == text.split()


def test_hard_cases_come_out_as_expected(corpus: Path) -> None:
    needs_another_conversion = {"t2s-011"}
    failed = []
    for line in (corpus / "hard_cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if "expected" in case and "input" in case and case["id"] not in needs_another_conversion:
            found = normalize_text(case["input"], DEFAULT)
            failed += [] if found == case["expected"] else [(case["id"], found, case["expected"])]
    assert failed == []


def test_good_documents_only_lose_blanks_and_gain_half_width(corpus: Path) -> None:
    """ftfy's own width fixing rewrote 726 of 747 documents; ours leaves every Chinese punctuation mark."""
    for file in sorted((corpus / "simplified").glob("*.md")):
        text = file.read_text(encoding="utf-8")
        found = normalize_text(text, DEFAULT)
        for mark in "，。：；！？“”（）《》、":
            assert found.count(mark) == text.count(mark), (file.name, mark)
    assert ftfy.fix_text("，（好）") != "，（好）"


def test_files_are_grouped_in_order_and_none_is_lost() -> None:
    files = tuple(RawFile(f"/{n}", str(n), "s", "text", "id", size, "") for n, size in enumerate([5, 5, 30, 1, 1]))
    groups = group_files(files, 10)
    assert [[file.bytes for file in group] for group in groups] == [[5, 5], [30], [1, 1]]


def test_the_sample_comes_out_in_one_script_with_its_broken_lines_listed(make_config: MakeConfig) -> None:
    config = make_config(inputs=[{"path": str(SAMPLE / "troubles"), "source": "troubles"}])
    (artifact,) = build_chain(config, normalize.STAGE)
    rows = [row for path in artifact.shards for row in read_table(path).to_pylist()]
    texts = {row["id"].removeprefix("troubles/"): row["text"] for row in rows}
    assert removed_by(artifact.manifest) == {"broken_json_line": 1, "no_text_field": 1}
    assert "昇思" in texts["traditional_fullwidth.txt"]
    assert "昇腾" in texts["traditional_fullwidth.txt"]
    assert not any("\r" in text or "\ufeff" in text for text in texts.values())
    encodings = {row["id"].removeprefix("troubles/"): json.loads(row["meta"])["encoding"] for row in rows}
    assert [encodings[name] for name in ("gbk.txt", "big5.txt", "utf16.txt")] == ["gb18030", "cp950", "utf-16"]


def test_too_many_bad_records_stop_the_stage_and_name_the_first(make_config: MakeConfig, raw: Path) -> None:
    (raw / "bad.jsonl").write_text('{"text": "好"}\n' + "{\n" * 3, encoding="utf-8")
    with pytest.raises(PipelineError, match=r"bad.jsonl:2: ") as caught:
        build_chain(make_config(normalize={"bad_records_limit": 2}), normalize.STAGE)
    assert "normalize.bad_records_limit 2" in str(caught.value)
    (artifact,) = build_chain(make_config(normalize={"bad_records_limit": 3}), normalize.STAGE)
    assert artifact.manifest.stats["documents_kept"] == 1


@pytest.mark.parametrize("make", ["missing", "empty", "unknown"])
def test_an_input_without_files_is_named(make_config: MakeConfig, tmp_path: Path, make: str) -> None:
    folder = tmp_path / "raw"
    if make != "missing":
        folder.mkdir()
    if make == "unknown":
        (folder / "page.xyz").write_text("x")
    with pytest.raises(PipelineError, match=r"raw \(source raw\): no "):
        build_chain(make_config(), normalize.STAGE)
