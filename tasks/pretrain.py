"""The long training. It leaves its last checkpoints, the metrics of every step, and the mindformers YAML it ran with."""

from pathlib import Path

from configs.schema import RunConfig
from tasks.artifact import Manifest
from tasks.stage import Stage, StageResult, StageRun
from tasks.train.stages import LIBRARIES, describe, run_training, steps_per_epoch, training_settings


def build(run: StageRun) -> StageResult:
    config = run.config.pretrain
    steps = planned_steps(run.artifact("pack").manifest, run.config)
    training = run_training(run, steps, config.checkpoint_every, config.keep_checkpoints)
    checkpoints = training.result.checkpoints
    paths = [path for checkpoint in checkpoints for path in _files_under(checkpoint)]
    names = [path.relative_to(training.folder).as_posix() for path in checkpoints]
    return StageResult(describe(run, paths), training.stats() | {"checkpoints": names})


def planned_steps(dataset: Manifest, config: RunConfig) -> int:
    """Return the number of optimizer steps: as configured, or what `epochs` passes over the token dataset make."""
    full_pass = steps_per_epoch(dataset, config)
    if config.pretrain.steps is not None:
        return config.pretrain.steps
    return max(1, round(full_pass * (config.pretrain.epochs or 1.0)))


def settings(config: RunConfig) -> dict[str, object]:
    return training_settings(config) | {"pretrain": config.pretrain.model_dump()}


def _files_under(checkpoint: Path) -> list[Path]:
    return sorted(path for path in checkpoint.rglob("*") if path.is_file()) if checkpoint.is_dir() else [checkpoint]


STAGE = Stage(name="pretrain", version=1, libraries=LIBRARIES, settings=settings, build=build)
