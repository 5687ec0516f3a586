"""Against brute force on 3,000 real documents. `make bench` prints the figures."""

from pathlib import Path

import pytest

from tests.conftest import BenchRecords
from tests.dedup_quality import measure

SOURCES = ("cpp_zh_tw", "mindspore_en", "mindspore_zh", "paddle_zh", "papers_zh", "rocketmq_md")


@pytest.mark.parametrize(("verify", "most_wrong"), [("exact", 0.0), ("signatures", 0.005)])
def test_what_goes_has_a_survivor_and_what_stays_is_no_copy(
    bench_records: BenchRecords, tmp_path: Path, verify: str, most_wrong: float
) -> None:
    texts = [record["text"] for source in SOURCES for record in bench_records(source, 500)]
    found = measure(texts, tmp_path, verify)
    assert found.documents >= 2900
    assert found.removed > 300
    assert found.removed_without_survivor <= most_wrong * found.removed
    assert found.similar_pairs_left <= (0 if verify == "exact" else 0.005 * found.pairs)
    assert found.recall >= 0.98
