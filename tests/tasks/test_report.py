"""A record is kept while a run goes on; its report says what went wrong, hides secrets, and runs nothing."""

import json
import logging
import re
from pathlib import Path

import pytest

from configs.errors import PipelineError
from tasks import dedup, filter, normalize
from tasks.artifact import Workspace
from tasks.record import Recorder, read_record
from tasks.report import render, write_report
from tests.conftest import SAMPLE, MakeConfig, build_chain, removed_by


def recorder(make_config: MakeConfig, workspace: Workspace) -> Recorder:
    return Recorder(workspace, "pretrain", "configs/my.yaml", make_config(), "http://127.0.0.1:4200/runs/flow-run/1")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "runs")


def test_a_failed_run_says_where_and_why_without_secrets_or_markup(
    workspace: Workspace, make_config: MakeConfig, raw: Path
) -> None:
    run = recorder(make_config, workspace)
    with pytest.raises(PipelineError), run.stage("dedup"):
        raise PipelineError("x")
    run.end("failed", "s3://user:abc123@host/raw: <script>alert(1)</script>")
    page = render(read_record(workspace.root), workspace)
    assert "dedup: s3://***@host/raw: &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
    assert "failed <" in page


def test_a_report_shows_what_was_taken_out_and_loads_nothing(workspace: Workspace, make_config: MakeConfig) -> None:
    config = make_config(inputs=[{"path": str(SAMPLE / "troubles"), "source": "troubles"}])
    run = recorder(make_config, workspace)
    made = build_chain(config, normalize.STAGE, dedup.STAGE, filter.STAGE)
    for artifact in made:
        with run.stage(artifact.manifest.stage) as timer:
            timer.key, timer.cached = artifact.manifest.key, artifact.manifest.stage == "normalize"
    run.end("completed")
    write_report(run.record, workspace, run.page)
    page = run.page.read_text(encoding="utf-8")
    stats = made[1].manifest.stats
    kept = f"{stats['documents_kept']} of {stats['documents_in']} documents kept, {stats['characters']} characters"
    assert kept in page
    ((rule, count), *_) = removed_by(made[1].manifest).items()
    assert re.search(rf'<td>{rule}</td><td class="n">{count}</td>', page)
    assert "从原始文档到词元" in page
    addresses = set(re.findall(r"(?:src|href)=\"([^\"]+)\"", page))
    assert addresses <= {"data:,", "http://127.0.0.1:4200/runs/flow-run/1"}, "nothing is loaded from elsewhere"


def test_two_runs_in_one_second_have_records_of_their_own(workspace: Workspace, make_config: MakeConfig) -> None:
    ids = {recorder(make_config, workspace).record.id for _ in range(3)}
    assert len(ids) == len(list((workspace.root / "records").glob("*.json"))) == 3


def test_an_artifact_that_is_gone_is_said(workspace: Workspace, make_config: MakeConfig) -> None:
    run = recorder(make_config, workspace)
    with run.stage("chunk") as timer:
        timer.key = "0" * 24
    run.end("completed")
    assert "the artifact is gone" in render(run.record, workspace)


def test_a_damaged_record_is_named(workspace: Workspace, make_config: MakeConfig) -> None:
    run = recorder(make_config, workspace)
    file = workspace.root / "records" / f"{run.record.id}.json"
    file.write_text(json.dumps({"id": 1}), encoding="utf-8")
    with pytest.raises(PipelineError, match="damaged, or no record of a run"):
        read_record(file)
    with pytest.raises(PipelineError, match="no record of a run there"):
        read_record(workspace.root / "elsewhere")


def test_a_record_that_cannot_be_written_costs_nothing_but_itself(
    workspace: Workspace, make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a disk is full or read-only, what the run itself says of it is worth more."""
    workspace.root.mkdir()
    (workspace.root / "records").touch()
    with caplog.at_level(logging.WARNING, "mindpretrain"):
        run = recorder(make_config, workspace)
        run.end("failed", "no space left")
    assert run.record.outcome == "failed"
    assert "the record could not be written: " in caplog.text
