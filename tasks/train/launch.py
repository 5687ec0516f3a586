"""Trains a model in processes of its own, and follows what they measure. Nothing here imports MindSpore.

Workers run under `supervisor.py`, so that nothing survives this process. Each writes a line a step into its own file; a
step counts when every worker has reported it. Whether a training succeeded is read from these records: a launcher that
ends with status 0 may not have trained at all. What was ended from outside goes on by itself from the last checkpoint.
"""

import json
import logging
import math
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from tasks.files import try_lock, write_json
from tasks.train import mindformers_yaml, msrun
from tasks.train.checkpoints import last_good, step_of, whole_checkpoints
from tasks.train.failures import Cause, first_cause, scheduler_failed
from tasks.train.job import (
    EVALUATIONS,
    FINISHED,
    JOB_FILE,
    MEETINGS,
    METRICS,
    PROCESS,
    SCHEDULER_LOG,
    TrainingFailed,
    TrainingInterrupted,
    TrainingJob,
    TrainingResult,
)
from tasks.train.metrics import (
    Evaluation,
    NewLines,
    StepMetrics,
    complete_lines,
    evaluation_of,
    keep_steps,
    merge,
    read_evaluations,
    write_evaluations,
)

logger = logging.getLogger("mindpretrain")

POLL_SECONDS = 0.1
LOST_SECONDS = 5.0
"""How long a launcher may take to say why a worker ended."""
CURVE, LAUNCH_LOG = "curve.json", "launch.log"
SPIKE_WINDOW, SPIKE_MIN_STEPS = 50, 20
BLAMED_STEP = re.compile(r"at step (\d+)")


def train(job: TrainingJob, on_step: Callable[[StepMetrics], None]) -> TrainingResult:
    """Train to the job's last step, from its last whole checkpoint where there is one; call `on_step` for each step.

    What is interrupted from outside goes on from the last checkpoint, up to `training.max_restarts` times.

    Raises:
        TrainingFailed: a worker failed, reported nothing for `timeout_minutes`, or parted from the others; the dataset has
            fewer sequences than one step takes; the folder is in use, or holds another training's checkpoints.
    """
    _check_size(job)
    job.folder.mkdir(parents=True, exist_ok=True)
    with _alone(job.folder):
        _check_curve(job)
        first, start = None, 0
        reasons: list[str] = []
        while True:
            resume_from = last_good(job.folder)
            start = step_of(resume_from) if resume_from else mindformers_yaml.distributed_step(job.folder)
            first = start if first is None else first
            keep_steps(job.folder, start)
            if start >= job.steps:
                break
            prepare(job, resume_from, start)
            try:
                _follow(job, start, on_step)
                break
            except TrainingInterrupted as lost:
                if len(reasons) == job.training.max_restarts:
                    raise
                reasons.append(str(lost))
                logger.warning("%s\n  going on from the last checkpoint (restart %d)", lost, len(reasons))
    return TrainingResult(job.steps, tuple(whole_checkpoints(job.folder)), first, tuple(reasons))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other trainings out of the folder."""
    with try_lock(folder / ".lock") as free:
        if not free:
            raise TrainingFailed(
                f"{folder}: another training writes into this folder; wait for it, or choose another workspace"
            )
        yield


def _check_size(job: TrainingJob) -> None:
    if job.sequences < job.global_batch:
        raise TrainingFailed(
            f"{job.dataset.files[0]}: {job.sequences} sequences, but training.batch_size {job.training.batch_size} x "
            f"gradient_accumulation {job.training.gradient_accumulation} x {job.training.data_parallel} copies takes "
            f"{job.global_batch} a step; lower them or add documents"
        )


def _check_curve(job: TrainingJob) -> None:
    """Refuse to go on from checkpoints of a training that would have had another curve."""
    file, wanted = job.folder / CURVE, _curve(job)
    if _last_step(job.folder) and file.is_file():
        found = json.loads(file.read_text(encoding="utf-8"))
        changed = [name for name in wanted if found.get(name) != wanted[name]]
        if changed:
            said = "; ".join(f"{name} was {found.get(name)}, is {wanted[name]}" for name in changed)
            raise TrainingFailed(
                f"{job.folder}: its checkpoints are of another training: {said}.{_learning_rates(job, found)} Going on "
                "would give a curve that is neither's; set it back, or begin anew from a checkpoint's weights with "
                "model.init: checkpoint"
            )
    write_json(file, wanted)


def _last_step(folder: Path) -> int:
    """Return the step of the last checkpoint, our own or mindformers' distributed one; 0 without any."""
    own = whole_checkpoints(folder)
    return step_of(own[-1]) if own else mindformers_yaml.distributed_step(folder)


