"""The whole chain through a real Prefect server, with real training: cached, re-run by stage, retried, killed, mended."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.artifact import read_manifest
from tasks.local_server import LocalServer
from tasks.notify import VARIABLE
from tasks.record import read_record
from tests.conftest import COMMAND, PROJECT, RunCommand, Webhook, files_of
from tests.flows.conftest import STAGES, artifact_of, write_config

PREFECT = Path(sys.executable).with_name("prefect")


def states(output: str) -> dict[str, str]:
    """Return stage to the state it ended in, read off the progress that the command shows."""
    found = {}
    for line in output.splitlines():
        parts = line.split()
        if len(parts) > 2 and parts[2] in ("Completed:", "Cached:"):
            found[parts[1].rstrip(":")] = parts[2].rstrip(":")
    return found


def prefect(server: LocalServer, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PREFECT_API_URL": server.api}
    return subprocess.run(
        [str(PREFECT), "--no-prompt", *arguments],
        cwd=PROJECT, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def last_flow_run(server: LocalServer) -> dict[str, Any]:
    runs: list[dict[str, Any]] = json.loads(
        prefect(server, "flow-run", "ls", "--limit", "1", "--output", "json").stdout
    )
    return runs[0]


def test_the_chain_makes_every_artifact_and_ends_with_a_summary(finished: tuple[Path, str]) -> None:
    config, output = finished
    assert states(output) == dict.fromkeys(STAGES, "Completed")
    for stage in STAGES:
        assert read_manifest(artifact_of(config, stage)).stage == stage
    summary = re.sub(" +", " ", output[output.index("Summary") :])
    for part in (
        "documents in",
        "dedup removed",
        "filter removed",
        "documents kept",
        "tokens",
        "smoke loss",
        f"report {config.parent / 'runs' / 'records'}",
        "Prefect UI",
    ):
        assert part in summary
    trained = read_manifest(artifact_of(config, "pretrain"))
    assert trained.stats["loss_last"] < trained.stats["loss_first"]
    for name in trained.stats["checkpoints"]:
        assert str(artifact_of(config, "pretrain") / name) in summary
        assert (artifact_of(config, "pretrain") / name / "model.safetensors").stat().st_size > 0


def test_the_run_s_page_has_a_table_of_what_each_rule_took_out(finished: tuple[Path, str], server: LocalServer) -> None:
    listed = json.loads(prefect(server, "artifact", "inspect", "filter-removed", "--output", "json").stdout)
    rows = {row["rule"]: row for row in json.loads(listed[0]["data"])}
    assert rows["min_characters"]["removed"] == "documents"
    assert rows["min_characters"]["count"] == 1
    assert rows["min_characters"]["first"].startswith("troubles/short.txt: ")


def test_a_second_run_takes_every_stage_from_the_cache(finished: tuple[Path, str], mindpretrain: RunCommand) -> None:
    assert states(mindpretrain("run", finished[0]).stdout) == dict.fromkeys(STAGES, "Cached")


def test_a_changed_key_runs_its_stage_and_the_later_ones(finished: tuple[Path, str], mindpretrain: RunCommand) -> None:
    output = mindpretrain("run", finished[0], "--set", "filter.min_characters=80", "--until", "pack").stdout
    assert states(output) == dict.fromkeys(["normalize", "dedup"], "Cached") | dict.fromkeys(
        ["filter", "chunk", "pack"], "Completed"
    )
    again = mindpretrain("run", finished[0], "--until", "pack").stdout
    assert states(again) == dict.fromkeys(STAGES[:5], "Cached")


def test_one_stage_runs_alone_on_the_artifacts_before_it(finished: tuple[Path, str], mindpretrain: RunCommand) -> None:
    output = mindpretrain("run", finished[0], "--only", "chunk", "--set", "chunk.sequences_per_chunk=1.0").stdout
    assert states(output) == {"chunk": "Completed"}


def test_a_stage_alone_says_which_artifact_it_lacks(mindpretrain: RunCommand, tmp_path: Path) -> None:
    done = mindpretrain("run", write_config(tmp_path), "--only", "chunk")
    assert done.returncode == 1
    assert "error: normalize: there is no artifact of it for this configuration" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("damage", ["shard", "folder"])
def test_what_was_deleted_is_noticed_and_made_again(
    finished: tuple[Path, str], mindpretrain: RunCommand, damage: str
) -> None:
    folder = artifact_of(finished[0], "dedup")
    whole = files_of(folder)
    if damage == "shard":
        (folder / "part-00000.parquet").unlink()
    else:
        shutil.rmtree(folder)
    output = mindpretrain("run", finished[0]).stdout
    assert "dedup: made again: " in output
    assert states(output) == dict.fromkeys(STAGES, "Cached") | {"dedup": "Completed"}
    assert files_of(folder) == whole


def test_a_failed_run_is_retried_with_the_earlier_stages_from_the_cache(
    mindpretrain: RunCommand, server: LocalServer, tmp_path: Path
) -> None:
    """The switch that makes a task fail is a file where the stage needs a folder; taking it away removes the cause."""
    config = write_config(tmp_path)
    switch = tmp_path / "runs" / "artifacts" / "chunk"
    switch.parent.mkdir(parents=True)
    switch.touch()
    failed = mindpretrain("run", config, "--until", "pack")
    assert failed.returncode == 1
    assert states(failed.stdout) == dict.fromkeys(STAGES[:3], "Completed")
    assert "error: chunk: " in failed.stderr
    assert "Traceback" not in failed.stderr
    run = last_flow_run(server)
    switch.unlink()
    retried = prefect(server, "flow-run", "retry", run["id"], "--entrypoint", "flows/pretrain.py:pretrain")
    assert retried.returncode == 0, retried.stdout + retried.stderr
    assert last_flow_run(server)["state"]["type"] == "COMPLETED"
    log = retried.stdout + retried.stderr
    for stage in STAGES[:3]:
        assert f"Task run '{stage}" in log
    assert log.count("Finished in state Cached") == 3
    assert artifact_of(config, "pack").is_dir()


def test_kill_9_in_normalize_then_the_same_command(
    finished: tuple[Path, str], mindpretrain: RunCommand, server: LocalServer, tmp_path: Path
) -> None:
    """Shards that were finished are not done again, and the artifact is that of an undisturbed run."""
    sections = {"normalize": {"shard_bytes": 1}, "executor": {"workers": 1}}
    undisturbed = tmp_path / "undisturbed"
    killed = tmp_path / "killed"
    for folder in (undisturbed, killed):
        folder.mkdir()
    expected = write_config(undisturbed, **sections)
    mindpretrain("run", expected, "--until", "normalize")
    config = write_config(killed, **sections)
    environment = os.environ | {"PREFECT_API_URL": server.api}
    child = subprocess.Popen(
        [str(COMMAND), "run", str(config), "--until", "normalize"],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    drafts = killed / "runs" / "artifacts" / "normalize"
    while child.poll() is None and len(list(drafts.glob(".*.draft/units/*.json"))) < 5:
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL, "it ended before it could be killed"
    assert read_record(killed / "runs").outcome == "interrupted"
    (draft,) = drafts.glob(".*.draft")
    finished_units = {path.name: path.stat().st_mtime_ns for path in draft.glob("units/*.json")}
    done = mindpretrain("run", config, "--until", "normalize")
    assert done.returncode == 0
    assert f"normalize: {len(finished_units)} of " in done.stdout
    folder = artifact_of(config, "normalize")
    assert {name: (folder / "units" / name).stat().st_mtime_ns for name in finished_units} == finished_units
    assert files_of(folder) == files_of(artifact_of(expected, "normalize"))


@pytest.fixture
def worker(server: LocalServer, tmp_path: Path) -> Iterator[None]:
    """A worker started, and the deployments made, as the README says."""
    prefect(server, "work-pool", "create", "mindpretrain", "--type", "process", "--overwrite")
    deployed = prefect(server, "deploy", "--all", "--prefect-file", "deploy/prefect.yaml")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    environment = os.environ | {"PREFECT_API_URL": server.api}
    command = [str(PREFECT), "worker", "start", "--pool", "mindpretrain"]
    with (tmp_path / "worker.log").open("w") as log:
        process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=log, stderr=log)
        yield
        process.kill()  # asked to end, it may wait a minute or more for its last connection to the server
        process.wait()


@pytest.mark.usefixtures("worker")
def test_deployments_run_on_a_worker(finished: tuple[Path, str], server: LocalServer) -> None:
    for deployment, last in (("full", "pretrain"), ("smoke", "smoke"), ("data", "pack")):
        parameter = f"config={finished[0]}"
        done = prefect(server, "deployment", "run", f"pretrain/{deployment}", "--watch", "--param", parameter)
        assert done.returncode == 0, done.stdout + done.stderr
        ended = [line.split()[-1].rsplit("-", 1)[0] for line in done.stdout.splitlines() if "task-run.Cached" in line]
        assert ended == STAGES[: STAGES.index(last) + 1]


def test_a_missing_or_unreadable_input_stops_a_run_with_a_message(mindpretrain: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "unreadable.txt").symlink_to("/proc/self/mem")  # even root gets an error from it
    for place, message in (
        ("none", "no such file or folder"),
        ("raw", f"cannot be read: {os.strerror(errno.EIO)}; mend or remove it"),
    ):
        config = write_config(
            tmp_path, inputs=[{"path": str(tmp_path / place), "source": "bad", "follow_symlinks": True}]
        )
        done = mindpretrain("run", config)
        assert done.returncode == 1
        assert re.search(rf"error: inputs: {tmp_path}/{place}.* \(source bad\): {message}", done.stderr)
        assert "Traceback" not in done.stdout + done.stderr


def test_a_workspace_that_cannot_be_written_is_said(mindpretrain: RunCommand, tmp_path: Path) -> None:
    """Even root makes no folder there."""
    config = write_config(tmp_path, workspace="/proc/none")
    for command in ("run", "incremental"):
        done = mindpretrain(command, config)
        assert done.returncode == 1
        assert re.search(
            r"error: /proc/none.*: No such file or directory; mend it and run the same command", done.stderr
        )
        assert "Traceback" not in done.stdout + done.stderr


def test_people_are_told_of_a_run_that_failed(
    mindpretrain: RunCommand, webhook: Webhook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, webhook.address)
    config = write_config(tmp_path, inputs=[{"path": str(tmp_path / "none"), "source": "gone"}])
    assert mindpretrain("run", config).returncode == 1
    (told,) = webhook.heard
    assert re.fullmatch(r"pretrain run 20[0-9-]+ [0-9:]+: Failed", told["title"])
    assert "(source gone): no such file or folder" in told["message"]
    assert "/runs/flow-run/" in told["message"]


def test_a_smoke_test_that_does_not_learn_stops_the_chain(mindpretrain: RunCommand, finished: tuple[Path, str]) -> None:
    done = mindpretrain("run", finished[0], "--set", "smoke.min_loss_drop=50.0")
    assert done.returncode == 1
    assert "error: smoke: the training is not fit to go on:" in done.stderr
    assert "at least 50.0 is asked for" in done.stderr
    assert "pretrain" not in states(done.stdout)
