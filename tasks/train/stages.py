"""What the smoke and pretrain stages have in common: a training job over the token dataset, followed step by step."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks.artifact import Artifact, ArtifactFile, Manifest
from tasks.pack.dataset import Dataset
from tasks.pack.outputs import dataset_files
from tasks.stage import StageRun
from tasks.train import mindformers_yaml
from tasks.train.initial import IMPORTED, initial_weights
from tasks.train.job import EVALUATIONS, METRICS, SAMPLE, TrainingFailed, TrainingJob, TrainingResult
from tasks.train.launch import train
from tasks.train.metrics import StepMetrics, read_evaluations, read_metrics, write_parquet
from tasks.train.tensorboard import open_curves

logger = logging.getLogger("mindpretrain")

LIBRARIES = ("mindspore", "mindformers", "numpy")
REPORTS = 10
SEQUENCES_SHOWN = 8
WITHOUT_INFLUENCE = {
    "timeout_minutes", "max_restarts", "hosts", "device_memory", "tokens_per_second", "tensorboard", "global_batch_tokens",
}  # fmt: skip


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
        evaluations = read_evaluations(self.folder)
        return {
            "steps": len(self.steps),
            "tokens": self.steps[-1].tokens,
            "loss_first": round(self.mean_loss(1, tenth), 4),
            "loss_last": round(self.mean_loss(len(self.steps) - tenth + 1, len(self.steps)), 4),
            "overflow_steps": sum(step.overflow for step in self.steps),
            "tokens_per_second": round(median(step.tokens_per_second for step in self.steps)),
            "memory": max(step.memory for step in self.steps),
            "restarts": list(self.result.restarts),
            **({"held_out_perplexity": round(evaluations[-1].perplexity, 3)} if evaluations else {}),
        }


def training_settings(config: RunConfig) -> dict[str, Any]:
    """Return the part of the configuration that decides a training's outcome, its length aside."""
    model = config.model.model_dump(exclude={"preset", "init_from"})
    return {
        "model": model | {"initial_weights": initial_weights(config.model)},
        "training": config.training.model_dump(exclude=WITHOUT_INFLUENCE),
        "seq_length": config.pack.seq_length,
        "seed": config.seed,
    }


def steps_per_epoch(dataset: Manifest, config: RunConfig) -> int:
    """Return how many full global batches the token dataset makes.

    Raises:
        PipelineError: not even one.
    """
    training, sequences = config.training, sequences_of(dataset, config)
    if sequences < training.global_batch:
        raise PipelineError(
            f"training.batch_size {training.batch_size} x gradient_accumulation {training.gradient_accumulation} x "
            f"{training.data_parallel} copies needs {training.global_batch} sequences a step, but the token dataset has "
            f"{sequences}; lower them or add documents (B5)"
        )
    return sequences // training.global_batch


def sequences_of(dataset: Manifest, config: RunConfig) -> int:
    """Return how many sequences a pass over the dataset has: those packed, or those that Megatron's loader will cut."""
    if config.training.dataset == "mindrecord":
        return int(dataset.stats["sequences"])
    return int((dataset.stats["tokens_a_pass"] - 1) // config.pack.seq_length)


def make_job(config: RunConfig, dataset: Artifact, folder: Path, steps: int, **changes: Any) -> TrainingJob:
    """Return the job of a training on a pack artifact. `changes`: further fields of it."""
    stats = dataset.manifest.stats
    return TrainingJob(
        folder=folder,
        dataset=dataset_files(dataset, config),
        sequences=sequences_of(dataset.manifest, config),
        vocab_size=config.model.vocab_size or stats["vocab_size"],
        seq_length=config.pack.seq_length,
        eos_id=stats["eos_id"],
        pad_id=stats["pad_id"],
        steps=steps,
        model=config.model,
        training=config.training,
        seed=config.seed,
        **changes,
    )


def run_training(run: StageRun, job: TrainingJob) -> Training:
    """Train in the draft's folder, so that an interrupted training goes on from its last whole checkpoint.

    Raises:
        TrainingFailed: as `train` does; where a step is to blame, with the documents of its sequences.
    """
    with open_curves(job.folder, run.config.training.tensorboard) as draw:
        try:
            result = train(job, _reporter(run, job, draw))
        except TrainingFailed as failure:
            if failure.step is None or run.config.training.dataset != "mindrecord":
                raise
            documents = "\n".join(f"    {line}" for line in documents_of_step(run.dataset, job, failure.step))
            raise TrainingFailed(
                f"{failure}\n  the sequences of step {failure.step} came from\n{documents}", failure.step
            ) from failure
    if result.resumed_from_step:
        logger.info("%s: resumed from the checkpoint of step %d", run.stage, result.resumed_from_step)
    (job.folder / IMPORTED).unlink(missing_ok=True)  # as large as a checkpoint, and made again when it is needed
    return Training(job.folder, result, read_metrics(job.folder / METRICS))


def documents_of_step(dataset: Artifact, job: TrainingJob, step: int) -> list[str]:
    """Return the documents of a step's first sequences, a line a sequence."""
    a_pass = job.sequences // job.global_batch
    first = (step - 1) % a_pass * job.global_batch
    reader = Dataset(dataset.folder)
    lines = []
    for number in range(first, first + min(job.global_batch, SEQUENCES_SHOWN)):
        names = list(dict.fromkeys(span.document for span in reader.spans(number)))
        lines.append(f"sequence {number}: {', '.join(names)}")
    if job.global_batch > SEQUENCES_SHOWN:
        lines.append(f"and {job.global_batch - SEQUENCES_SHOWN} more, up to sequence {first + job.global_batch - 1}")
    return lines


def norm_or_overflow(step: StepMetrics) -> str:
    return "overflow" if step.gradient_norm is None else f"{step.gradient_norm:.3f}"


def describe(run: StageRun, paths: Sequence[Path]) -> list[ArtifactFile]:
    """Return the training's files as the manifest lists them: settings, metrics, and `paths`."""
    table = write_parquet(run.draft.folder)
    found = [path for path in (table, *(run.draft.folder / name for name in (EVALUATIONS, SAMPLE))) if path.is_file()]
    names = [path.relative_to(run.draft.folder).as_posix() for path in (*found, *paths)]
    return run.draft.describe(mindformers_yaml.FILE, METRICS, *names)


def read_probes(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return what each rank measured of itself."""
    files = sorted(folder.glob(f"rank_*/{name}"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def _reporter(run: StageRun, job: TrainingJob, draw: Callable[[StepMetrics], None]) -> Callable[[StepMetrics], None]:
    every = max(1, job.steps // REPORTS)

    def report(step: StepMetrics) -> None:
        draw(step)
        run.watcher.progress("steps", step.step, job.steps)
        run.watcher.curves(lambda: read_metrics(job.folder / METRICS), step.step, job.steps)
        if step.step % every == 0 or step.step in (1, job.steps):
            logger.info(
                "%s: step %d of %d, loss %.3f, learning rate %.2e, gradient norm %s, %.0f tokens/s",
                run.stage, step.step, job.steps, step.loss, step.learning_rate, norm_or_overflow(step),
                step.tokens_per_second,
            )  # fmt: skip

    return report
