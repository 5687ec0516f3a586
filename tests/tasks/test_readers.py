"""Every format gives its records; what is broken is named with its place, and reading goes on."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tasks.raw import RawFile
from tasks.readers import BadRecord, Record, read_records

LINES = '{"id": "a", "text": "第一条", "topic": "x"}\n{"text": "断行\u2028仍是一条"}\n\n{"text": "第三条"}'
TEXTS = ["第一条", "断行\u2028仍是一条", "第三条"]


def raw_file(path: Path) -> RawFile:
    return RawFile(str(path), path.name, "raw", "text", "id", path.stat().st_size, "")


def read(path: Path) -> list[Record | BadRecord]:
    return list(read_records(raw_file(path)))


def texts(records: list[Record | BadRecord]) -> list[str]:
    return [record.text for record in records if isinstance(record, Record)]


def packed(folder: Path, kind: str) -> Path:
    path = folder / f"records.jsonl{kind}"
    lines = LINES.encode()
    path.write_bytes({"": lines, ".gz": gzip.compress(lines), ".zst": zstandard.compress(lines)}[kind])
    return path


@pytest.mark.parametrize("kind", ["", ".gz", ".zst"])
def test_json_lines_end_at_newline_alone(tmp_path: Path, kind: str) -> None:
    records = read(packed(tmp_path, kind))
    assert texts(records) == TEXTS
    assert [record.place for record in records] == ["1", "2", "4"]
    first = records[0]
    assert isinstance(first, Record)
    assert first.meta == {"id": "a", "topic": "x", "encoding": "utf-8"}


@pytest.mark.parametrize("kind", [".gz", ".zst"])
def test_a_truncated_archive_gives_what_is_whole_and_names_the_rest(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"cut.jsonl{kind}"
    lines = "".join(f'{{"text": "{number} {number * 7919 % 10007} 训练语料"}}\n' for number in range(50_000)).encode()
    whole = gzip.compress(lines) if kind == ".gz" else zstandard.compress(lines)
    path.write_bytes(whole[: len(whole) // 2])
    records = read(path)
    bad = records[-1]
    assert isinstance(bad, BadRecord)
    assert bad.rule == "damaged_archive"
    assert int(bad.place) == len(records)
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
    bad = [(record.place, record.rule) for record in records if isinstance(record, BadRecord)]
    assert bad == [("2", "broken_json_line"), ("3", "no_text_field"), ("4", "broken_json_line"), ("5", "no_text_field")]


def test_parquet_rows_keep_their_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": ["r1", "r2"], "text": ["甲", "乙"], "year": [2020, 2021]}), path)
    assert read(path) == [Record("1", "甲", {"year": 2020, "id": "r1"}), Record("2", "乙", {"year": 2021, "id": "r2"})]


def test_a_truncated_parquet_file_is_one_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    pq.write_table(pa.table({"text": ["甲" * 1000] * 100}), path)
    path.write_bytes(path.read_bytes()[:-100])
    (bad,) = read(path)
    assert isinstance(bad, BadRecord)
    assert bad.rule == "damaged_parquet"


def test_a_parquet_file_without_the_text_column_says_which_it_has(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"body": ["甲"]}), path)
    (bad,) = read(path)
    assert isinstance(bad, BadRecord)
    assert "body" in bad.detail


def test_an_undecodable_file_is_one_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "noise.txt"
    path.write_bytes(bytes(range(128, 256)) * 3 + b"\xff\xff")
    (bad,) = read(path)
    assert isinstance(bad, BadRecord)
    assert bad.rule == "unknown_encoding"
