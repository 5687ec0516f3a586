"""One process: it learns, every step is recorded once, and an interruption changes nothing."""

import math
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from tasks.train import mindformers_yaml
from tasks.train.checkpoints import step_of, whole_checkpoints
from tasks.train.job import METRICS, TrainingJob
from tasks.train.launch import train
from tasks.train.metrics import StepMetrics
from tests.tasks.train.jobs import VOCABULARY, curve, descendants, kill, make_job, run, start_follower, wait_until


@pytest.fixture(scope="module")
def undisturbed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """A training of 40 steps: one full epoch of 32, and a quarter of the next."""
    job = make_job(tmp_path_factory.mktemp("undisturbed") / "job", dataset, checkpoint_every=10)
    run(job)
    return job


def test_the_loss_falls_and_the_metrics_have_every_step_once(undisturbed: TrainingJob) -> None:
    steps = curve(undisturbed)
    assert [step[0] for step in steps] == list(range(1, 41))
    assert abs(steps[0][1] - math.log(VOCABULARY)) < 0.2  # an untrained model knows nothing
    assert steps[-1][1] < 0.7 * steps[0][1]
    assert [step_of(checkpoint) for checkpoint in whole_checkpoints(undisturbed.folder)] == [30, 40]


def test_the_learning_rate_rises_then_follows_the_cosine(undisturbed: TrainingJob) -> None:
    warmup, peak = 4, 5e-3
    for step, _, found, *_ in curve(undisturbed):
        before = step - 1
        progress = max(0.0, (before - warmup) / (40 - warmup))
        expected = peak * before / warmup if before < warmup else peak * (1 + math.cos(math.pi * progress)) / 2
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_a_finished_training_is_not_begun_again_and_half_a_checkpoint_does_not_count(
    undisturbed: TrainingJob, tmp_path: Path
) -> None:
    folder = shutil.copytree(undisturbed.folder, tmp_path / "job")
    (folder / "checkpoints" / ".step-00000099.draft").mkdir()
    (folder / "checkpoints" / "step-00000098").mkdir()
    assert run(make_job(folder, undisturbed.dataset.files[0], checkpoint_every=10)) == []


def test_a_training_killed_when_nobody_followed_goes_on_as_if_nothing_had_been(
    undisturbed: TrainingJob, tmp_path: Path
) -> None:
    """The follower is stopped after three steps: those up to the checkpoint stand in the worker's file alone."""
    job = make_job(tmp_path / "job", undisturbed.dataset.files[0], checkpoint_every=10)
    follower = start_follower(job, tmp_path / "job.json")
    metrics = job.folder / METRICS
    wait_until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 3)
    follower.send_signal(signal.SIGSTOP)
    started = descendants(follower.pid)
    wait_until(lambda: bool(whole_checkpoints(job.folder)))
    followed = metrics.read_bytes().count(b"\n")
    kill(follower)
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []

    result = train(job, lambda _: None)
    assert result.resumed_from_step >= 10 > followed
    assert result.resumed_from_step < 40
    assert curve(job) == curve(undisturbed)


def test_the_last_steps_are_recorded_although_the_follower_died_before_it_read_them(
    undisturbed: TrainingJob, tmp_path: Path
) -> None:
    folder = shutil.copytree(undisturbed.folder, tmp_path / "job")
    lines = (folder / METRICS).read_text().splitlines(keepends=True)
    (folder / METRICS).write_text("".join(lines[:33]) + '{"step": 34, "lo')
    job = make_job(folder, undisturbed.dataset.files[0], checkpoint_every=10)
    assert run(job) == []
    assert curve(job) == curve(undisturbed)


def test_the_loss_scale_doubles_at_the_same_steps_after_an_interruption(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a window of 7 steps and a stop in its middle, a window that began anew would double later.

    MindSpore counts steps from 1, and a step reports the scale that the next one takes: it doubles in steps 7, 14, 21.
    """
    monkeypatch.setattr(mindformers_yaml, "LOSS_SCALE_WINDOW", 7)
    settings = {"precision": "fp16", "loss_scale": 256, "steps": 30, "checkpoint_every": 5}
    straight = make_job(tmp_path / "straight", dataset, **settings)
    run(straight)
    scales = [step[4] for step in curve(straight)]
    assert [scales.count(scale) for scale in (256, 512, 1024, 2048, 4096)] == [6, 7, 7, 7, 3]

    job = make_job(tmp_path / "interrupted", dataset, **settings)

    def interrupt(step: StepMetrics) -> None:
        if step.step == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(job, interrupt)
    assert train(job, lambda _: None).resumed_from_step in (10, 15)
    assert curve(job) == curve(straight)
