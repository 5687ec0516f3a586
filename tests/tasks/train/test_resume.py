"""What stopped goes on exactly, and what cannot go on says so: never silently from the beginning, never on another curve."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from configs.errors import PipelineError
from configs.training import ModelConfig
from tasks.train.checkpoints import CHECKPOINTS, WEIGHTS, damage, find_checkpoint, step_of, whole_checkpoints
from tasks.train.initial import first_weights
from tasks.train.job import METRICS, PROCESS, TrainingFailed, TrainingJob
from tasks.train.launch import learning_rate, train
from tasks.train.metrics import StepMetrics
from tests.tasks.train.jobs import (
    SEQ_LENGTH,
    VOCABULARY,
    curve,
    kill,
    make_job,
    repetitive_sequences,
    run,
    start_follower,
    store,
    wait_until,
)

STEPS = 60


@pytest.fixture(scope="module")
def undisturbed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    """60 steps: nearly two epochs of 32."""
    job = make_job(tmp_path_factory.mktemp("undisturbed") / "job", dataset, steps=STEPS, checkpoint_every=10)
    run(job)
    return job


def copied(job: TrainingJob, folder: Path) -> TrainingJob:
    shutil.copytree(job.folder, folder)
    return replace(job, folder=folder)


def test_thirty_steps_kill_9_and_thirty_more_equal_sixty(
    undisturbed: TrainingJob, dataset: Path, tmp_path: Path
) -> None:
    """In loss, learning rate, gradient norm and the token ids of every step, to the last digit."""
    job = make_job(tmp_path / "job", dataset, steps=STEPS, checkpoint_every=10)
    follower = start_follower(job, tmp_path / "job.json")
    wait_until((job.folder / CHECKPOINTS / "step-00000030").is_dir)  # its steps are told of before it is written
    kill(follower)
    assert train(job, lambda _: None).resumed_from_step in (30, 40, 50)
    found = curve(job)
    assert found == curve(undisturbed)
    assert len({step[-1] for step in found[:32]}) == 32  # a whole epoch, no batch twice
    assert [step[-1] for step in found[32:]] == [step[-1] for step in found[: STEPS - 32]]


def test_killed_during_a_save_it_goes_on_from_the_checkpoint_before(
    undisturbed: TrainingJob, dataset: Path, tmp_path: Path
) -> None:
    """A checkpoint every step, and the worker is ended by kill -9 while one is being written."""
    job = make_job(tmp_path / "job", dataset, steps=STEPS, checkpoint_every=1, max_restarts=0)
    follower = start_follower(job, tmp_path / "job.json")
    process = job.folder / "rank_0" / PROCESS

    def writes() -> bool:
        drafts = list((job.folder / CHECKPOINTS).glob(".step-*.draft/*"))
        enough = len(whole_checkpoints(job.folder)) >= 2
        if drafts and enough:
            os.kill(json.loads(process.read_text())["pid"], signal.SIGKILL)
        return bool(drafts) and enough

    wait_until(writes)
    follower.wait(timeout=60)
    assert list((job.folder / CHECKPOINTS).glob(".step-*.draft"))  # half a checkpoint, under no final name
    assert train(job, lambda _: None).resumed_from_step > 0
    assert curve(job) == curve(undisturbed)
    assert not list((job.folder / CHECKPOINTS).glob(".*"))


def test_a_checkpoint_cut_in_half_is_put_aside_and_the_lost_steps_are_said(
    undisturbed: TrainingJob, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = copied(undisturbed, tmp_path / "job")
    last = whole_checkpoints(job.folder)[-1]
    content = (last / WEIGHTS).read_bytes()
    (last / WEIGHTS).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert str(damage(last)).endswith("has changed since it was written (its checksum differs)")
    (last / WEIGHTS).write_bytes(content[: len(content) // 2])
    assert train(job, lambda _: None).resumed_from_step == 50
    assert "the checkpoint of step 50 is used, so 10 steps are done again" in caplog.text
    assert curve(job) == curve(undisturbed)


def test_where_all_checkpoints_are_damaged_nothing_begins_anew_by_itself(
    undisturbed: TrainingJob, tmp_path: Path
) -> None:
    job = copied(undisturbed, tmp_path / "job")
    for checkpoint in whole_checkpoints(job.folder):
        (checkpoint / WEIGHTS).write_bytes(b"")
    with pytest.raises(PipelineError, match=r"no earlier checkpoint in .* is whole; delete that folder"):
        train(job, lambda _: None)


def test_an_empty_folder_to_begin_from_is_an_error_and_no_fresh_start(tmp_path: Path) -> None:
    (tmp_path / "empty" / CHECKPOINTS).mkdir(parents=True)
    with pytest.raises(PipelineError, match=r"no checkpoint there .* training would begin from random weights"):
        find_checkpoint(tmp_path / "empty")
    model = ModelConfig(init="checkpoint", init_from=str(tmp_path / "empty"))
    with pytest.raises(PipelineError, match="write init: scratch"):
        first_weights(model, tmp_path, VOCABULARY)


def test_twice_the_steps_are_refused_and_the_jump_of_the_learning_rate_is_said(
    undisturbed: TrainingJob, tmp_path: Path
) -> None:
    job = replace(copied(undisturbed, tmp_path / "job"), steps=2 * STEPS)
    with pytest.raises(TrainingFailed, match=r"steps was 60, is 120.* learning rate of step 60 would jump from 0 to"):
        train(job, lambda _: None)


def test_the_learning_rates_of_a_resumed_10000_steps_with_20000_planned_are_those_of_the_schedule(
    dataset: Path,
) -> None:
    """Peak 3e-4 to 3e-5, 300 steps of warm-up: at step 5000 of 10000 it is 1.7156e-4, of 20000 it would be 2.6382e-4."""
    for share, steps, expected in ((0.03, 10_000, 1.7156e-4), (0.015, 20_000, 2.6382e-4)):
        planned = make_job(Path("job"), dataset, learning_rate=3e-4, final_learning_rate=3e-5, warmup_share=share)
        assert learning_rate(planned, 5000, steps) == pytest.approx(expected, rel=1e-4)
    job = make_job(Path("job"), dataset, learning_rate=3e-4, warmup_share=0.05)
    assert learning_rate(job, 5000, 10_000) == pytest.approx(1.6237e-4, rel=1e-3)
    ratio = make_job(Path("job"), dataset, learning_rate=3e-4, warmup_share=0.0)
    assert learning_rate(ratio, 5000, 10_000) == pytest.approx(1.5e-4)
    assert learning_rate(ratio, 5000, 20_000) == pytest.approx(2.5607e-4, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_size": 8}, "global_batch was 4, is 8"),
        ({"learning_rate": 1e-3}, "learning_rate was"),
        ({"seed": 4}, "seed was 3"),
    ],
)
def test_another_batch_rate_or_seed_is_refused(
    undisturbed: TrainingJob, tmp_path: Path, change: dict[str, float], said: str
) -> None:
    folder = copied(undisturbed, tmp_path / "job").folder
    seed = int(change.pop("seed", 3))
    job = replace(make_job(folder, undisturbed.dataset.files[0], steps=STEPS, checkpoint_every=10, **change), seed=seed)
    with pytest.raises(TrainingFailed, match=rf"its checkpoints are of another training: .*{said}"):
        train(job, lambda _: None)


def test_two_trainings_in_one_folder_are_refused(dataset: Path, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", dataset, steps=STEPS)
    follower = start_follower(job, tmp_path / "job.json")
    wait_until((job.folder / METRICS).exists)
    with pytest.raises(TrainingFailed, match="another training writes into this folder"):
        train(job, lambda _: None)
    kill(follower)


def test_a_checkpoint_of_another_shape_is_named(undisturbed: TrainingJob, dataset: Path, tmp_path: Path) -> None:
    weights = find_checkpoint(undisturbed.folder) / WEIGHTS
    wide = ModelConfig(hidden_size=128, intermediate_size=128, num_layers=2, num_heads=2)
    job = make_job(tmp_path / "job", dataset, model=wide, init_weights=weights)
    with pytest.raises(
        TrainingFailed, match=r"does not fit the model: .* has the shape \(512, 64\), expected \(512, 128\)"
    ):
        run(job)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("no right to mount a small file system here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_at_a_save_is_named_and_the_training_goes_on_once_there_is_room(
    undisturbed: TrainingJob, dataset: Path, tmp_path: Path, small_disk: Path
) -> None:
    """A checkpoint has 1.6 MB, so the second one does not fit beside the first."""
    job = make_job(tmp_path / "job", dataset, steps=STEPS, checkpoint_every=10)
    job.folder.mkdir()
    (job.folder / CHECKPOINTS).symlink_to(small_disk)
    with pytest.raises(
        TrainingFailed, match=r"after step 20 of 60: no space left; free some and run the same command again"
    ):
        train(job, lambda _: None)
    assert [step_of(checkpoint) for checkpoint in whole_checkpoints(job.folder)] == [10]
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    assert train(job, lambda _: None).resumed_from_step == 10
    assert curve(job) == curve(undisturbed)


def test_a_leap_of_the_loss_stops_the_training_and_names_the_step(tmp_path: Path) -> None:
    """100 sequences to learn from, then random ones: from step 26 on the loss is what it was at the beginning."""
    random = np.random.default_rng(5).integers(2, VOCABULARY, (28, SEQ_LENGTH + 1)).astype(np.uint16)
    rows = np.concatenate([repetitive_sequences(100), random])
    job = make_job(tmp_path / "job", store(rows, tmp_path, "mixed"), steps=32, checkpoint_every=10, max_loss_spike=1.0)
    seen: list[StepMetrics] = []
    with pytest.raises(
        TrainingFailed, match=r"the loss leapt from .* at step 26, more than pretrain\.max_loss_spike"
    ) as told:
        train(job, seen.append)
    assert told.value.step == seen[-1].step == 26
    kept = [step_of(checkpoint) for checkpoint in whole_checkpoints(job.folder)]
    assert 20 in kept, "the last one before the leap; on a busy machine the workers may be a few steps ahead"
