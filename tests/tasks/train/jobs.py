"""Small training jobs, and a way to run one in a process that can be killed: `python -m tests.tasks.train.jobs JOB_FILE`."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from configs.training import ModelConfig, TrainingConfig
from tasks.files import write_json
from tasks.train.job import METRICS, DatasetFiles, TrainingJob
from tasks.train.launch import train
from tasks.train.metrics import StepMetrics
from tasks.train.separate import RecordFile, WriteMindRecord, write_mindrecord
from tests.conftest import PROJECT

SEQ_LENGTH, VOCABULARY, SEQUENCES = 64, 512, 128
WITHOUT_TIMES = ("step", "loss", "learning_rate", "gradient_norm", "loss_scale", "overflow", "batch")


def repetitive_sequences(count: int = SEQUENCES) -> npt.NDArray[np.uint16]:
    """Return sequences in which each token is the one before it plus 7: there is something to learn."""
    starts = np.random.default_rng(11).integers(2, VOCABULARY, (count, 1))
    return ((starts + 7 * np.arange(SEQ_LENGTH + 1)) % (VOCABULARY - 2) + 2).astype(np.uint16)


def store(sequences: npt.NDArray[Any], folder: Path, name: str) -> Path:
    job = record_job(sequences, folder, name)
    write_mindrecord(job)
    return job.files[0].target


def record_job(sequences: npt.NDArray[Any], folder: Path, name: str, **changes: Any) -> WriteMindRecord:
    """Write rows as pack stores them, and return the job that makes MindRecord of them."""
    sequences.tofile(folder / f"{name}.bin")
    header = {"dtype": str(sequences.dtype), "tokens_a_row": sequences.shape[1], "eos": 0, "pad": 1}
    write_json(folder / f"{name}.json", header)
    file = RecordFile(rows=folder / f"{name}.bin", header=folder / f"{name}.json", target=folder / f"{name}.mindrecord")
    return WriteMindRecord(files=(file,), **changes)


def make_job(folder: Path, dataset: Path, **changes: Any) -> TrainingJob:
    """Return a job of two layers; `changes` are its fields, or those of its training section."""
    training: dict[str, Any] = {"batch_size": 4, "learning_rate": 5e-3, "warmup_share": 0.1}
    training |= {name: changes.pop(name) for name in list(changes) if name in TrainingConfig.model_fields}
    fields: dict[str, Any] = {
        "sequences": SEQUENCES,
        "steps": 40,
        "checkpoint_every": None,
        "keep_checkpoints": 2,
        "model": ModelConfig(hidden_size=64, intermediate_size=128, num_layers=2, num_heads=2),
    }
    return TrainingJob(
        folder=folder,
        dataset=DatasetFiles("mindrecord", (dataset,)),
        vocab_size=VOCABULARY,
        seq_length=SEQ_LENGTH,
        eos_id=0,
        pad_id=1,
        training=TrainingConfig(**training),
        seed=3,
        **fields | changes,
    )


def run(job: TrainingJob) -> list[StepMetrics]:
    steps: list[StepMetrics] = []
    train(job, steps.append)
    return steps


def curve(job: TrainingJob) -> list[tuple[Any, ...]]:
    """Return all that the steps in the job's metrics measured, except their times."""
    lines = (job.folder / METRICS).read_text(encoding="utf-8").splitlines()
    return [tuple(json.loads(line)[name] for name in WITHOUT_TIMES) for line in lines]


def start_follower(job: TrainingJob, description: Path) -> "subprocess.Popen[bytes]":
    """Start `train` in a process of its own."""
    write_json(
        description,
        {
            name: value.model_dump()
            if isinstance(value, ModelConfig | TrainingConfig)
            else str(value)
            if isinstance(value, Path)
            else str(value.files[0])
            if isinstance(value, DatasetFiles)
            else value
            for name, value in vars(job).items()
        },
    )
    return subprocess.Popen([sys.executable, "-m", "tests.tasks.train.jobs", str(description)], cwd=PROJECT)


def wait_until(what: Callable[[], bool], seconds: float = 60, every: float = 0.005) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(every)


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """End a process as the system does when memory is short: it cannot clean up."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def _read(description: Path) -> TrainingJob:
    fields = json.loads(description.read_text(encoding="utf-8"))
    fields |= {"folder": Path(fields["folder"]), "dataset": DatasetFiles("mindrecord", (Path(fields["dataset"]),))}
    fields |= {"model": ModelConfig(**fields["model"]), "training": TrainingConfig(**fields["training"])}
    return TrainingJob(**fields)


if __name__ == "__main__":
    train(_read(Path(sys.argv[1])), lambda _: None)
