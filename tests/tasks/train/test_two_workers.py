"""Two processes under the real `msrun`: training on the joint batch, which outlives a lost worker."""

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tasks.train.job import METRICS, PROCESS, TrainingJob
from tasks.train.launch import train
from tasks.train.metrics import StepMetrics
from tests.tasks.train.jobs import curve, descendants, kill, make_job, run, start_follower, wait_until

STEPS, BATCH = 60, 4


@pytest.fixture(scope="module")
def undisturbed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    job = two_workers(dataset, tmp_path_factory.mktemp("undisturbed") / "job")
    run(job)
    return job


def two_workers(dataset: Path, folder: Path) -> TrainingJob:
    return make_job(folder, dataset, steps=STEPS, workers=2, batch_size=BATCH, checkpoint_every=10, keep_checkpoints=6)


def test_two_workers_equal_one_process_on_the_joint_batch(
    undisturbed: TrainingJob, dataset: Path, tmp_path: Path
) -> None:
    """MindDataset deals the sequences out in turn, so four of each rank are the eight that one process takes.

    Without `gradients_mean` the norm would be twice as large, and the loss would not show it.
    """
    first = 16
    alone = run(make_job(tmp_path / "one", dataset, steps=STEPS, batch_size=2 * BATCH))[:first]
    parallel = _metrics(undisturbed.folder / METRICS)[:first]
    assert [step["step"] for step in parallel] == list(range(1, first + 1))
    assert [step["gradient_norm"] for step in parallel] == pytest.approx(
        [step.gradient_norm for step in alone], rel=0.01
    )
    assert [step["loss"] for step in parallel] == pytest.approx([step.loss for step in alone], rel=1e-3)
    assert [step["learning_rate"] for step in parallel] == [step.learning_rate for step in alone]

    ranks = [_metrics(undisturbed.folder / f"rank_{rank}" / METRICS) for rank in (0, 1)]
    assert [line["gradient_norm"] for line in ranks[0]] == [line["gradient_norm"] for line in ranks[1]]
    assert ranks[0][0]["batch"] != ranks[1][0]["batch"]  # each has its own sequences
    assert parallel[0]["loss"] == pytest.approx((ranks[0][0]["loss"] + ranks[1][0]["loss"]) / 2)
    assert parallel[0]["tokens"] == 2 * BATCH * 64


def test_a_lost_worker_is_noticed_and_the_training_goes_on_by_itself_as_if_nothing_had_been(
    undisturbed: TrainingJob, dataset: Path, tmp_path: Path
) -> None:
    job = two_workers(dataset, tmp_path / "job")
    killed_at: list[float] = []
    back_after: list[float] = []

    def kill_one(step: StepMetrics) -> None:
        if step.step == 25 and not killed_at:
            os.kill(json.loads((job.folder / "rank_1" / PROCESS).read_text())["pid"], signal.SIGKILL)
            killed_at.append(time.monotonic())
        elif killed_at and not back_after and step.step == 21:
            back_after.append(time.monotonic() - killed_at[0])

    result = train(job, kill_one)
    assert len(result.restarts) == 1
    assert "signal 9" in result.restarts[0] or "rank 1 ended without a word" in result.restarts[0]
    assert back_after[0] < 60  # noticed, ended, started again, and the first step made
    assert curve(job) == curve(undisturbed)


@pytest.mark.slow
def test_killed_with_all_its_processes_it_goes_on_as_if_nothing_had_been(
    undisturbed: TrainingJob, dataset: Path, tmp_path: Path
) -> None:
    job = two_workers(dataset, tmp_path / "job")
    follower = start_follower(job, tmp_path / "job.json")
    metrics = job.folder / METRICS
    wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 30)
    started = descendants(follower.pid)
    assert len(started) >= 4  # supervisor, msrun and its scheduler, two workers
    kill(follower)
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
    assert train(job, lambda _: None).resumed_from_step in (30, 40, 50)
    assert curve(job) == curve(undisturbed)


def _metrics(file: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
