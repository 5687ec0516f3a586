"""Every format gives its records; what is broken is named with its place, and reading goes on."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import pyarrow as pa
import pyarrow.parquet as pq
import pypdfium2
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from tasks.readers import FORMATS, read_records
from tasks.readers.lines import count_newlines
from tasks.readers.records import BadRecord, Content, Limits, Record

LINES = '{"id": "a", "text": "第一条", "topic": "x"}\n{"text": "断行\u2028仍是一条"}\n\n{"text": "第三条"}'
TEXTS = ["第一条", "断行\u2028仍是一条", "第三条"]


def content(path: Path, **changes: Any) -> Content:
    limits = Limits(changes.pop("document_bytes", 2**20), changes.pop("unpacked_bytes", 2**30))
    return Content(str(path), lambda: path.open("rb"), "text", "id", limits, **changes)


def read(path: Path, **changes: Any) -> list[Record | BadRecord]:
    return list(read_records(content(path, **changes)))


def bad(records: list[Record | BadRecord]) -> list[tuple[str, str]]:
    return [(record.place, record.rule) for record in records if isinstance(record, BadRecord)]


def texts(records: list[Record | BadRecord]) -> list[str]:
    return [record.text for record in records if isinstance(record, Record)]


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def packed(folder: Path, kind: str) -> Path:
    path = folder / f"records.jsonl{kind}"
    lines = LINES.encode()
    path.write_bytes(COMPRESS[kind](lines))
    return path


@pytest.mark.parametrize("kind", COMPRESS)
def test_json_lines_end_at_newline_alone(tmp_path: Path, kind: str) -> None:
    records = read(packed(tmp_path, kind))
    assert texts(records) == TEXTS
    assert [record.place for record in records] == ["1", "2", "4"]
    first = records[0]
    assert isinstance(first, Record)
    assert first.meta == {"id": "a", "topic": "x", "encoding": "utf-8", "encoding_confidence": 1.0}


@pytest.mark.parametrize("kind", [".gz", ".zst"])
def test_a_truncated_archive_gives_what_is_whole_and_names_the_rest(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"cut.jsonl{kind}"
    lines = "".join(f'{{"text": "{number} {number * 7919 % 10007} 训练语料"}}\n' for number in range(50_000)).encode()
    whole = gzip.compress(lines) if kind == ".gz" else zstandard.compress(lines)
    path.write_bytes(whole[: len(whole) // 2])
    records = read(path)
    assert bad(records) == [(str(len(records)), "damaged_archive")]
    assert len(texts(records)) == len(records) - 1 > 1000


def test_an_archive_of_several_frames_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "frames.jsonl.zst"
    path.write_bytes(b"".join(zstandard.compress(f'{{"text": "{n}"}}\n'.encode()) for n in range(3)))
    assert texts(read(path)) == ["0", "1", "2"]


def test_broken_lines_are_named_and_the_others_read(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes('{"text": "好"}\n{"text": "断\n{"body": "没有"}\n[1]\n{"text": 5}\n{"text": "也好"}\n'.encode())
    records = read(path)
    assert texts(records) == ["好", "也好"]
    assert bad(records) == [
        ("2", "broken_json_line"),
        ("3", "no_text_field"),
        ("4", "broken_json_line"),
        ("5", "no_text_field"),
    ]


def test_parquet_rows_keep_their_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": ["r1", "r2"], "text": ["甲", "乙"], "year": [2020, 2021]}), path)
    assert read(path) == [Record("1", "甲", {"year": 2020, "id": "r1"}), Record("2", "乙", {"year": 2021, "id": "r2"})]


def test_a_truncated_parquet_file_is_one_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    pq.write_table(pa.table({"text": ["甲" * 1000] * 100}), path)
    path.write_bytes(path.read_bytes()[:-100])
    assert [rule for _, rule in bad(read(path))] == ["damaged_parquet"]


def test_a_parquet_file_without_the_text_column_says_which_it_has(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"body": ["甲"]}), path)
    (record,) = read(path)
    assert isinstance(record, BadRecord)
    assert "body" in record.detail


def test_an_undecodable_file_is_one_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "noise.txt"
    path.write_bytes(bytes(range(128, 256)) * 3 + b"\xff\xff")
    assert [rule for _, rule in bad(read(path))] == ["unknown_encoding"]


PAGE = """<!doctype html><html><head><title>页面</title></head><body>
<nav><ul><li><a href="/">首页</a></li><li><a href="/docs">文档</a></li><li><a href="/login">登录</a></li></ul></nav>
<main><article><h1>混合精度训练</h1>
<p>混合精度训练用半精度计算，用单精度保存主权重，这样既快又稳，显存也省下近一半。</p>
<h2>损失缩放</h2><p>半精度的指数位少，小的梯度会变成零，所以先把损失放大，再在更新之前缩小回来。</p>
<pre><code>scale_factor = 2
</code></pre>
<p>动态缩放每隔一千步试着加倍，溢出时减半。</p></article></main>
<footer>版权所有 © 2026</footer></body></html>"""
EXTRACTED = [
    "# 混合精度训练", "混合精度训练用半精度计算，用单精度保存主权重，这样既快又稳，显存也省下近一半。", "## 损失缩放",
    "半精度的指数位少，小的梯度会变成零，所以先把损失放大，再在更新之前缩小回来。", "```", "scale_factor = 2", "```",
    "动态缩放每隔一千步试着加倍，溢出时减半。",
]  # fmt: skip


def test_a_page_gives_its_main_text_with_headings_and_code(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGE, encoding="gb18030")
    (record,) = read(path)
    assert isinstance(record, Record)
    assert [line for line in record.text.split("\n") if line.strip()] == EXTRACTED
    assert record.meta["encoding"] == "gb18030"


def test_a_page_in_a_json_line_is_a_page_too(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    path.write_text(json.dumps({"text": PAGE}), encoding="utf-8")
    (text,) = texts(read(path))
    assert [line for line in text.split("\n") if line.strip()] == EXTRACTED


def test_a_page_without_main_text_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    path.write_text("<!doctype html><html><body><script>var x = 1;</script></body></html>", encoding="utf-8")
    assert bad(read(path)) == [("", "no_main_text")]


def test_deeply_nested_html_is_read_or_listed(tmp_path: Path) -> None:
    path = tmp_path / "deep.html"
    path.write_text(
        f"<!doctype html><html><body>{'<div>' * 20_000}<p>深处的一句话。</p></body></html>", encoding="utf-8"
    )
    (record,) = read(path)
    assert isinstance(record, Record | BadRecord)


def test_a_notebook_gives_its_cells_and_no_output(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# 标题\n", "正文。"]},
        {"cell_type": "code", "source": "x = 1\n", "outputs": [{"text": "不要"}]},
        {"cell_type": "code", "source": []},
    ]
    path = tmp_path / "book.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}), encoding="utf-8")
    assert texts(read(path)) == ["# 标题\n正文。\n\n```python\nx = 1\n```"]
    path.write_text('{"worksheets": []}', encoding="utf-8")
    assert bad(read(path)) == [("", "damaged_notebook")]


def test_a_word_document_keeps_headings_and_tables(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_heading("手册", 0)
    document.add_heading("安装", 2)
    document.add_paragraph("先装驱动。")
    table = document.add_table(2, 2)
    for cell, text in zip(
        (cell for row in table.rows for cell in row.cells), "参数 含义 steps 步数".split(), strict=True
    ):
        cell.text = text
    path = tmp_path / "manual.docx"
    document.save(str(path))
    expected = "# 手册\n\n## 安装\n\n先装驱动。\n\n| 参数 | 含义 |\n| --- | --- |\n| steps | 步数 |"
    assert texts(read(path)) == [expected]
    path.write_bytes(b"\xd0\xcf\x11\xe0 encrypted")
    assert bad(read(path)) == [("", "protected_document")]
    path.write_bytes(path.read_bytes()[4:])
    assert bad(read(path)) == [("", "damaged_document")]


def one_page_pdf(text: str) -> bytes:
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    parts = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    body = b"%PDF-1.4\n" + b"".join(b"%d 0 obj%s endobj\n" % (index, part) for index, part in enumerate(parts, start=1))
    return body + b"trailer<</Root 1 0 R/Size 6>>\n%%EOF"


def test_a_pdf_gives_its_text_layer(tmp_path: Path) -> None:
    path = tmp_path / "paper.pdf"
    path.write_bytes(one_page_pdf("The loss falls with every step."))
    (record,) = read(path)
    assert record == Record("", "The loss falls with every step.", {"pages": 1})
    path.write_bytes(one_page_pdf(""))
    assert bad(read(path)) == [("", "no_text_layer")]
    path.write_bytes(b"no PDF")
    assert bad(read(path)) == [("", "damaged_document")]
    assert pypdfium2.PdfDocument(one_page_pdf("x"))  # the pages above are valid ones


@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
def test_rows_of_a_csv_may_hold_newlines(tmp_path: Path, suffix: str, delimiter: str) -> None:
    path = tmp_path / f"rows{suffix}"
    path.write_text(
        delimiter.join(["id", "text"]) + f'\n1{delimiter}"第一行\n第二行"\n2{delimiter}好\n', encoding="gbk"
    )
    records = read(path)
    assert texts(records) == ["第一行\n第二行", "好"]
    assert [record.place for record in records] == ["1", "2"]


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_arrow_files_and_streams_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "rows.arrow"
    table = pa.table({"text": ["甲", "乙"], "n": [1, 2]})
    write = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with path.open("wb") as stream, write(stream, table.schema) as writer:
        writer.write_table(table)
    assert texts(read(path)) == ["甲", "乙"]
    path.write_bytes(path.read_bytes()[:60])
    assert bad(read(path)) == [("1", "damaged_arrow")]


def test_archives_give_their_members_of_every_format(tmp_path: Path) -> None:
    members = {
        "文档/甲.txt": "甲文".encode("gbk"),
        "b.jsonl": b'{"text": "x"}\n{"text": "y"}\n',
        "skip.png": b"\x89PNG",
    }
    with zipfile.ZipFile(tmp_path / "files.zip", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tgz", "w:gz"), (".tar.xz", "w:xz")):
        with tarfile.open(tmp_path / f"files{suffix}", mode) as tar:  # type: ignore[call-overload]
            for name, data in members.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    for path in sorted(tmp_path.iterdir()):
        records = read(path)
        assert [(record.place, record.text) for record in records if isinstance(record, Record)] == [
            ("文档/甲.txt", "甲文"), ("b.jsonl#1", "x"), ("b.jsonl#2", "y"),
        ], path.name  # fmt: skip


def test_a_protected_or_damaged_archive_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "files.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "甲")
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1  # the bit that says: encrypted
    path.write_bytes(data)
    assert bad(read(path)) == [("a.txt", "protected_document")]
    path.write_bytes(b"PK no archive")
    assert bad(read(path)) == [("", "damaged_archive")]


def test_a_web_archive_gives_its_pages_with_address(tmp_path: Path) -> None:
    path = tmp_path / "crawl.warc.gz"
    with path.open("wb") as stream:
        writer = WARCWriter(stream, gzip=True)
        for address, kind, body in (("http://a.cn/1", "text/html", PAGE), ("http://a.cn/x.css", "text/css", "p {}")):
            headers = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.0")
            writer.write_record(
                writer.create_warc_record(address, "response", io.BytesIO(body.encode()), http_headers=headers)
            )
    (record,) = read(path)
    assert isinstance(record, Record)
    assert (record.place, record.meta["url"]) == ("http://a.cn/1", "http://a.cn/1")
    assert record.text.startswith("# 混合精度训练")


@pytest.mark.parametrize("name", ["bomb.jsonl.gz", "bomb.jsonl.zst", "bomb.tar.gz", "bomb.zip"])
def test_an_archive_bomb_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    zeros = b"0" * 10_000_000
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.txt", zeros)
    else:
        path.write_bytes(gzip.compress(zeros) if name.endswith("gz") else zstandard.compress(zeros))
    assert [rule for _, rule in bad(read(path, unpacked_bytes=1_000_000))] == ["archive_bomb"]


def test_a_line_or_file_over_the_limit_is_listed_and_the_rest_read(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text('{"text": "好"}\n' + '{"text": "' + "长" * 1000 + '"}\n{"text": "也好"}\n', encoding="utf-8")
    records = read(path, document_bytes=500)
    assert texts(records) == ["好", "也好"]
    assert bad(records) == [("2", "too_large")]
    path = tmp_path / "long.txt"
    path.write_text("长" * 1000, encoding="utf-8")
    assert bad(read(path, document_bytes=500)) == [("", "too_large")]


def test_nul_bytes_and_pairs_of_surrogates(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b'{"text": "a\\u0000b"}\n{"text": "\\ud83d\\udd25"}\n{"text": "\\ud83d"}\n')
    records = read(path)
    assert texts(records) == ["a\x00b", "🔥", "\ufffd"]  # half a pair stands for nothing, but the rest of a text does
    assert bad(records) == []


@settings(deadline=None)
@given(st.lists(st.text("字a ", max_size=8), max_size=12), st.integers(1, 40), st.booleans())
def test_a_file_cut_anywhere_gives_the_same_records(words: list[str], step: int, ends: bool) -> None:
    data = "\n".join(json.dumps({"text": word}, ensure_ascii=False) for word in words).encode() + b"\n" * ends

    def part(begin: int, end: int | None, first: int) -> Content:
        return Content("x.jsonl", lambda: io.BytesIO(data), "text", "id", Limits(2**20, 2**30), begin, end, first)

    found, before = [], 0
    for begin in range(0, max(1, len(data)), step):
        end = min(begin + step, len(data))
        found += list(read_records(part(begin, end, before + 2 if begin else 1)))
        before += count_newlines(part(begin, end, 1))
    assert found == list(read_records(part(0, None, 1)))


NOT_DECIDABLE = {"python_big5hkscs.txt"}  # 23 bytes of rare characters, valid in GB18030 too


def test_every_file_of_a_larger_collection_is_read_in_its_encoding(corpus: Path) -> None:
    listed = {"gbk": "gb18030", "gb2312": "gb18030", "big5": "cp950", "utf-16-le": "utf-16", "utf-8-sig": "utf-8-sig"}
    for line in (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        file = corpus / entry["file"]
        records = read(file) if file.suffix.lower() in FORMATS else []
        assert [record for record in records if isinstance(record, BadRecord)] == [], file
        if file.suffix == ".txt" and file.name not in NOT_DECIDABLE:
            (record,) = records
            assert isinstance(record, Record)
            assert record.meta["encoding"] == listed.get(entry["encoding"], entry["encoding"]), file
            twin = file.parent / "expected_utf8" / f"{file.name}.utf8.txt"
            twin = twin if twin.exists() else twin.with_name(f"{file.stem}.utf8.txt")
            if twin.exists():
                assert record.text.lstrip("\ufeff") == twin.read_bytes().decode().lstrip("\ufeff"), file
