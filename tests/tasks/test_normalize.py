"""Normalize mends what it should and harms nothing else."""

import json
import os
import re
import unicodedata
from collections import Counter
from pathlib import Path

import fsspec
import opencc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import PipelineError
from configs.schema import NormalizeConfig
from tasks import normalize
from tasks.code_points import NEWLINES
from tasks.documents import read_table
from tasks.executor import LocalExecutor
from tasks.normalize import cut_files, group_parts
from tasks.normalize.characters import FULL_WIDTH, INVISIBLE, KANGXI, PRIVATE_USE, RADICALS, SPACES
from tasks.normalize.explain import explain
from tasks.normalize.text import normalize_text
from tasks.raw import RawFile, list_raw_files
from tasks.stage import build_artifact
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
        ("ﾒﾓﾘの容量とﾃﾞｨｽｸ", "メモリの容量とディスク"),
        ("私有\ue000区与控制\x07符", "私有区与控制符"),
        ("兼容汉字\uf9e4", "兼容汉字理"),
        ("第一页\x0c第二页", "第一页\n第二页"),
        ("孤立的代理\ud83d项", "孤立的代理\ufffd项"),
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
        "网址 https://example.com/文件/說明?名=１",
        "[链接](路徑/說明.md) 与 <img alt='ＡＢＣ' src='圖.png'>",
        "~~~\n繁體 ＡＢＣ\n~~~",
        "> ```\n> 繁體 ＡＢＣ  \n> ```",
        "1. 列表\n\n    ```\n    繁體\n    ```",
        "````\n```\n繁體\n````",
        "两个反引号 ``a`繁體`` 不动",
        r"公式 \(繁＝１\) 与 \[體＝２\] 不动",
        "$$\n繁體＝１\n$$",
        "ソフトウェアの開発環境と學習データ",
        "中文标点：“引号”，（括号）；《书名》——破折号……",
        "乾隆年间的乾清宫",
    ],
)
def test_code_formulas_and_chinese_punctuation_stay(kept: str) -> None:
    assert normalize_text(kept, DEFAULT) == kept


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("没有结尾的 ```\n學習", "没有结尾的 ```\n学习"),
        ("單個反引號 ` 之後的學習", "单个反引号 ` 之后的学习"),
        ("價格 $5，對方 $10，都很貴", "价格 $5，对方 $10，都很贵"),
        ("請看https://example.com說明文件", "请看https://example.com说明文件"),
        ("標題一\n~~~~~~\n\n內容\n\n標題二\n~~~~~~", "标题一\n~~~~~~\n\n内容\n\n标题二\n~~~~~~"),
    ],
)
def test_what_only_looks_like_code_is_text(given_text: str, expected: str) -> None:
    assert normalize_text(given_text, DEFAULT) == expected


def test_a_japanese_document_stays_even_where_a_line_has_no_kana() -> None:
    text = "開発環境\n\nこのソフトウェアは、データを読み込んでモデルを學習します。"
    assert normalize_text(text, DEFAULT) == text


def test_mojibake_of_gbk_is_undone_both_ways() -> None:
    text = "混合精度训练需要损失缩放，否则梯度会下溢。"
    assert normalize_text(text.encode("gbk").decode("latin-1"), DEFAULT) == text
    assert normalize_text(f"好的一行\n{text.encode().decode('gb18030', 'replace')}", DEFAULT) == (
        "好的一行\n混合精度训练\ufffd要损失缩放，否则梯度会下溢\ufffd"  # the bytes of 需 and 。 did not survive
    )
    assert normalize_text("Änderungen für Größe, élève à Évry", DEFAULT) == "Änderungen für Größe, élève à Évry"


def test_explain_lists_each_step_and_the_lines_it_changes() -> None:
    steps = dict(explain("ＡＰＩ\r\n學習\u200b \n", DEFAULT))
    assert steps == {
        "mojibake": [],
        "newlines": ["-ＡＰＩ\\r", "+ＡＰＩ"],
        "invisible": ["-學習\\u200b ", "+學習 "],
        "radicals": [],
        "width": ["-ＡＰＩ", "+API"],
        "conversion": ["-學習 ", "+学习 "],
        "blanks": ["-学习 ", "-", "+学习"],
    }


