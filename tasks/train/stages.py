"""What the smoke and pretrain stages have in common: a training job over the token dataset, followed step by step."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks.artifact import ArtifactFile, Manifest
from tasks.pack.outputs import dataset_files
from tasks.stage import StageRun
from tasks.train import mindformers_yaml
from tasks.train.launch import METRICS, StepMetrics, TrainingJob, TrainingResult, train

logger = logging.getLogger("mindpretrain")

LIBRARIES = ("mindspore", "mindformers", "numpy")
REPORTS = 10
WITHOUT_INFLUENCE = {"timeout_minutes"}


@dataclass(frozen=True)
class Training:
    """A training that has ended: where, how, and what each step measured."""

    folder: Path
    result: TrainingResult
    steps: tuple[StepMetrics, ...]

    def mean_loss(self, first: int, last: int) -> float:
        """Return the mean loss (nats a token) of steps `first` to `last`, counted from 1."""
        return fmean(step.loss for step in self.steps if first <= step.step <= last)

    def stats(self) -> dict[str, Any]:
        tenth = max(1, len(self.steps) // 10)
        return {
            "steps": len(self.steps),
            "loss_first": round(self.mean_loss(1, tenth), 4),
            "loss_last": round(self.mean_loss(len(self.steps) - tenth + 1, len(self.steps)), 4),
            "overflow_steps": sum(step.overflow for step in self.steps),
            "tokens_per_second": round(fmean(step.tokens_per_second for step in self.steps[tenth:] or self.steps)),
        }


def training_settings(config: RunConfig) -> dict[str, Any]:
    """Return the part of the configuration that decides a training's outcome, its length aside."""
    return {
        "model": config.model.model_dump(),
        "training": config.training.model_dump(exclude=WITHOUT_INFLUENCE),
        "seq_length": config.pack.seq_length,
        "seed": config.seed,
    }


def steps_per_epoch(dataset: Manifest, config: RunConfig) -> int:
    """Return how many full global batches the token dataset makes.

    Raises:
        PipelineError: not even one.
    """
    global_batch = config.training.batch_size * config.training.workers
    sequences = sequences_of(dataset, config)
    if sequences < global_batch:
        raise PipelineError(
            f"training.batch_size {config.training.batch_size} x training.workers {config.training.workers} needs "
            f"{global_batch} sequences a step, but the token dataset has {sequences}; lower them or add documents"
        )
    return sequences // global_batch


def sequences_of(dataset: Manifest, config: RunConfig) -> int:
    """Return how many sequences a pass over the dataset has: those packed, or those that Megatron's loader will cut."""
    if config.training.dataset == "mindrecord":
        return int(dataset.stats["sequences"])
    return int((dataset.stats["tokens_a_pass"] - 1) // config.pack.seq_length)


def run_training(run: StageRun, steps: int, checkpoint_every: int | None, keep_checkpoints: int) -> Training:
    """Train in the draft's folder, so that an interrupted training goes on from its last whole checkpoint."""
    dataset = run.artifact("pack")
    stats = dataset.manifest.stats
    job = TrainingJob(
        folder=run.draft.folder,
        dataset=dataset_files(dataset, run.config),
        sequences=sequences_of(dataset.manifest, run.config),
        vocab_size=run.config.model.vocab_size or stats["vocab_size"],
        seq_length=run.config.pack.seq_length,
        eos_id=stats["eos_id"],
        pad_id=stats["pad_id"],
        steps=steps,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        model=run.config.model,
        training=run.config.training,
        seed=run.config.seed,
    )
    every = max(1, steps // REPORTS)

    def report(step: StepMetrics) -> None:
        if step.step % every == 0 or step.step in (1, steps):
            logger.info(
                "%s: step %d of %d, loss %.3f, learning rate %.2e, gradient norm %s, %.0f tokens/s",
                run.stage, step.step, steps, step.loss, step.learning_rate, norm_or_overflow(step), step.tokens_per_second,
            )  # fmt: skip

    result = train(job, report)
    if result.resumed_from_step:
        logger.info("%s: resumed from the checkpoint of step %d", run.stage, result.resumed_from_step)
    return Training(run.draft.folder, result, read_metrics(run.draft.folder / METRICS))


def norm_or_overflow(step: StepMetrics) -> str:
    return "overflow" if step.gradient_norm is None else f"{step.gradient_norm:.3f}"


def read_metrics(file: Path) -> tuple[StepMetrics, ...]:
    """Return what each step measured, in order."""
    return tuple(StepMetrics(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines())


def describe(run: StageRun, paths: Sequence[Path]) -> list[ArtifactFile]:
    """Return the training's files as the manifest lists them: settings, metrics, and `paths`."""
    names = [path.relative_to(run.draft.folder).as_posix() for path in paths]
    return run.draft.describe(mindformers_yaml.FILE, METRICS, *names)
