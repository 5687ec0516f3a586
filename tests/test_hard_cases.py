"""Single hard cases from public reports, each through the stage that it is about."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from configs.schema import FilterConfig, NormalizeConfig
from tasks import dedup, normalize
from tasks.blocks import split_blocks
from tasks.chunk import _title, split_chunks
from tasks.encoding import decode
from tasks.filter import judge
from tasks.normalize.text import normalize_text
from tests.conftest import CORPUS, MakeConfig, build_chain

CASES_FILE = CORPUS / "hard_cases.jsonl"
CASES: list[dict[str, Any]] = (
    [json.loads(line) for line in CASES_FILE.read_text(encoding="utf-8").splitlines()] if CASES_FILE.is_file() else []
)
NEEDS_TAIWAN_TEXT = {"t2s-012"}
"""著裝 is 着装 in simplified script, but t2s cannot tell it from 著 (written by); for Taiwan's text there is tw2s."""
# Most cases are a sentence, which is shorter than a document may be.
ANY_LENGTH = FilterConfig.model_validate({"modes": {"min_characters": "off"}})


def case_id(case: dict[str, Any]) -> str:
    return str(case["id"])


@pytest.mark.parametrize("case", [case for case in CASES if "inputs" not in case], ids=case_id)
def test_a_text_comes_out_as_an_editor_would_have_it(case: dict[str, Any]) -> None:
    raw = base64.b64decode(case["input_b64"]) if "input_b64" in case else None
    text = decode(raw).text if raw is not None else case["input"]
    if raw is not None and "expected" in case:
        assert text == case["expected"]
        return
    conversion = "tw2s" if case["id"] in NEEDS_TAIWAN_TEXT else "t2s"
    found = normalize_text(text, NormalizeConfig.model_validate({"conversion": conversion}))
    assert found == case.get("expected", found)
    for part in case.get("must", ()):
        assert part in found
    for part in case.get("must_not", ()):
        assert part not in found
    if "expected_headings" in case:
        blocks = [block for block in split_blocks(found) if block.kind == "heading"]
        assert [_title(found[block.start : block.end]) for block in blocks] == case["expected_headings"]
    if case["kind"] == "chunking":
        chunks = split_chunks(found, 200)
        assert "".join(found[chunk.start : chunk.end] for chunk in chunks) == found
        assert all(chunk.end - chunk.start <= 200 for chunk in chunks)
    judged(case, found)


def judged(case: dict[str, Any], text: str) -> None:
    """Compare what the filter decides; a repair is as good as a drop."""
    short = judge(text, FilterConfig.model_validate({})).verdict
    verdict = judge(text, ANY_LENGTH).verdict
    match case.get("decision"):
        case "keep":
            assert verdict is None
        case "drop":
            assert verdict is not None or short is not None
        case "repair-or-drop":
            assert text != case["input"] or verdict is not None


@pytest.mark.parametrize("case", [case for case in CASES if "inputs" in case], ids=case_id)
def test_a_pair_is_a_duplicate_or_not(case: dict[str, Any], make_config: MakeConfig, raw: Path) -> None:
    for number, text in enumerate(case["inputs"]):
        (raw / f"{number}.txt").write_text(text, encoding="utf-8")
    _, artifact = build_chain(make_config(), normalize.STAGE, dedup.STAGE)
    if case["expected_duplicates"] is not None:  # null: people differ; the Jaccard similarity decides
        assert (artifact.manifest.stats["documents_kept"] < len(case["inputs"])) == case["expected_duplicates"]


def test_all_cases_were_there(corpus: Path) -> None:
    assert len(CASES) == 67
    assert corpus == CORPUS
