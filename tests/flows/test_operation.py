"""A real server and worker, as people live with them: a full run, nights with growing data, a cancelled and a killed run."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.artifact import Workspace, read_manifest
from tasks.incremental.states import States
from tasks.local_server import ensure_server, stop_server
from tests.conftest import COMMAND, SAMPLE
from tests.flows.conftest import STAGES, write_config
from tests.flows.operator import Operator, family_of, kill_family, wait_until

GOES_IN_FIRST = ("byte", "char", "check", "cluster", "corpus", "data", "disk", "fail", "learn", "minhash", "mixed")


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Someone with a server of their own, on which all is deployed."""
    workspace = tmp_path_factory.mktemp("operator")
    operator = Operator(ensure_server(workspace, preferred_port=0))
    operator.deploy()
    yield operator
    stop_server(workspace)


@pytest.fixture(scope="module")
def place(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with raw files that grow, and a configuration that has been run to its end as pretrain/full."""
    folder = tmp_path_factory.mktemp("grows")
    raw = folder / "raw"
    raw.mkdir()
    for file in sorted((SAMPLE / "articles").iterdir()):
        if file.name.startswith(GOES_IN_FIRST):
            shutil.copy(file, raw)
    write_config(
        folder,
        inputs=[{"path": str(raw), "source": "raw"}],
        pack={"seq_length": 64, "tokenizer": {"vocab_size": 800}, "held_out_share": 0.2},
        incremental={
            "min_new_tokens": 1000,
            "settle_seconds": 1,
            "learning_rate": 2e-3,
            "final_learning_rate": 1e-4,
        },
    )
    with operator.worker(folder / "worker.log"):
        full = operator.start("pretrain/full", config=str(folder / "run.yaml"))
        assert operator.wait(full) == "COMPLETED", operator.logs(full)
    assert list(operator.task_states(full)) == STAGES
    assert {"pack-samples", "pretrain-curves", "smoke-curves", "report"} <= operator.artifacts(full).keys()
    return folder


def night(operator: Operator, place: Path, **overrides: Any) -> str:
    """Run incremental/nightly to its end; return the run."""
    changes = [f"{name}={value}" for name, value in overrides.items()]
    run = operator.start("incremental/nightly", config=str(place / "run.yaml"), overrides=changes)
    operator.wait(run)
    return run


def states(place: Path) -> States:
    return States(Workspace(place / "runs"))


@pytest.mark.slow
def test_three_nights_after_a_full_run(operator: Operator, place: Path, tmp_path: Path) -> None:
    raw = place / "raw"
    with operator.worker(tmp_path / "worker.log"):
        assert operator.state(idle := night(operator, place)) == "COMPLETED", operator.logs(idle)
        assert operator.says(idle, "nothing is new: nothing was done")
        assert [state.number for state in states(place).all()] == [0]

        for file in ("pipeline_bubble.md", "recompute.md", "sequence_packing.md", "traditional_simplified.txt"):
            shutil.copy(SAMPLE / "articles" / file, raw)
        shutil.copy(SAMPLE / "troubles" / "long_manual.md", raw)
        shutil.copy(SAMPLE / "articles" / "data_parallel.md", raw / "again.md")
        shutil.copyfile(SAMPLE / "troubles" / "mixed_english_code.md", raw / "checkpoint_resume.md")
        assert operator.state(grown := night(operator, place)) == "COMPLETED", operator.logs(grown)
        assert operator.task_states(grown)["mix"] == "Completed"

        (raw / "copied").mkdir()
        for known in sorted(raw.glob("d*")):
            (raw / "copied" / known.name).write_text(f"{known.read_text(encoding='utf-8')}\n", encoding="utf-8")
        assert operator.state(repeated := night(operator, place)) == "COMPLETED", operator.logs(repeated)
        assert operator.says(repeated, "they repeat what was there")

    first, second, third = states(place).all()
    assert (second.parent, third.parent) == (0, 1)
    assert "pretrain" not in third.artifacts
    artifacts = place / "runs" / "artifacts"
    dedup = read_manifest(artifacts / "dedup" / second.artifacts["dedup"]).stats
    assert dedup["documents_in"] == dedup["documents_kept"] == 6, (
        "a file that was seen before under another name is not new"
    )
    packed = read_manifest(artifacts / "pack" / second.artifacts["pack"]).stats
    mixed = read_manifest(artifacts / "mix" / second.artifacts["mix"]).stats
    assert second.tokens == packed["tokens"]
    assert mixed["sequences_new"] == packed["sequences"]
    assert mixed["sequences_old"] == round(packed["sequences"] / 3), "a quarter of all"
    trained = read_manifest(artifacts / "pretrain" / second.artifacts["pretrain"]).stats
    assert trained["steps"] == mixed["sequences"] // 4
    assert (artifacts / "pretrain" / second.artifacts["pretrain"] / trained["checkpoints"][-1] / "state.json").is_file()
    assert second.perplexity_new is not None
    assert second.before_new is not None
    assert second.perplexity_new < second.before_new
    assert states(place).current().checkpoint.name == second.artifacts["pretrain"]  # type: ignore[union-attr]
    assert first.artifacts["pack"] != second.artifacts["pack"]


@pytest.mark.slow
def test_a_night_that_makes_old_text_worse_is_not_gone_on_from(operator: Operator, place: Path, tmp_path: Path) -> None:
    """A learning rate far too high for what was learnt, without old sequences."""
    before = [state.number for state in states(place).all()] or [0]
    add_records(place)
    spoilt = {"incremental.learning_rate": 0.3, "incremental.old_share": 0, "incremental.max_loss_rise": 100}
    with operator.worker(tmp_path / "worker.log"):
        run = night(operator, place, **spoilt)
        assert operator.state(run) == "FAILED"
        assert "the perplexity of old held-out text rose from" in operator.message(run)
    assert [state.number for state in states(place).all()] == before


@pytest.mark.slow
def test_a_cancelled_training_leaves_nothing_running_and_goes_on_later(
    operator: Operator, place: Path, tmp_path: Path
) -> None:
    changes = ["pretrain.steps=3000", "pretrain.checkpoint_every=100", "pretrain.sample_tokens=0"]
    with operator.worker(tmp_path / "worker.log") as worker:
        run = operator.start("pretrain/full", config=str(place / "run.yaml"), overrides=changes)
        draft = wait_for_checkpoint(place)
        children = [process for process in family_of(worker.pid) if process.pid != worker.pid]
        operator.cancel(run)
        _, alive = psutil.wait_procs(children, timeout=20)
        assert not [process for process in alive if process.is_running()]
        assert operator.wait(run, 60) == "CANCELLED"
        record = json.loads(max((place / "runs" / "records").glob("*.json")).read_text(encoding="utf-8"))
        assert record["outcome"] == "cancelled"
        again = operator.start("pretrain/full", config=str(place / "run.yaml"), overrides=changes)
        assert operator.wait(again) == "COMPLETED", operator.logs(again)
        assert operator.says(again, "resumed from the checkpoint of step")
    assert not draft.exists()


@pytest.mark.slow
def test_a_killed_night_is_marked_crashed_and_does_not_block_the_next(
    operator: Operator, place: Path, tmp_path: Path
) -> None:
    add_records(place)
    changes = ["incremental.epochs=100", "pretrain.checkpoint_every=100"]
    changes += ["incremental.learning_rate=1.0e-6", "incremental.final_learning_rate=0"]  # old text stays as it was
    with operator.worker(tmp_path / "worker.log") as worker:
        run = operator.start("incremental/nightly", config=str(place / "run.yaml"), overrides=changes)
        wait_for_checkpoint(place)
        kill_family(worker.pid)
        began = time.monotonic()
        wait_until(lambda: operator.state(run) == "CRASHED", 150)
        assert time.monotonic() - began < 120
    with operator.worker(tmp_path / "next.log"):
        following = operator.start("incremental/nightly", config=str(place / "run.yaml"), overrides=changes)
        assert operator.wait(following) == "COMPLETED", operator.message(following) + operator.logs(following)
        assert operator.says(following, "resumed from the checkpoint of step")


def add_records(place: Path) -> None:
    shutil.copytree(SAMPLE / "records", place / "raw" / "records", dirs_exist_ok=True)


def wait_for_checkpoint(place: Path) -> Path:
    """Return the draft of the training that has written its first checkpoint."""
    trainings = place / "runs" / "artifacts" / "pretrain"
    wait_until(lambda: any(trainings.glob(".*.draft/checkpoints/step-*")), 240)
    return next(trainings.glob(".*.draft"))


@pytest.mark.slow
def test_nights_that_were_missed_become_one(operator: Operator, place: Path, tmp_path: Path) -> None:
    """Three runs are due while no worker is there."""
    runs = [operator.start("incremental/nightly", config=str(place / "run.yaml")) for _ in range(3)]
    with operator.worker(tmp_path / "worker.log"):
        ended = sorted(operator.wait(run) for run in runs)
    assert ended == ["CANCELLED", "CANCELLED", "COMPLETED"]


@pytest.mark.slow
def test_held_out_text_is_measured_by_its_deployment_whose_form_explains_itself(
    operator: Operator, place: Path, tmp_path: Path
) -> None:
    form = operator.form("evaluate/held-out")
    assert all(form[name]["description"] for name in ("config", "overrides", "checkpoint"))
    with operator.worker(tmp_path / "worker.log"):
        trained = next((place / "runs" / "artifacts" / "pretrain").glob("[!.]*/manifest.json")).parent
        run = operator.start("evaluate/held-out", config=str(place / "run.yaml"), checkpoint=str(trained))
        assert operator.wait(run) == "COMPLETED", operator.logs(run)
        assert operator.says(run, "evaluate: Completed: perplexity ")
    measured = next((place / "runs" / "artifacts" / "evaluate").glob("[!.]*"))
    shown = subprocess.run([str(COMMAND), "inspect", str(measured)], capture_output=True, text=True, check=True).stdout
    for key, held_out in json.loads((measured / "evaluations.json").read_text(encoding="utf-8")).items():
        assert re.search(rf"\n +{held_out['loss']:.4f} +\d+\.\d{{4}} +{held_out['tokens']}  pack {key}\n", shown)
