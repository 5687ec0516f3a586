"""Trains a model in processes of its own, and follows what they measure. Nothing here imports MindSpore.

One worker runs directly (`msrun` takes one that joins no group for a failed one), several run under `msrun`; both under
`supervisor.py`, so that nothing survives this process. Each worker writes a line a step into its own file; a step counts
when every worker has reported it. Whether a training succeeded is read from these records: a launcher that ends with
status 0 may not have trained at all.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import BaseModel, ConfigDict

from configs.errors import PipelineError
from configs.schema import ModelConfig, TrainingConfig
from tasks.files import TEMPORARY, atomic_path, write_json
from tasks.train import mindformers_yaml
from tasks.train.failures import first_cause, scheduler_failed

PROJECT = Path(__file__).resolve().parents[2]
METRICS = "metrics.jsonl"
JOB_FILE = "job.json"
CHECKPOINTS = "checkpoints"
CHECKPOINT_STATE = "state.json"
MEETINGS = "meetings"
SCHEDULER_LOG = "scheduler.log"
MEGATRON_CHECKED = "read_back.json"
POLL_SECONDS = 0.1
# Gradients are averaged over the workers, so their norm is one number; two would mean that they have parted.
NORM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class DatasetFiles:
    """What a training reads.

    MindRecord files have one int32 column `input_ids` of seq_length + 1 tokens, or, with `training_columns`, also labels
    and loss mask, of seq_length each. Megatron's are prefixes of `.bin` and `.idx`, each with its share of the tokens; with
    `reset` tokens do not see earlier documents of their sequence.
    """

    kind: Literal["mindrecord", "megatron"]
    files: tuple[Path, ...]
    shares: tuple[float, ...] = ()
    training_columns: bool = False
    reset: bool = False
    documents_in_a_sequence: int = 1


@dataclass(frozen=True)
class TrainingJob:
    """What to train, on what, for how long, and where its files go.

    `folder` keeps checkpoints, metrics and logs; a job that finds checkpoints there goes on from the last one. `pad_id` is
    -1 for no padding.
    """

    folder: Path
    dataset: DatasetFiles
    sequences: int
    vocab_size: int
    seq_length: int
    eos_id: int
    pad_id: int
    steps: int
    checkpoint_every: int | None
    keep_checkpoints: int
    model: ModelConfig
    training: TrainingConfig
    seed: int


@dataclass(frozen=True)
class StepMetrics:
    """One optimizer step, counted from 1. Loss is the mean over workers, in nats a token; tokens/s are all workers'.

    In a step that overflowed there is no gradient norm, and the optimizer did nothing.
    """

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float | None
    loss_scale: float | None
    overflow: bool
    seconds: float
    tokens_per_second: float


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended. `checkpoints` are folders, oldest first."""

    steps: int
    checkpoints: tuple[Path, ...]
    resumed_from_step: int


class RecordFile(BaseModel):
    """Rows of token ids, and the MindRecord that is to be made of them."""

    model_config = ConfigDict(frozen=True)
    rows: Path
    header: Path
    """JSON that describes the rows: dtype, tokens_a_row, eos, pad."""
    target: Path


class WriteMindRecord(BaseModel):
    """Which rows to write as MindRecord, and with which columns. `documents_in_a_sequence`: the most that a row holds."""

    model_config = ConfigDict(frozen=True)
    files: tuple[RecordFile, ...]
    training_columns: bool = False
    reset_positions: bool = False
    documents_in_a_sequence: int = 1


class TrainingFailed(PipelineError):  # noqa: N818
    """A training that did not reach its last step; the message names the first cause and the log."""


def train(job: TrainingJob, on_step: Callable[[StepMetrics], None]) -> TrainingResult:
    """Train to the job's last step, from its last whole checkpoint where there is one; call `on_step` for each step.

    Raises:
        TrainingFailed: a worker failed, reported nothing for `timeout_minutes`, or parted from the others; or the
            dataset has fewer sequences than one step takes.
    """
    _check_size(job)
    checkpoints = whole_checkpoints(job.folder)
    resume_from = checkpoints[-1] if checkpoints else None
    start = step_of(resume_from) if resume_from else 0
    _keep_metrics(job.folder, start)
    if start < job.steps:
        _prepare(job, resume_from, start)
        _follow(job, start, on_step)
    return TrainingResult(job.steps, tuple(whole_checkpoints(job.folder)), start)


def whole_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a job, oldest first. One under its final name is whole: it got it by rename, last."""
    return sorted(path.parent for path in folder.glob(f"{CHECKPOINTS}/step-*/{CHECKPOINT_STATE}"))


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was written."""
    return int(json.loads((checkpoint / CHECKPOINT_STATE).read_text(encoding="utf-8"))["step"])