def _curve(job: TrainingJob) -> dict[str, Any]:
    """Return what decides which sequences and which learning rate a step has."""
    training = job.training
    return {
        "steps": job.steps,
        "sequences": job.sequences,
        "global_batch": job.global_batch,
        "seq_length": job.seq_length,
        "vocab_size": job.vocab_size,
        "seed": job.seed,
        "dataset": [file.name for file in job.dataset.files],
        "model": job.model.model_dump(exclude={"preset", "init", "init_from"}),
        "learning_rate": [training.learning_rate, training.final_learning_rate],
        "schedule": [training.schedule, training.warmup_share, training.decay_share],
    }


def _learning_rates(job: TrainingJob, found: dict[str, Any]) -> str:
    """Return by how much the learning rate would jump, where the length changed."""
    at = _last_step(job.folder)
    before, after = (learning_rate(job, at, steps) for steps in (int(found["steps"]), job.steps))
    return f" The learning rate of step {at} would jump from {before:.4g} to {after:.4g}." if before != after else ""


def learning_rate(job: TrainingJob, step: int, steps: int) -> float:
    """Return the learning rate after `step` of `steps` steps, as mindformers' schedules have it."""
    training = job.training
    warmup = mindformers_yaml.warmup_steps(job.training, steps)
    peak, last = training.learning_rate, training.final_learning_rate
    if step < warmup:
        return peak * step / warmup
    if training.schedule == "wsd":
        start = mindformers_yaml.decay_start(training, steps)
        return peak if step < start else peak - (peak - last) * (step - start) / (steps - start)
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return last + (peak - last) * (1 + math.cos(math.pi * progress)) / 2


def prepare(
    job: TrainingJob, resume_from: Path | None, start: int, evaluate_only: Sequence[Sequence[Path]] = ()
) -> None:
    """Write what the workers read. `evaluate_only`: sets of MindRecord files to be evaluated, and nothing to be trained."""
    mindformers_yaml.write(job, start)
    for old in [*job.folder.glob("rank_*/*.json*"), *job.folder.glob("logs/*.log")]:
        old.unlink()
    shutil.rmtree(job.folder / MEETINGS, ignore_errors=True)
    (job.folder / MEETINGS).mkdir()
    spread = job.training.semi_auto  # then mindformers itself loads and saves, and no device holds the whole network
    weights = job.init_weights if resume_from is None and not spread else None
    own_accumulation = 1 if spread else job.training.gradient_accumulation
    state = {
        "steps": job.steps,
        "start": start,
        "epochs": 1 if job.dataset.kind == "megatron" else mindformers_yaml.epochs(job),
        "resume_from": str(resume_from.absolute()) if resume_from else None,
        "init_weights": str(weights.absolute()) if weights else None,
        "checkpoint_every": None if spread else job.checkpoint_every,
        "keep_checkpoints": job.keep_checkpoints,
        "workers": job.training.workers,
        "device": job.training.device,
        "precision": job.training.precision,
        "accumulation": own_accumulation,
        "batch_size": job.training.batch_size,
        "rows": None if spread else job.training.batch_size * own_accumulation,
        "seq_length": job.seq_length,
        "vocab_size": job.vocab_size,
        "dataset": job.dataset.kind,
        "tokens_a_step": job.tokens_a_step,
        "evaluate_every": job.evaluate_every,
        "evaluation_sequences": job.evaluation_sequences,
        "held_out": [] if spread else [str(file.absolute()) for file in job.dataset.held_out],
        "evaluate_only": [[str(file.absolute()) for file in files] for files in evaluate_only],
        "columns": mindformers_yaml.columns(job),
        "probe": job.probe,
        "sample_prompts": job.sample_prompts,
        "sample_tokens": job.sample_tokens,
        "eos_id": job.eos_id,
    }
    write_json(job.folder / JOB_FILE, state)


