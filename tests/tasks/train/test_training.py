"""Real training with mindformers on CPU: it learns, resumes exactly, agrees over workers, and names what fails.

NPUs do not exist here: what is written for Ascend is compared with values worked out by hand, not run.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from configs.schema import ModelConfig, TrainingConfig
from tasks.files import write_json
from tasks.train.failures import first_cause
from tasks.train.launch import (
    METRICS,
    StepMetrics,
    TrainingFailed,
    TrainingJob,
    step_of,
    train,
    whole_checkpoints,
    write_mindrecord,
)
from tasks.train.mindformers_yaml import epochs, mindformers_config
from tests.conftest import PROJECT

SEQUENCES, SEQ_LENGTH, VOCABULARY, STEPS = 120, 32, 300, 30

MakeJob = Callable[..., TrainingJob]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences in which each token says much about the next: a loss that does not fall is a fault."""
    folder = tmp_path_factory.mktemp("dataset")
    draw = np.random.default_rng(3)
    starts = draw.integers(2, VOCABULARY, (SEQUENCES, 1))
    sequences = (starts + 7 * np.arange(SEQ_LENGTH + 1)) % (VOCABULARY - 2) + 2
    np.save(folder / "sequences.npy", sequences.astype(np.uint16))
    write_mindrecord(folder / "sequences.npy", folder / "sequences.mindrecord")
    return folder / "sequences.mindrecord"


@pytest.fixture
def make_job(dataset: Path, tmp_path: Path) -> MakeJob:
    def make(name: str = "job", **changes: Any) -> TrainingJob:
        training = {"learning_rate": 1e-2, "batch_size": 4, "warmup_share": 0.1} | changes.pop("training", {})
        job = TrainingJob(
            folder=tmp_path / name,
            dataset=dataset,
            sequences=SEQUENCES,
            vocab_size=VOCABULARY,
            seq_length=SEQ_LENGTH,
            eos_id=0,
            pad_id=1,
            steps=STEPS,
            checkpoint_every=10,
            keep_checkpoints=2,
            model=ModelConfig(hidden_size=32, intermediate_size=64, num_layers=1, num_heads=2),
            training=TrainingConfig(**training),
            seed=5,
        )
        return replace(job, **changes)

    return make


def run(job: TrainingJob) -> list[StepMetrics]:
    steps: list[StepMetrics] = []
    train(job, steps.append)
    return steps


def curve(job: TrainingJob) -> list[tuple[Any, ...]]:
    """Return what must not depend on interruptions: all that a step measures but its time."""
    steps = [json.loads(line) for line in (job.folder / METRICS).read_text().splitlines()]
    return [
        (s["step"], s["loss"], s["learning_rate"], s["gradient_norm"], s["loss_scale"], s["overflow"]) for s in steps
    ]


def kill_after(job: TrainingJob, steps: int, tmp_path: Path) -> list[int]:
    """Start the job in a process, kill -9 that process after so many steps; return the processes it had started."""
    description = tmp_path / "job.json"
    fields = {name: getattr(job, name) for name in TrainingJob.__dataclass_fields__}
    plain = {name: value.model_dump() if hasattr(value, "model_dump") else value for name, value in fields.items()}
    write_json(description, {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()})
    child = subprocess.Popen([sys.executable, "-m", "tests.tasks.train.test_training", str(description)], cwd=PROJECT)
    metrics = job.folder / METRICS
    while child.poll() is None and (not metrics.exists() or metrics.read_bytes().count(b"\n") < steps):
        time.sleep(0.01)
    started = [process.pid for process in psutil.Process(child.pid).children(recursive=True)]
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL, "it ended before it could be killed"
    return started


