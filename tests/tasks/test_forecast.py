"""What is said to be written is never less than what is, nor many times as much."""

import logging
import shutil
from pathlib import Path

import pytest

from tasks import chunk, dedup, filter, forecast, normalize, pack
from tasks.artifact import Artifact
from tasks.raw import list_raw_files
from tasks.stage import StageInput
from tests.conftest import BenchRecords, MakeConfig, build_chain
from tests.tasks.dedup.test_index import write_batch

STAGES = (normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE, pack.STAGE)


def size_of(artifact: Artifact) -> int:
    return sum(file.bytes for file in artifact.manifest.files)


def test_forecasts_of_the_data_stages(bench_records: BenchRecords, tmp_path: Path, make_config: MakeConfig) -> None:
    texts = [row["text"] for row in bench_records("papers_zh", 1500)]
    write_batch(tmp_path / "batch", texts, 0)
    config = make_config(
        inputs=[{"path": str(tmp_path / "batch"), "source": "papers"}],
        pack={"seq_length": 256, "tokenizer": {"vocab_size": 4000}},
    )
    made = build_chain(config, *STAGES)
    inputs: list[StageInput] = [list_raw_files(config), *(artifact.manifest for artifact in made)]
    for stage, given, artifact in zip(STAGES, inputs, made, strict=False):
        foreseen = forecast.bytes_to_write(stage.name, config, [given])
        assert size_of(artifact) <= foreseen, stage.name
        assert foreseen <= 8 * size_of(artifact), stage.name


def test_a_disk_that_is_too_small_is_said_before_the_stage_begins(
    raw: Path, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (raw / "a.txt").write_text("磁盘快要写满了。" * 100, encoding="utf-8")
    full = shutil._ntuple_diskusage(100, 99, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with caplog.at_level(logging.WARNING, "mindpretrain"):
        build_chain(make_config(), normalize.STAGE)
    assert "normalize: it may write up to 2.4 KB, but" in caplog.text
    assert "has 1 B left" in caplog.text
