"""What the project's flow costs around mindformers, as ratios in one run: `make bench`, or `python -m tests.bench_train`.

The same training by mindformers' Trainer alone and by the worker, alternated; the stall of a checkpoint; threads; and, where
`make test` has set `.torch` up, the same model in PyTorch.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from configs.training import ModelConfig, TrainingConfig
from tasks.train import launch
from tasks.train.job import METRICS, DatasetFiles, TrainingJob
from tasks.train.metrics import read_metrics
from tasks.train.msrun import environment
from tests.conftest import PROJECT
from tests.tasks.train.jobs import store

SEQ_LENGTH, VOCABULARY, SEQUENCES, BATCH = 256, 8000, 480, 8
STEPS, ROUNDS, WARM = 32, 3, 6
CHECKPOINT_EVERY = 500
SAVED_EVERY = 5
MODEL = ModelConfig(hidden_size=256, intermediate_size=688, num_layers=4, num_heads=4)
TORCH = PROJECT / ".torch" / "bin" / "python"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = np.random.default_rng(1).integers(2, VOCABULARY, (SEQUENCES, SEQ_LENGTH + 1)).astype(np.uint16)
        dataset = store(rows, Path(folder), "tokens")
        bare, ours = [], []
        for number in range(ROUNDS):
            bare.append(run_bare(job(Path(folder) / f"bare-{number}", dataset)))
            ours.append(run_ours(job(Path(folder) / f"ours-{number}", dataset)))
        print(f"step of mindformers alone    {median(bare) * 1000:8.1f} ms  ({_spread(bare)})")
        ratios = [one / other for one, other in zip(ours, bare, strict=True)]
        print(f"step of the worker           {median(ours) * 1000:8.1f} ms  ({_spread(ours)}): {median(ratios):.3f} x")
        stall = save_seconds(job(Path(folder) / "saves", dataset, checkpoint_every=SAVED_EVERY))
        share = stall / (CHECKPOINT_EVERY * median(ours))
        print(
            f"a checkpoint stalls          {stall * 1000:8.1f} ms: {share:.2%} of the time at every {CHECKPOINT_EVERY} steps"
        )
        for threads in ("unset", "1", str(os.cpu_count())):
            seconds = run_bare(job(Path(folder) / f"threads-{threads}", dataset), threads)
            print(f"OMP_NUM_THREADS {threads:<6}       {seconds * 1000:8.1f} ms a step")
        _torch(median(ours))


def job(folder: Path, dataset: Path, **changes: Any) -> TrainingJob:
    fields: dict[str, Any] = {"checkpoint_every": None} | changes
    return TrainingJob(
        folder=folder,
        dataset=DatasetFiles("mindrecord", (dataset,)),
        sequences=SEQUENCES,
        vocab_size=VOCABULARY,
        seq_length=SEQ_LENGTH,
        eos_id=0,
        pad_id=1,
        steps=STEPS,
        keep_checkpoints=2,
        model=MODEL,
        training=TrainingConfig(batch_size=BATCH, learning_rate=1e-3),
        seed=1,
        **fields,
    )


def run_ours(todo: TrainingJob) -> float:
    """Return the median seconds from one step's end to the next."""
    launch.train(todo, lambda _: None)
    return median(step.seconds + step.waited for step in read_metrics(todo.folder / METRICS)[WARM:])


def run_bare(todo: TrainingJob, threads: str = "unset") -> float:
    """Return the same of mindformers' Trainer with a callback that only takes the time."""
    todo.folder.mkdir(parents=True)
    launch.prepare(todo, None, 0)
    script = [sys.executable, str(Path(__file__).with_name("bench_bare.py")), str(todo.folder / "job.json")]
    variables = environment() | ({} if threads == "unset" else {"OMP_NUM_THREADS": threads})
    subprocess.run(script, env=variables, check=True, capture_output=True)
    ends = json.loads((todo.folder / "rank_0" / "bare.json").read_text())[WARM:]
    return float(np.median(np.diff(ends)))


def save_seconds(todo: TrainingJob) -> float:
    """Return by how much longer the step after a save began: the save lies between two steps."""
    launch.train(todo, lambda _: None)
    steps = read_metrics(todo.folder / METRICS)[WARM:]
    after = [step.waited for step in steps if step.step % SAVED_EVERY == 1]
    return median(after) - median(step.waited for step in steps if step.step % SAVED_EVERY != 1)


def _torch(ours: float) -> None:
    if not TORCH.exists():
        print("PyTorch: .torch is not there; `make test` sets it up")
        return
    model = {
        "vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4,
        "num_attention_heads": 4, "max_position_embeddings": SEQ_LENGTH,
    }  # fmt: skip
    settings = json.dumps({"model": model, "batch": BATCH, "length": SEQ_LENGTH, "steps": 40})
    script = [str(TORCH), str(Path(__file__).with_name("bench_torch.py")), settings]
    theirs = float(subprocess.run(script, check=True, capture_output=True, text=True).stdout)
    mine = BATCH * SEQ_LENGTH / ours
    print(f"tokens a second              {mine:8.0f}, PyTorch eager {theirs:.0f}: {mine / theirs:.2f} x")


def _spread(seconds: list[float]) -> str:
    return f"{min(seconds) * 1000:.1f} to {max(seconds) * 1000:.1f}"


if __name__ == "__main__":
    main()