def wait_until_gone(processes: list[int], seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in processes if psutil.pid_exists(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def test_one_worker_learns_and_every_step_is_recorded(make_job: MakeJob) -> None:
    job = make_job()
    steps = run(job)
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    assert abs(steps[0].loss - math.log(VOCABULARY)) < 0.2  # an untrained model knows nothing: ln(vocabulary)
    assert steps[-1].loss < steps[0].loss - 1
    assert [step_of(path) for path in whole_checkpoints(job.folder)] == [20, 30]
    assert {file.name for file in whole_checkpoints(job.folder)[-1].iterdir()} == {
        "model.safetensors", "optimizer.safetensors", "state.json",
    }  # fmt: skip


def test_the_learning_rate_rises_then_follows_the_cosine(make_job: MakeJob) -> None:
    steps = run(make_job(checkpoint_every=None))
    warmup, peak = 3, 1e-2
    for step in steps:
        before = step.step - 1
        progress = max(0.0, (before - warmup) / (STEPS - warmup))
        expected = peak * before / warmup if before < warmup else peak * (1 + math.cos(math.pi * progress)) / 2
        assert step.learning_rate == pytest.approx(expected, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_killed_training_goes_on_exactly_and_leaves_no_process(
    make_job: MakeJob, tmp_path: Path, precision: str
) -> None:
    """Steps pass the end of the first epoch (30 batches); fp16 starts so high that the loss scale has to move."""
    changes = {"steps": 45, "training": {"precision": precision, "loss_scale": 2**24}}
    undisturbed = make_job("undisturbed", **changes)
    run(undisturbed)
    job = make_job("killed", **changes)
    started = kill_after(job, 34, tmp_path)
    assert len(started) >= 2
    assert wait_until_gone(started, 10) == []
    assert step_of(whole_checkpoints(job.folder)[-1]) in (30, 40)
    result = train(job, lambda _: None)
    assert result.resumed_from_step in (30, 40)
    assert curve(job) == curve(undisturbed)
    if precision == "fp16":
        assert any(step[5] for step in curve(job))


def test_two_workers_agree_resume_exactly_and_train_as_one_on_the_joint_batch(
    make_job: MakeJob, tmp_path: Path
) -> None:
    """Under `msrun`. One process with twice the batch sees the same sequences only in another order, hence the 10%."""
    changes: dict[str, Any] = {"steps": 24, "training": {"workers": 2, "batch_size": 4}}
    undisturbed = make_job("two", **changes)
    two = run(undisturbed)
    one = run(make_job("one", steps=24, checkpoint_every=None, training={"batch_size": 8}))
    assert two[0].loss == pytest.approx(one[0].loss, rel=0.01)
    assert two[0].gradient_norm == pytest.approx(one[0].gradient_norm, rel=0.1)  # not doubled
    assert two[-1].loss == pytest.approx(one[-1].loss, rel=0.1)
    ranks = [(undisturbed.folder / f"rank_{rank}" / METRICS).read_text().splitlines() for rank in (0, 1)]
    norms = [[json.loads(line)["gradient_norm"] for line in lines] for lines in ranks]
    assert norms[0] == norms[1]

    job = make_job("killed", **changes)
    started = kill_after(job, 13, tmp_path)
    assert len(started) >= 4  # supervisor, msrun and its scheduler, two workers
    assert wait_until_gone(started, 10) == []
    assert train(job, lambda _: None).resumed_from_step in (10, 20)
    assert curve(job) == curve(undisturbed)


def test_a_finished_training_is_not_begun_again(make_job: MakeJob) -> None:
    job = make_job(steps=10)
    run(job)
    assert run(job) == []


def test_a_half_written_checkpoint_does_not_count(make_job: MakeJob) -> None:
    job = make_job(steps=12)
    run(job)
    whole = whole_checkpoints(job.folder)
    (job.folder / "checkpoints" / ".step-00000099.draft").mkdir()
    (job.folder / "checkpoints" / "step-00000098").mkdir()
    assert whole_checkpoints(job.folder) == whole


def test_a_diverging_training_is_stopped_with_the_mend(make_job: MakeJob) -> None:
    with pytest.raises(
        TrainingFailed, match=r"the gradients were not finite in 5 steps in a row up to step 6; lower training"
    ):
        run(make_job(training={"learning_rate": 1e30, "warmup_share": 0.0, "max_gradient_norm": 1e30}))


def test_a_damaged_token_dataset_is_named(make_job: MakeJob, tmp_path: Path) -> None:
    (tmp_path / "broken.mindrecord").write_bytes(b"not a MindRecord" * 100)
    (tmp_path / "broken.mindrecord.db").write_bytes(b"")
    with pytest.raises(
        TrainingFailed, match=r"the training ended after step 0 of 30: the token dataset cannot be read: "
    ):
        run(make_job(dataset=tmp_path / "broken.mindrecord"))


def test_a_training_without_steps_is_given_up(make_job: MakeJob) -> None:
    with pytest.raises(TrainingFailed, match=r"no training step ended for training.timeout_minutes 0.01"):
        run(make_job(training={"timeout_minutes": 0.01}))


def test_mindrecord_holds_what_was_packed_and_is_the_same_every_time(dataset: Path, tmp_path: Path) -> None:
    """The writer reads everything back itself; here its file is compared with a second one of the same name."""
    write_mindrecord(dataset.with_name("sequences.npy"), tmp_path / dataset.name)
    assert (tmp_path / dataset.name).read_bytes() == dataset.read_bytes()


def test_mindrecord_that_cannot_be_written_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"none.npy"):
        write_mindrecord(tmp_path / "none.npy", tmp_path / "x.mindrecord")


def test_the_yaml_says_what_the_configuration_says(make_job: MakeJob) -> None:
    job = make_job(
        steps=45, training={"batch_size": 4, "warmup_share": 0.2, "final_learning_rate": 1e-4, "weight_decay": 0.05}
    )
    found = mindformers_config(job, 0)
    assert epochs(job) == 2  # 45 steps of 4 sequences out of 120
    assert found["lr_schedule"] == {
        "type": "CosineWithWarmUpLR", "learning_rate": 1e-2, "lr_end": 1e-4, "warmup_steps": 9, "total_steps": 45,
    }  # fmt: skip
    assert found["optimizer"] == {"type": "AdamW", "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.05}
    assert found["use_parallel"] is False
    assert (found["context"]["mode"], found["context"]["device_target"]) == (0, "CPU")
    model = found["model"]["model_config"]
    assert (model["use_flash_attention"], model["fused_rms_norm"], model["use_rope_slice"]) == (False, False, True)
    assert (model["compute_dtype"], model["n_kv_heads"], model["pad_token_id"]) == ("float32", None, 1)


def test_the_yaml_for_ascend_keeps_its_kernels_and_bf16(make_job: MakeJob) -> None:
    job = make_job(training={"device": "Ascend", "workers": 8, "precision": "bf16"})
    found = mindformers_config(job, 0)
    assert found["runner_wrapper"]["type"] == "MFTrainOneStepCell"
    assert found["parallel"] == {"parallel_mode": 0, "gradients_mean": True}
    assert found["parallel_config"]["data_parallel"] == 8
    model = found["model"]["model_config"]
    assert (model["use_flash_attention"], model["fused_rms_norm"], model["compute_dtype"]) == (True, True, "bfloat16")
    assert epochs(job) == 10  # 30 steps of 32 sequences out of 120: three to an epoch


def test_a_log_s_first_known_cause_is_named(tmp_path: Path) -> None:
    log = tmp_path / "worker_0.log"
    log.write_text("INFO ...\nRuntimeError: Allocate memory failed, std::bad_alloc\nValueError: later\n")
    assert first_cause([log], 1).startswith("out of memory; lower training.batch_size")
    log.write_text("INFO fine\n")
    assert first_cause([log], 137) == (
        "a process was ended from outside by signal 9; most often the system, for want of memory"
    )
    assert "they end with" in first_cause([log], 1)


def _train_from_file(description: Path) -> None:
    fields = json.loads(description.read_text(encoding="utf-8"))
    fields |= {"folder": Path(fields["folder"]), "dataset": Path(fields["dataset"])}
    fields |= {"model": ModelConfig(**fields["model"]), "training": TrainingConfig(**fields["training"])}
    train(TrainingJob(**fields), lambda _: None)


if __name__ == "__main__":
    os.chdir(PROJECT)
    _train_from_file(Path(sys.argv[1]))
