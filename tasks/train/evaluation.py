"""The loss of trained weights on held-out sequences, without training: the training's own workers evaluate, and end."""

import time
from collections.abc import Sequence
from pathlib import Path

from tasks.train.failures import first_cause
from tasks.train.job import FINISHED, TrainingFailed, TrainingJob
from tasks.train.launch import (
    POLL_SECONDS,
    end_workers,
    joined_evaluations,
    logs_of,
    prepare,
    rank_folders,
    start_workers,
)
from tasks.train.metrics import Evaluation


def evaluate(job: TrainingJob, sets: Sequence[Sequence[Path]]) -> list[Evaluation]:
    """Return the evaluation of the job's first weights on each set of MindRecord files; its `step` is the set's number.

    Raises:
        TrainingFailed: the weights or files do not fit, or nothing came for `training.timeout_minutes`.
    """
    if job.training.semi_auto:
        raise TrainingFailed(
            "evaluate: needs a network that each device holds whole; leave tensor, pipeline, context and "
            "optimizer_sharding out for it"
        )
    job.folder.mkdir(parents=True, exist_ok=True)
    prepare(job, None, 0, evaluate_only=sets)
    process = start_workers(job)
    try:
        deadline = time.monotonic() + job.training.timeout_minutes * 60
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        status = process.poll()
    finally:
        end_workers(process)
    if status or not all((folder / FINISHED).is_file() for folder in rank_folders(job)):
        raise TrainingFailed(f"evaluate: {first_cause(logs_of(job.folder), status).text}")
    return joined_evaluations(job)
