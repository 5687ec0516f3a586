"""A dataset from elsewhere is checked by what it is: also the one that the usual script writes."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from configs.errors import PipelineError
from configs.schema import TokenizerConfig
from tasks.artifact import Artifact
from tasks.pack.foreign import check_dataset
from tasks.pack.megatron import write_index
from tasks.tokenizer import open_tokenizer
from tests.conftest import SAMPLE

Check = Callable[..., list[str]]


@pytest.fixture
def check(concat: list[Artifact]) -> Check:
    config = TokenizerConfig(path=str(concat[-1].folder / "tokenizer"))

    def run(path: Path, dtype: str | None = None) -> list[str]:
        return [problem for found in check_dataset(path, config, dtype, 0.02) for problem in found.problems]

    return run


def test_our_own_datasets_have_no_problem(check: Check, best_fit: list[Artifact]) -> None:
    folder = best_fit[-1].folder
    assert check(folder) == check(folder / "megatron") == check(folder / "train.json") == []


def test_eos_after_every_line_of_the_usual_script_is_caught(
    check: Check, concat: list[Artifact], tmp_path: Path
) -> None:
    """Lines of articles, each followed by eos, one array of int32 without any header."""
    tokenizer = open_tokenizer(concat[-1].folder / "tokenizer")
    lines = [
        line
        for file in sorted((SAMPLE / "articles").glob("*.md"))
        for line in file.read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]
    ids = np.concatenate([[*encoded, 0] for encoded in tokenizer.encode(lines)]).astype(np.int32)
    ids.tofile(tmp_path / "data.bin")
    problems = check(tmp_path / "data.bin", "int32")
    assert any("most often lines were taken for documents" in problem for problem in problems)


def test_megatron_documents_without_eos_are_counted(check: Check, tmp_path: Path) -> None:
    np.array([5, 6, 0, 7, 8, 9], np.uint16).tofile(tmp_path / "a.bin")
    with (tmp_path / "a.idx").open("wb") as stream:
        write_index(stream, np.array([3, 3]), np.dtype(np.uint16))
    assert "1 of 2 documents do not end with eos (id 0)" in check(tmp_path / "a.bin")


ROWS = json.dumps({"dtype": "uint16", "tokens_a_row": 9, "files": [{"name": "b.bin", "rows": 1}]})


@pytest.mark.parametrize(
    ("name", "content", "dtype", "message"),
    [
        ("a.idx", "nonsense" * 9, None, "not an index of Megatron's"),
        ("a.bin", "123", "int32", "3 bytes are no whole number of int32 ids"),
        (
            "a.bin",
            "1234",
            None,
            r"expected Megatron's \.bin beside its \.idx, rows with a JSON header, or a \.bin with",
        ),
        ("a.bin", "1234", "float7", "expected uint16, int32 or uint32"),
        ("a.json", ROWS, None, r"b\.bin: missing beside its index or header"),
    ],
)
def test_what_cannot_be_read_is_said(  # noqa: PLR0917
    check: Check, tmp_path: Path, name: str, content: str, dtype: str | None, message: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(PipelineError, match=message):
        check(tmp_path / name, dtype)


def test_an_index_that_does_not_fit_its_data_is_refused(check: Check, tmp_path: Path) -> None:
    np.zeros(5, np.uint16).tofile(tmp_path / "a.bin")
    with (tmp_path / "a.idx").open("wb") as stream:
        write_index(stream, np.array([3, 3]), np.dtype(np.uint16))
    with pytest.raises(PipelineError, match=r"documents of 6 tokens, but a\.bin holds 5: cut short"):
        check(tmp_path / "a.idx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PipelineError, match=r"found no \.idx and no header of rows there"):
        check(tmp_path / "empty")