def test_mojibake_is_repaired_line_by_line() -> None:
    good = "这一行完好，带“引号”与……省略号。"
    text = f"{good}\n{'混合精度训练需要损失缩放'.encode().decode('latin-1')}\n{good}"
    assert normalize_text(text, DEFAULT) == f"{good}\n混合精度训练需要损失缩放\n{good}"


def test_a_step_that_is_off_does_nothing() -> None:
    off = NormalizeConfig(mojibake=False, width=False, conversion="off")
    assert normalize_text("ＡＢＣ學習", off) == "ＡＢＣ學習"


MARKS = st.text("`$<>[]()\\~:/ha 1\n\r\t\u200b\ufffd＜＞｀＄［］（）Ａ１：／\u3000學后昇腾の\u0301é涓枃涔Ö")


@settings(deadline=None, max_examples=1000)
@given(st.text(st.characters(exclude_categories=["Cs"])) | MARKS)
def test_doing_it_twice_changes_nothing_more(text: str) -> None:
    once = normalize_text(text, DEFAULT)
    assert normalize_text(once, DEFAULT) == once


@settings(deadline=None)
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


FENCE = re.compile(r"^[ \t]*(`{3,})[^\n`]*\n.*?\n[ \t]*\1`*[ \t]*$", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$\$[^$]+\$\$")
URL = re.compile(r"https?://[!-~]+")
SIMPLIFIED_SOURCES = ("mindspore_zh", "paddle_zh", "papers_zh", "rocketmq_md")


def test_no_code_formula_or_url_of_2000_documents_is_changed(documents: list[tuple[str, str]]) -> None:
    for _, text in documents:
        given = text.replace("\r\n", "\n")
        found = normalize_text(text, DEFAULT)
        for kind in (FENCE, FORMULA, URL):
            left, right = ([match.group() for match in kind.finditer(side)] for side in (found, given))
            assert left == right


def test_simplified_documents_change_only_in_the_classes_that_are_normalized(documents: list[tuple[str, str]]) -> None:
    """Chinese punctuation, digits, Latin letters and every other Han character are the same, and as often, after."""
    lost, gained = Counter[str](), Counter[str]()
    for source, text in documents:
        if source in SIMPLIFIED_SOURCES:
            found = normalize_text(text, NormalizeConfig(conversion="off"))
            lost += Counter(text) - Counter(found)
            gained += Counter(found) - Counter(text)
    listed = {
        *INVISIBLE,
        *PRIVATE_USE,
        *NEWLINES,
        *KANGXI,
        *map(ord, RADICALS),
        *FULL_WIDTH,
        *SPACES,
        ord(" "),
        ord("\t"),
    }
    not_listed = {char for char in lost if ord(char) not in listed and unicodedata.is_normalized("NFC", char)}
    assert not_listed == set()
    assert {chr(code) for code in FULL_WIDTH} & set(lost)  # there were some
    ascii_or_unified = {char for char in gained if ord(char) in range(0x20, 0x7F) or "\u4e00" <= char <= "\u9fff"}
    assert set(gained) - ascii_or_unified <= {"\n"}


def test_conversion_changes_no_simplified_line(documents: list[tuple[str, str]]) -> None:
    to_simplified, to_traditional = opencc.OpenCC("t2s").convert, opencc.OpenCC("s2t").convert
    changed = 0
    for source, text in documents:
        before = normalize_text(text, NormalizeConfig(conversion="off"))
        for line, converted in zip(before.split("\n"), normalize_text(text, DEFAULT).split("\n"), strict=True):
            if line != converted:
                changed += 1
                traditional = {char for char in line if to_simplified(char) != char}
                simplified = {
                    char for char in line if to_traditional(char) != char and not char.encode("cp950", "ignore")
                }
                assert sum(map(line.count, traditional)) > sum(map(line.count, simplified)), (source, line)
    assert changed > 1000


def test_names_that_opencc_spoils_are_as_many_as_before(documents: list[tuple[str, str]]) -> None:
    seen = 0
    for _, text in documents:
        found = normalize_text(text, DEFAULT)
        for word in ("昇思", "昇腾", "显著", "编著"):
            seen += text.count(word)
            assert found.count(word) >= text.count(word)
    assert seen > 100


def test_files_are_grouped_in_order_and_none_is_lost() -> None:
    files = tuple(RawFile(f"/{n}", str(n), "s", "text", "id", size, "") for n, size in enumerate([5, 5, 30, 1, 1]))
    groups = group_parts(cut_files(files, 10), 10)
    assert [[part.file.bytes for part in group] for group in groups] == [[5, 5], [30], [1, 1]]


def test_a_large_file_of_lines_is_cut_into_shards_and_gives_the_same_documents(
    make_config: MakeConfig, raw: Path
) -> None:
    """Lines keep their numbers, so documents keep their names, wherever the file is cut."""
    lines = [
        json.dumps({"text": f"第{number}篇" + "文" * (number * 37 % 300)}, ensure_ascii=False) for number in range(200)
    ]
    (raw / "large.jsonl").write_text("\n".join(lines), encoding="utf-8")
    whole, cut = (
        build_chain(
            make_config(normalize={"shard_bytes": size}, workspace=str(raw.parent / str(size))), normalize.STAGE
        )[0]
        for size in (10**9, 5000)
    )
    assert (len(whole.shards), len(cut.shards) > 10) == (1, True)
    documents = [[row for path in artifact.shards for row in read_table(path).to_pylist()] for artifact in (whole, cut)]
    assert documents[0] == documents[1]
    assert documents[1][150]["id"] == "raw/large.jsonl#151"


@pytest.mark.parametrize(
    ("later", "said"), [("一篇，后来又长了。", "now 27; run"), ("二篇。", "now 9, but others; run")]
)
def test_a_file_that_changed_after_it_was_listed_stops_the_stage(
    make_config: MakeConfig, raw: Path, later: str, said: str
) -> None:
    (raw / "a.txt").write_text("一篇。", encoding="utf-8")
    config = make_config()
    listed = list_raw_files(config)
    (raw / "a.txt").write_text(later, encoding="utf-8")
    with pytest.raises(PipelineError, match=rf"a\.txt: changed while it was read: 9 bytes when it was listed, {said}"):
        build_artifact(normalize.STAGE, config, [listed], LocalExecutor())


def test_a_file_that_was_written_again_as_it_was_has_not_changed(make_config: MakeConfig, raw: Path) -> None:
    (raw / "a.txt").write_text("一篇。", encoding="utf-8")
    config = make_config()
    listed = list_raw_files(config)
    os.utime(raw / "a.txt", ns=(0, 0))
    again = list_raw_files(config)
    assert again.key == listed.key
    assert build_artifact(normalize.STAGE, config, [listed], LocalExecutor()).stats["documents_kept"] == 1


def test_links_out_of_the_folder_are_followed_only_where_asked(
    make_config: MakeConfig, raw: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("外面的文件。", encoding="utf-8")
    (raw / "inside.txt").write_text("里面的文件。", encoding="utf-8")
    (raw / "out.txt").symlink_to(tmp_path / "secret.txt")
    (raw / "in.txt").symlink_to(raw / "inside.txt")
    inputs = [{"path": str(raw), "source": "raw"}]
    names = [file.name for file in list_raw_files(make_config(inputs=inputs)).files]
    assert names == ["in.txt", "inside.txt"]
    followed = list_raw_files(make_config(inputs=[inputs[0] | {"follow_symlinks": True}]))
    assert [file.name for file in followed.files] == ["in.txt", "inside.txt", "out.txt"]


def test_files_of_an_object_store_are_read_through_fsspec(make_config: MakeConfig, raw: Path) -> None:
    """With fsspec's store in memory; the documents' names and texts are those of local files."""
    store = fsspec.filesystem("memory")
    for name, text in (("a.txt", "甲文。"), ("sub/b.jsonl", '{"text": "乙文。"}\n')):
        store.pipe(f"/bucket/{name}", text.encode())
        (raw / name).parent.mkdir(exist_ok=True)
        (raw / name).write_text(text, encoding="utf-8")
    results = []
    for number, path in enumerate(("memory://bucket", "memory://bucket/**", str(raw))):
        config = make_config(inputs=[{"path": path, "source": "raw"}], workspace=str(raw.parent / f"runs-{number}"))
        (artifact,) = build_chain(config, normalize.STAGE)
        results.append([row for shard in artifact.shards for row in read_table(shard).to_pylist()])
    assert results[0] == results[1] == results[2]
    assert [row["id"] for row in results[0]] == ["raw/a.txt", "raw/sub/b.jsonl#1"]
    store.rm("/bucket", recursive=True)


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
