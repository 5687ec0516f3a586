"""What a kept run, a state or its index needs stays; the rest goes, the longest unused first."""

import fcntl
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from configs.errors import PipelineError
from tasks import dedup, filter, normalize
from tasks.artifact import Artifact, Workspace
from tasks.files import write_json
from tasks.housekeeping import Stored, parse_days, removable, remove, stored_artifacts, verify
from tasks.incremental.states import State, States
from tasks.record import RunRecord, StageRecord
from tests.conftest import MakeConfig, build_chain

CHAIN = (normalize.STAGE, dedup.STAGE, filter.STAGE)
NOW = timedelta(0)


def record(workspace: Workspace, number: int, artifacts: list[Artifact], outcome: str = "completed") -> None:
    made = [StageRecord(stage=one.manifest.stage, key=one.manifest.key, cached=False, seconds=1) for one in artifacts]
    run = RunRecord(
        id=f"2026010{number}T000000-run", flow="pretrain", config_file="run.yaml", config={},
        started=datetime(2026, 1, number, tzinfo=UTC), outcome=outcome, stages=made,
    )  # fmt: skip
    write_json(workspace.root / "records" / f"{run.id}.json", run.model_dump(mode="json"))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "runs")


def chain(raw: Path, make_config: MakeConfig, text: str, **sections: object) -> list[Artifact]:
    for old in raw.iterdir():
        old.unlink()
    (raw / f"{text}.txt").write_text(text * 40, encoding="utf-8")
    return build_chain(make_config(**sections), *CHAIN)


def unneeded(stored: list[Stored]) -> list[str]:
    return [one.stage for one in stored if one.needed_by is None]


def test_only_the_newest_runs_keep_what_they_made(workspace: Workspace, raw: Path, make_config: MakeConfig) -> None:
    older, newer = (chain(raw, make_config, text) for text in ("第一次的内容。", "第二次的内容。"))
    record(workspace, 1, older)
    record(workspace, 2, newer)
    assert unneeded(stored_artifacts(workspace, 2)) == []
    stored = stored_artifacts(workspace, 1)
    assert sorted(unneeded(stored)) == ["dedup", "filter", "normalize", "scores"]
    for one in removable(stored, NOW, None):
        assert remove(one)
    left = {one.key for one in stored_artifacts(workspace, 1)}
    assert {one.manifest.key for one in newer} <= left
    assert not {one.manifest.key for one in older} & left
    assert [verify(workspace, one) for one in stored_artifacts(workspace, 1)] == [None] * 4


def test_a_run_that_goes_on_keeps_what_it_made(workspace: Workspace, raw: Path, make_config: MakeConfig) -> None:
    record(workspace, 1, chain(raw, make_config, "还在运行的内容。"), outcome="running")
    record(workspace, 2, [])
    with (workspace.root / "records" / ".20260101T000000-run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert unneeded(stored_artifacts(workspace, 1)) == []
    assert len(unneeded(stored_artifacts(workspace, 1))) == 4, "it was killed, and could not write that it ended"


def test_a_state_keeps_its_index_and_the_documents_behind_it(
    workspace: Workspace, raw: Path, make_config: MakeConfig
) -> None:
    first = chain(raw, make_config, "第一夜的内容。")
    second = chain(raw, make_config, "第二夜的内容。", dedup={"index": str(first[1].folder)})
    record(workspace, 1, [])
    made = datetime.now(UTC)
    kept = {"dedup": second[1].manifest.key}
    States(workspace).folder.mkdir()
    States(workspace).add(State(number=0, parent=None, made=made, artifacts=kept, tokens=1))
    needed = {one.key for one in stored_artifacts(workspace, 1) if one.needed_by == "state 0"}
    assert {one.manifest.key for one in (*first[:2], *second[:2])} <= needed
    assert first[2].manifest.key not in needed


def test_what_was_used_lately_or_is_within_the_size_stays(
    workspace: Workspace, raw: Path, make_config: MakeConfig
) -> None:
    chain(raw, make_config, "没有人需要的内容。")
    stored = stored_artifacts(workspace, 1)
    assert removable(stored, timedelta(days=1), None) == []
    total = sum(one.bytes for one in stored)
    assert removable(stored, NOW, total) == []
    assert removable(stored, NOW, total - 1) == stored[:1], "the longest unused one is enough"


def test_what_is_being_made_is_left(workspace: Workspace, raw: Path, make_config: MakeConfig) -> None:
    made = chain(raw, make_config, "正在写的内容。")[0]
    (stored,) = [one for one in stored_artifacts(workspace, 1) if one.stage == "normalize"]
    with (made.folder.parent / f".{made.manifest.key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not remove(stored)
    assert made.folder.is_dir()


def test_a_changed_byte_is_found_although_size_and_time_are_the_same(
    workspace: Workspace, raw: Path, make_config: MakeConfig
) -> None:
    made = chain(raw, make_config, "会坏掉的内容。")[0]
    file = made.shards[0]
    status, content = file.stat(), bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    (stored,) = [one for one in stored_artifacts(workspace, 1) if one.stage == "normalize"]
    assert "part-00000.parquet: missing or changed since it was made" in str(verify(workspace, stored))


@pytest.mark.parametrize(("text", "hours"), [("30d", 720), ("12h", 12)])
def test_times(text: str, hours: int) -> None:
    assert parse_days(text) == timedelta(hours=hours)


def test_a_time_without_a_unit_is_refused() -> None:
    with pytest.raises(PipelineError, match="such as 30d or 12h"):
        parse_days("30")
