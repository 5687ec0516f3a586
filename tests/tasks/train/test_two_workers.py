"""Two processes under the real `msrun`: data parallel training is training on the joint batch."""

import json
from pathlib import Path

import psutil
import pytest

from tasks.train.job import METRICS
from tasks.train.launch import train
from tests.tasks.train.jobs import curve, descendants, kill, make_job, run, start_follower, wait_until

STEPS, BATCH = 16, 4


def test_two_workers_equal_one_process_on_the_joint_batch_and_resume_exactly(dataset: Path, tmp_path: Path) -> None:
    """MindDataset deals the sequences out in turn, so four of each rank are the eight that one process takes.

    Without `gradients_mean` the norm would be twice as large, and the loss would not show it.
    """
    two = make_job(tmp_path / "two", dataset, steps=STEPS, workers=2, batch_size=BATCH, checkpoint_every=6)
    one = make_job(tmp_path / "one", dataset, steps=STEPS, batch_size=2 * BATCH)
    parallel, alone = run(two), run(one)

    assert [step.step for step in parallel] == list(range(1, STEPS + 1))
    assert [step.gradient_norm for step in parallel] == pytest.approx([step.gradient_norm for step in alone], rel=0.01)
    assert [step.loss for step in parallel] == pytest.approx([step.loss for step in alone], rel=1e-3)
    assert [step.learning_rate for step in parallel] == [step.learning_rate for step in alone]

    ranks = [
        [json.loads(line) for line in (two.folder / f"rank_{rank}" / METRICS).read_text().splitlines()]
        for rank in (0, 1)
    ]
    assert [line["gradient_norm"] for line in ranks[0]] == [line["gradient_norm"] for line in ranks[1]]
    assert ranks[0][0]["loss"] != ranks[1][0]["loss"]  # each has its own sequences
    assert parallel[0].loss == pytest.approx((ranks[0][0]["loss"] + ranks[1][0]["loss"]) / 2)

    killed = make_job(tmp_path / "killed", dataset, steps=STEPS, workers=2, batch_size=BATCH, checkpoint_every=6)
    follower = start_follower(killed, tmp_path / "job.json")
    metrics = killed.folder / METRICS
    wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 8)
    started = descendants(follower.pid)
    assert len(started) >= 4  # supervisor, msrun and its scheduler, two workers
    kill(follower)
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
    assert train(killed, lambda _: None).resumed_from_step in (6, 12)
    assert curve(killed) == curve(two)
