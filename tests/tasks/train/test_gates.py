"""Real smoke trainings that are sick in one way each: the right gate fires and names the cause; a healthy one passes."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from configs.schema import RunConfig
from configs.training import ModelConfig
from tasks.train.gates import Gate, judge, likely_cause, robust_slope
from tasks.train.job import METRICS, PROBES, PROCESS, DatasetFiles, TrainingFailed, TrainingJob, TrainingResult
from tasks.train.launch import train
from tasks.train.metrics import StepMetrics, rank_metrics, read_metrics
from tasks.train.separate import write_mindrecord
from tasks.train.stages import Training, read_probes
from tests.conftest import MakeConfig
from tests.tasks.train.jobs import SEQ_LENGTH, SEQUENCES, VOCABULARY, make_job, record_job, repetitive_sequences, store

STEPS = 60


def smoke(job: TrainingJob, config: RunConfig) -> tuple[dict[str, Gate], str]:
    """Return the gates of a smoke training by name, and the likely cause."""
    job = replace(job, probe=True)
    training = Training(job.folder, train(job, lambda _: None), read_metrics(job.folder / "metrics.jsonl"))
    config = config.model_copy(update={"training": job.training})
    gates = judge(training, rank_metrics(job.folder), read_probes(job.folder, PROBES), config, {"alarms": []})
    return {gate.name: gate for gate in gates}, likely_cause(gates, training, VOCABULARY)


def failed(gates: dict[str, Gate]) -> set[str]:
    return {name for name, gate in gates.items() if not gate.passed}


def test_a_healthy_training_passes_every_gate(dataset: Path, tmp_path: Path, make_config: MakeConfig) -> None:
    gates, _ = smoke(make_job(tmp_path / "job", dataset, steps=STEPS), make_config())
    assert failed(gates) == set()
    assert len(gates) == 12


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_healthy_training_passes_ten_times_of_ten(dataset: Path, tmp_path: Path, make_config: MakeConfig) -> None:
    for seed in range(10):
        job = replace(make_job(tmp_path / f"job-{seed}", dataset, steps=STEPS), seed=seed)
        gates, _ = smoke(job, make_config())
        assert failed(gates) == set()


def test_a_learning_rate_of_one_is_named(dataset: Path, tmp_path: Path, make_config: MakeConfig) -> None:
    gates, cause = smoke(make_job(tmp_path / "job", dataset, steps=STEPS, learning_rate=1.0), make_config())
    assert "loss falls" in failed(gates)
    assert cause.startswith("the learning rate")


def test_constant_data_is_named(tmp_path: Path, make_config: MakeConfig) -> None:
    rows = np.repeat(repetitive_sequences(1), SEQUENCES, axis=0)
    gates, cause = smoke(make_job(tmp_path / "job", store(rows, tmp_path, "constant"), steps=STEPS), make_config())
    assert failed(gates) == {"data that varies"}
    assert cause.startswith("the data: the same text comes again and again")


def test_labels_that_say_nothing_about_their_inputs_are_named(tmp_path: Path, make_config: MakeConfig) -> None:
    rows = np.random.default_rng(3).integers(2, VOCABULARY, (SEQUENCES, SEQ_LENGTH + 1)).astype(np.uint16)
    job = make_job(tmp_path / "job", store(rows, tmp_path, "random"), steps=STEPS, learning_rate=1e-3)
    gates, cause = smoke(job, make_config())
    assert failed(gates) == {"loss falls"}
    assert cause.startswith("the tokenizer or the labels: the loss stays at ln(vocabulary) = 6.24")


def test_shuffled_labels_of_another_vocabulary_are_named_before_the_first_step(tmp_path: Path) -> None:
    """The columns are written as pack writes them, of rows whose labels another process shuffled."""
    job = record_job(repetitive_sequences(), tmp_path, "columns", training_columns=True)
    write_mindrecord(job)
    broken = tmp_path / "broken"
    broken.mkdir()
    _shuffle_labels(job.files[0].target, broken / "columns.mindrecord")
    files = DatasetFiles("mindrecord", (broken / "columns.mindrecord",), training_columns=True)
    with pytest.raises(
        TrainingFailed, match=r"after step 0 of 60: \d\d+% of the labels are not the token that follows"
    ):
        train(replace(make_job(tmp_path / "job", broken, steps=STEPS), dataset=files), lambda _: None)


def test_a_dataset_of_another_length_or_vocabulary_is_named_before_the_first_step(
    dataset: Path, tmp_path: Path
) -> None:
    long = replace(make_job(tmp_path / "long", dataset), seq_length=2 * SEQ_LENGTH)
    with pytest.raises(TrainingFailed, match=r"input_ids of the dataset has the shape \(4, 65\), expected \(4, 129\)"):
        train(long, lambda _: None)
    small = replace(make_job(tmp_path / "small", dataset), vocab_size=256)
    with pytest.raises(TrainingFailed, match=r"has the token id \d+, but the model's vocabulary is 256 \(D3\)"):
        train(small, lambda _: None)


@pytest.mark.slow
def test_a_slow_rank_is_named(dataset: Path, tmp_path: Path, make_config: MakeConfig) -> None:
    """Rank 1 is stopped and let go on some fifty times a second, so that it has a tenth of its time."""
    wide = ModelConfig(hidden_size=128, intermediate_size=256, num_layers=4, num_heads=2)
    job = make_job(tmp_path / "job", dataset, steps=30, workers=2, batch_size=8, model=wide)
    with throttled(job.folder / "rank_1"):
        gates, cause = smoke(job, make_config())
    assert "even ranks" in failed(gates)
    assert gates["even ranks"].found.startswith("rank 1 takes ")
    assert failed(gates) <= {"even ranks", "steady steps"}
    assert cause == "a device, host or link that is slower than the others"


@contextmanager
def throttled(rank: Path) -> Iterator[None]:
    """Give a rank's process a tenth of its time, from its first step on and for as long as it lives."""
    over = threading.Event()

    def hold() -> None:
        while not (rank / METRICS).exists() or not (rank / METRICS).read_bytes():
            if over.wait(0.05):
                return
        pid = json.loads((rank / PROCESS).read_text())["pid"]
        try:
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                over.wait(0.02)
                os.kill(pid, signal.SIGCONT)
                over.wait(0.002)
        except ProcessLookupError:
            return

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _shuffle_labels(source: Path, target: Path) -> None:
    """Write a MindRecord again with its labels shuffled, in a process of its own: MindSpore is imported nowhere else."""
    import subprocess
    import sys

    code = (
        "import sys, numpy as np\n"
        "from mindspore.dataset import MindDataset\n"
        "from mindspore.mindrecord import FileWriter\n"
        "writer = FileWriter(sys.argv[2], shard_num=1, overwrite=True)\n"
        "names = ['input_ids', 'labels', 'loss_mask']\n"
        "writer.add_schema({name: {'type': 'int32', 'shape': [-1]} for name in names}, 'rows')\n"
        "draw = np.random.default_rng(1)\n"
        "for row in MindDataset(sys.argv[1], names, shuffle=False).create_dict_iterator(num_epochs=1, output_numpy=True):\n"
        "    row['labels'] = draw.permutation(row['labels'])\n"
        "    writer.write_raw_data([row])\n"
        "writer.commit()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(source), str(target)], check=True, capture_output=True)


def test_the_slope_is_that_of_a_line_and_leaves_a_single_leap_out() -> None:
    line = [10 - 0.02 * step for step in range(100)]
    assert robust_slope(line) == pytest.approx(-0.02)
    assert robust_slope([*line[:70], 50.0, *line[71:]]) == pytest.approx(-0.02)


def test_gates_that_need_many_devices_fire_on_what_their_ranks_wrote(tmp_path: Path, make_config: MakeConfig) -> None:
    """Weights that have parted, a missing rank, too much memory, too slow, overflow: figures written as ranks write them."""
    config = make_config(
        training={
            "device": "Ascend",
            "workers": 2,
            "device_memory": "64GB",
            "tokens_per_second": 4000.0,
            "precision": "bf16",
        }
    )
    steps = tuple(step(number, overflow=number > 40) for number in range(1, 61))
    training = Training(tmp_path, TrainingResult(60, (), 0), steps)
    probes = [
        {"weights": "a", "forward_seconds": 1.0, "accumulation_difference": 0.5},
        {"weights": "b", "forward_seconds": 1.1, "accumulation_difference": 0.0},
    ]
    gates = {gate.name: gate for gate in judge(training, [steps, steps[:-1]], probes, config, {"alarms": []})}
    assert failed(gates) == {
        "overflow", "memory", "throughput", "every step on every rank", "equal weights", "accumulation",
    }  # fmt: skip
    assert "ranks [1] lack some" in gates["every step on every rank"].found
    assert "at least 4000" in gates["throughput"].found


def step(number: int, overflow: bool) -> StepMetrics:
    return StepMetrics(
        step=number,
        tokens=number * 512,
        loss=9 - 0.05 * number,
        learning_rate=1e-3,
        gradient_norm=None if overflow else 1.0,
        loss_scale=None,
        overflow=overflow,
        seconds=0.1,
        waited=0.0,
        tokens_per_second=3000.0,
        memory=63 * 10**9,
    )