def write_mindrecord(job: WriteMindRecord) -> None:
    """Write rows of token ids as MindRecord, read back and compared.

    Raises:
        TrainingFailed: MindSpore could not write it, or read something else back.
    """
    final = job.files[0].target.parent
    # A folder of its own, so that what a killed process left running cannot write into the files of the next one.
    folder = final / f".{secrets.token_hex(4)}{TEMPORARY}"
    folder.mkdir(parents=True)
    try:
        drafts = [file.model_copy(update={"target": folder / file.target.name}) for file in job.files]
        paths = {"files": [{name: str(path.absolute()) for name, path in file} for file in drafts]}
        write_json(folder / "job.json", job.model_dump(exclude={"files"}) | paths)
        _run_module("mindrecord", job.files[0].target, folder / "job.json")
        for draft in drafts:
            for written in (draft.target, draft.target.with_name(f"{draft.target.name}.db")):
                written.replace(final / written.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_megatron(folder: Path, expected: dict[str, tuple[int, int]]) -> None:
    """Read Megatron files by mindformers' reader, and keep what it found. `expected`: documents and checksum of each.

    Raises:
        TrainingFailed: it could not read them, or read something else.
    """
    target = folder / MEGATRON_CHECKED
    _run_module("megatron", target, folder, target)
    found = json.loads(target.read_text(encoding="utf-8"))
    for name, (documents, digest) in expected.items():
        if found.get(name) != [documents, digest]:
            raise TrainingFailed(
                f"{folder / name}: mindformers reads {found.get(name)} (documents and checksum), expected "
                f"{documents} and {digest}"
            )


def _run_module(name: str, target: Path, *arguments: Path) -> None:
    """Run a module of this package that imports MindSpore, in a process of its own; its output shows only if it fails."""
    log = target.with_name(f"{target.name}.log")
    module = [sys.executable, "-m", f"tasks.train.{name}", *(str(argument.absolute()) for argument in arguments)]
    command = [sys.executable, "-m", "tasks.train.supervisor", *module]  # so that it ends with this process
    with log.open("wb") as output:
        done = subprocess.run(command, env=_environment(), cwd=PROJECT, stdout=output, stderr=output, check=False)
    if done.returncode:
        raise TrainingFailed(f"{target}: not written; {first_cause([log], done.returncode)}")
    log.unlink()


def _check_size(job: TrainingJob) -> None:
    batch_size, workers = job.training.batch_size, job.training.workers
    if job.sequences < batch_size * workers:
        raise TrainingFailed(
            f"{job.dataset.files[0]}: {job.sequences} sequences, but training.batch_size {batch_size} x "
            f"training.workers {workers} takes {batch_size * workers} a step; lower them or add documents"
        )


def _prepare(job: TrainingJob, resume_from: Path | None, start: int) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    mindformers_yaml.write(job, start)
    for old in [*job.folder.glob("rank_*/*.json*"), *job.folder.glob("logs/*.log")]:
        old.unlink()
    shutil.rmtree(job.folder / MEETINGS, ignore_errors=True)
    (job.folder / MEETINGS).mkdir()
    state = {
        "folder": str(job.folder.absolute()),
        "steps": job.steps,
        "start": start,
        "resume_from": str(resume_from.absolute()) if resume_from else None,
        "checkpoint_every": job.checkpoint_every,
        "keep_checkpoints": job.keep_checkpoints,
        "workers": job.training.workers,
        "device": job.training.device,
        "precision": job.training.precision,
        "dataset": job.dataset.kind,
        "tokens_a_step": job.training.batch_size * job.seq_length,
    }
    write_json(job.folder / JOB_FILE, state)


def _keep_metrics(folder: Path, start: int) -> None:
    """Leave the steps up to `start` in the job's metrics, also those that workers reported after the last look."""
    ranks: dict[int, list[StepMetrics]] = {}
    for file in sorted(folder.glob(f"rank_*/{METRICS}")):
        for line in _complete_lines(file):
            step = StepMetrics(**json.loads(line))
            ranks.setdefault(step.step, []).append(step)
    lines = {number: json.dumps(asdict(_merge(steps))) for number, steps in ranks.items() if number <= start}
    followed = {json.loads(line)["step"]: line for line in _complete_lines(folder / METRICS)}
    lines |= {number: line for number, line in followed.items() if number <= start}
    with atomic_path(folder / METRICS) as temporary:
        temporary.write_text("".join(f"{lines[number]}\n" for number in sorted(lines)), encoding="utf-8")


def _follow(job: TrainingJob, start: int, on_step: Callable[[StepMetrics], None]) -> None:
    """Run the workers; pass each step on and append it to the job's metrics."""
    log = job.folder / "launch.log"
    with log.open("wb") as output, (job.folder / METRICS).open("a", encoding="utf-8") as metrics:
        process = subprocess.Popen(
            [sys.executable, "-m", "tasks.train.supervisor", *_command(job)],
            env=_environment(),
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            last = start
            for step in _merged_steps(job, start, process):
                metrics.write(f"{json.dumps(asdict(step))}\n")
                metrics.flush()
                on_step(step)
                last = step.step
            status = process.poll()
        finally:
            _end(process)
    finished = all((job.folder / f"rank_{rank}" / "finished.json").is_file() for rank in range(job.training.workers))
    if last < job.steps or not finished or status:
        raise TrainingFailed(
            f"the training ended after step {last} of {job.steps}: {first_cause(_logs(job.folder), status)}"
        )


def _merged_steps(job: TrainingJob, start: int, process: "subprocess.Popen[bytes]") -> Iterator[StepMetrics]:
    """Yield every step that all workers have reported, until they have ended."""
    files = [job.folder / f"rank_{rank}" / METRICS for rank in range(job.training.workers)]
    readers = [_NewLines(file) for file in files]
    waiting: list[list[StepMetrics]] = [[] for _ in files]
    patience = job.training.timeout_minutes * 60
    moved = time.monotonic()
    ended = False
    while not ended:
        ended = process.poll() is not None
        for reader, queue in zip(readers, waiting, strict=True):
            queue.extend(StepMetrics(**json.loads(line)) for line in reader.read())
        while all(waiting):
            yield _merge([queue.pop(0) for queue in waiting])
            moved = time.monotonic()
        if not ended and scheduler_failed(job.folder / "logs" / SCHEDULER_LOG):
            return
        if ended or time.monotonic() - moved < patience:
            time.sleep(0 if ended else POLL_SECONDS)
            continue
        raise TrainingFailed(
            f"no training step ended for training.timeout_minutes {job.training.timeout_minutes:g}; the workers were ended. "
            f"Their logs: {', '.join(map(str, _logs(job.folder)))}; raise the timeout if a step or compiling takes longer"
        )


def _merge(ranks: list[StepMetrics]) -> StepMetrics:
    """Return one step as all workers report it."""
    norms = [rank.gradient_norm for rank in ranks if rank.gradient_norm is not None]
    if norms and max(norms) - min(norms) > NORM_TOLERANCE * max(norms):
        raise TrainingFailed(
            f"step {ranks[0].step}: the workers have parted: gradient norms {', '.join(f'{n:.6g}' for n in norms)} "
            "where the average gradient has one; train anew, and check the devices"
        )
    slowest = max(ranks, key=lambda rank: rank.seconds)
    return StepMetrics(
        step=ranks[0].step,
        loss=fmean(rank.loss for rank in ranks),
        learning_rate=ranks[0].learning_rate,
        gradient_norm=ranks[0].gradient_norm,
        loss_scale=ranks[0].loss_scale,
        overflow=ranks[0].overflow,
        seconds=slowest.seconds,
        tokens_per_second=slowest.tokens_per_second * len(ranks),
    )


def _command(job: TrainingJob) -> list[str]:
    worker = str(Path(__file__).with_name("worker.py"))
    arguments = [worker, str((job.folder / JOB_FILE).absolute())]
    if job.training.workers == 1:
        return [sys.executable, *arguments]
    count = str(job.training.workers)
    logs = str((job.folder / "logs").absolute())
    return [
        "msrun", f"--worker_num={count}", f"--local_worker_num={count}", "--master_addr=127.0.0.1",
        f"--master_port={_free_port()}", f"--log_dir={logs}", "--join=True", *arguments,
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    """Return the workers' environment: this interpreter first, this project importable, quiet logs."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    settings = {"PATH": search, "PYTHONPATH": str(PROJECT), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    return os.environ | settings | {"GLOG_v": "3", "MS_NODE_TIMEOUT": "30"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the supervisor, which ends everything below it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _logs(folder: Path) -> list[Path]:
    """Return the workers' logs, rank 0 first, then the launcher's, and at last their scheduler's."""
    return [*sorted(folder.glob("logs/worker_*.log")), folder / "launch.log", folder / "logs" / SCHEDULER_LOG]


def _complete_lines(file: Path) -> list[str]:
    return [line for line in file.read_text(encoding="utf-8").split("\n")[:-1] if line] if file.is_file() else []


class _NewLines:
    """Reads the lines that a growing file gained since the last look; an unfinished line waits."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._position = 0

    def read(self) -> list[str]:
        try:
            with self._file.open("rb") as stream:
                stream.seek(self._position)
                fresh = stream.read()
        except FileNotFoundError:
            return []
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._position += len(whole)
        return whole.decode().splitlines()