def _follow(job: TrainingJob, start: int, on_step: Callable[[StepMetrics], None]) -> None:
    """Run the workers; pass each step on and append it to the job's metrics."""
    for host, line in msrun.command_lines(job)[1:]:
        logger.info("start on %s within %d minutes: %s", host, msrun.CLUSTER_TIMEOUT_SECONDS // 60, line)
    with (job.folder / METRICS).open("a", encoding="utf-8") as metrics:
        process = start_workers(job)
        try:
            last = start
            watch = SpikeWatch(job.max_loss_spike)
            for step in _merged_steps(job, start, process):
                metrics.write(f"{json.dumps(asdict(step))}\n")
                metrics.flush()
                on_step(step)
                watch.look(step)
                last = step.step
            status = process.poll()
        finally:
            end_workers(process)
            _keep_evaluations(job)
    finished = all((folder / FINISHED).is_file() for folder in rank_folders(job))
    if last < job.steps or not finished or status:
        cause = first_cause(logs_of(job.folder), status)
        if cause.unknown and status is None and (lost := _lost_worker(job)) is not None:
            cause = Cause(f"rank {lost} ended without a word; most often the system, for want of memory", outside=True)
        failure = TrainingInterrupted if cause.outside else TrainingFailed
        blamed = BLAMED_STEP.search(cause.text)
        raise failure(
            f"the training ended after step {last} of {job.steps}: {cause.text}", int(blamed[1]) if blamed else None
        )


def start_workers(job: TrainingJob) -> "subprocess.Popen[bytes]":
    """Start this host's workers under the supervisor."""
    with (job.folder / LAUNCH_LOG).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tasks.train.supervisor", *msrun.command(job)],
            env=msrun.environment(job.training),
            cwd=msrun.PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


class SpikeWatch:
    """Ends a training whose loss leaps."""

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._last: deque[float] = deque(maxlen=SPIKE_WINDOW)

    def look(self, step: StepMetrics) -> None:
        """Take the next step.

        Raises:
            TrainingFailed: its loss lies more than the limit above the mean of the steps before.
        """
        mean = fmean(self._last) if len(self._last) >= SPIKE_MIN_STEPS else math.inf
        if self._limit is not None and step.loss > mean + self._limit:
            raise TrainingFailed(
                f"the loss leapt from {mean:.3f} (mean of {len(self._last)} steps) to {step.loss:.3f} at step "
                f"{step.step}, more than pretrain.max_loss_spike {self._limit:g}; the checkpoints before it are kept. "
                "Look at that step's sequences, lower training.learning_rate, or raise the limit and run again",
                step.step,
            )
        self._last.append(step.loss)


def _merged_steps(job: TrainingJob, start: int, process: "subprocess.Popen[bytes]") -> Iterator[StepMetrics]:
    """Yield every step that all workers have reported, until they have ended, or one of them is lost."""
    readers = [NewLines(folder / METRICS) for folder in rank_folders(job)]
    waiting: list[list[StepMetrics]] = [[] for _ in readers]
    patience = job.training.timeout_minutes * 60
    moved = time.monotonic()
    lost_since = None
    ended = False
    while not ended:
        ended = process.poll() is not None
        for reader, queue in zip(readers, waiting, strict=True):
            queue.extend(StepMetrics(**json.loads(line)) for line in reader.read())
        while all(waiting):
            yield merge([queue.pop(0) for queue in waiting])
            moved = time.monotonic()
        if ended:
            return
        if scheduler_failed(job.folder / "logs" / SCHEDULER_LOG):
            return
        lost_since = (lost_since or time.monotonic()) if _lost_worker(job) is not None else None
        if lost_since is not None and time.monotonic() - lost_since > LOST_SECONDS:
            return
        if time.monotonic() - moved < patience:
            time.sleep(POLL_SECONDS)
            continue
        raise TrainingInterrupted(
            f"no training step ended for training.timeout_minutes {job.training.timeout_minutes:g}; the workers were ended. "
            f"Their logs: {', '.join(map(str, logs_of(job.folder)))}; raise the timeout if a step or compiling takes longer"
        )


def _lost_worker(job: TrainingJob) -> int | None:
    """Return a rank of this machine whose process is gone although it has not finished."""
    for rank, folder in enumerate(rank_folders(job)[: job.training.workers // max(1, len(job.training.hosts))]):
        file = folder / PROCESS
        if file.is_file() and not (folder / FINISHED).is_file() and not _lives(json.loads(file.read_text())["pid"]):
            return rank
    return None


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _keep_evaluations(job: TrainingJob) -> None:
    """Join what the ranks evaluated with what was evaluated before."""
    joined = {evaluation.step: evaluation for evaluation in [*read_evaluations(job.folder), *joined_evaluations(job)]}
    if joined:
        write_evaluations(job.folder / EVALUATIONS, list(joined.values()))


def joined_evaluations(job: TrainingJob) -> list[Evaluation]:
    """Return what all ranks have evaluated, each its own sequences."""
    sums: dict[int, list[tuple[float, int]]] = {}
    for folder in rank_folders(job):
        for line in complete_lines(folder / EVALUATIONS):
            found = json.loads(line)
            sums.setdefault(found["step"], []).append((found["loss_sum"], found["tokens"]))
    whole = {step: parts for step, parts in sums.items() if len(parts) == job.training.workers}
    return [
        evaluation_of(step, sum(total for total, _ in parts), sum(count for _, count in parts))
        for step, parts in whole.items()
    ]


def rank_folders(job: TrainingJob) -> list[Path]:
    return [job.folder / f"rank_{rank}" for rank in range(job.training.workers)]


def end_workers(process: "subprocess.Popen[bytes]") -> None:
    """End the supervisor, which ends everything below it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait()


def logs_of(folder: Path) -> list[Path]:
    """Return the workers' logs, rank 0 first, then the launcher's, and at last their scheduler's."""
    return [*sorted(folder.glob("logs/worker_*.log")), folder / LAUNCH_LOG, folder / "logs" / SCHEDULER_LOG]
