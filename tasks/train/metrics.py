"""What each step measured: written by each rank, a JSON line a step, and merged over the ranks."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import pyarrow as pa

from tasks.documents import write_table
from tasks.files import atomic_path
from tasks.train.job import EVALUATIONS, METRICS, TrainingFailed

# Gradients are averaged over the ranks, so their norm is one number; two would mean that they have parted.
NORM_TOLERANCE = 1e-3
LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class StepMetrics:
    """One optimizer step, counted from 1. Loss is in nats a token: a rank's own, or, merged, the mean over ranks.

    `tokens`: seen up to this step by all ranks. `seconds`: of the step; `waited`: between the step before and this one, for
    data, saving or evaluating. `memory`: most bytes that the process (on Ascend the device) ever held; merged, that of the
    largest rank. `batch`: a digest of the token ids that the step took, where they pass through here (not in Ascend's sink
    mode). tokens/s are all ranks'. In a step that overflowed there is no gradient norm, and the optimizer did nothing.
    """

    step: int
    tokens: int
    loss: float
    learning_rate: float
    gradient_norm: float | None
    loss_scale: float | None
    overflow: bool
    seconds: float
    waited: float
    tokens_per_second: float
    memory: int
    batch: str | None = None


@dataclass(frozen=True)
class Evaluation:
    """The mean loss (nats a token) on held-out sequences after a step, and its exponential."""

    step: int
    loss: float
    perplexity: float
    tokens: int


def merge(ranks: Sequence[StepMetrics]) -> StepMetrics:
    """Return one step as all ranks report it.

    Raises:
        TrainingFailed: their gradient norms differ.
    """
    norms = [rank.gradient_norm for rank in ranks if rank.gradient_norm is not None]
    if norms and max(norms) - min(norms) > NORM_TOLERANCE * max(norms):
        raise TrainingFailed(
            f"step {ranks[0].step}: the workers have parted: gradient norms {', '.join(f'{n:.6g}' for n in norms)} "
            "where the average gradient has one; train anew, and check the devices"
        )
    slowest = max(ranks, key=lambda rank: rank.seconds)
    return StepMetrics(
        step=ranks[0].step,
        tokens=ranks[0].tokens,
        loss=fmean(rank.loss for rank in ranks),
        learning_rate=ranks[0].learning_rate,
        gradient_norm=ranks[0].gradient_norm,
        loss_scale=ranks[0].loss_scale,
        overflow=ranks[0].overflow,
        seconds=slowest.seconds,
        waited=max(rank.waited for rank in ranks),
        tokens_per_second=min(rank.tokens_per_second for rank in ranks),
        memory=max(rank.memory for rank in ranks),
        batch="-".join(rank.batch for rank in ranks if rank.batch) or None,
    )


class NewLines:
    """Reads what was appended to a file since the last look, up to its last complete line."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._position = 0

    def read(self) -> Iterator[str]:
        if self._file.exists():
            with self._file.open("rb") as stream:
                stream.seek(self._position)
                lines = stream.read()
            complete = lines[: lines.rfind(b"\n") + 1]
            self._position += len(complete)
            yield from complete.decode().splitlines()


def complete_lines(file: Path) -> list[str]:
    return list(NewLines(file).read())


def read_metrics(file: Path) -> tuple[StepMetrics, ...]:
    """Return what each step measured, in order."""
    return tuple(StepMetrics(**json.loads(line)) for line in complete_lines(file))


def rank_metrics(folder: Path) -> list[tuple[StepMetrics, ...]]:
    """Return what each rank measured since it was last started."""
    files = sorted(folder.glob(f"rank_*/{METRICS}"), key=lambda file: int(file.parent.name.removeprefix("rank_")))
    return [read_metrics(file) for file in files]


def evaluation_of(step: int, loss_sum: float, tokens: int) -> Evaluation:
    """Return the evaluation of a network after `step`. `loss_sum`: over `tokens` tokens, in nats."""
    loss = loss_sum / tokens
    return Evaluation(step, loss, perplexity(loss), tokens)


def perplexity(loss: float) -> float:
    """Return the perplexity of a loss in nats a token, finite for any loss."""
    return math.exp(min(loss, LARGEST_EXPONENT))


def read_evaluations(folder: Path) -> tuple[Evaluation, ...]:
    """Return the evaluations of a training, in order."""
    return tuple(Evaluation(**json.loads(line)) for line in complete_lines(folder / EVALUATIONS))


def keep_steps(folder: Path, start: int) -> None:
    """Leave the steps up to `start` in the merged metrics, also those that ranks reported after the last look."""
    ranks: dict[int, list[StepMetrics]] = {}
    for steps in rank_metrics(folder):
        for step in steps:
            ranks.setdefault(step.step, []).append(step)
    lines = {number: json.dumps(asdict(merge(steps))) for number, steps in ranks.items() if number <= start}
    lines |= {json.loads(line)["step"]: line for line in complete_lines(folder / METRICS)}
    _write(folder / METRICS, {number: line for number, line in lines.items() if number <= start})


def write_evaluations(file: Path, evaluations: Sequence[Evaluation]) -> None:
    _write(file, {found.step: json.dumps(asdict(found)) for found in evaluations})


def write_parquet(folder: Path) -> Path:
    """Write the merged metrics as a table, a row a step."""
    steps = read_metrics(folder / METRICS)
    target = folder / f"{Path(METRICS).stem}.parquet"
    write_table(target, pa.Table.from_pylist([asdict(step) for step in steps]))
    return target


def _write(file: Path, lines: dict[int, str]) -> None:
    with atomic_path(file) as temporary:
        temporary.write_text("".join(f"{lines[number]}\n" for number in sorted(lines)), encoding="utf-8")
