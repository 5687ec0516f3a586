"""A short training that must succeed before the long one may start: the loss falls, nothing overflows for good.

It runs the same code on the same devices as pretrain, so what breaks there breaks here in minutes.
"""

from configs.errors import PipelineError
from configs.schema import RunConfig, SmokeConfig
from tasks.stage import Stage, StageResult, StageRun
from tasks.train.stages import LIBRARIES, Training, describe, run_training, steps_per_epoch, training_settings


def build(run: StageRun) -> StageResult:
    steps_per_epoch(run.artifact("pack").manifest, run.config)
    training = run_training(run, run.config.smoke.steps, checkpoint_every=None, keep_checkpoints=2)
    problems = failed_gates(training, run.config.smoke)
    if problems:
        raise PipelineError("\n  ".join(["smoke: the training is not fit to go on:", *problems]))
    return StageResult(describe(run, []), training.stats())


def failed_gates(training: Training, config: SmokeConfig) -> list[str]:
    """Return what speaks against the long training, each with the mend."""
    stats = training.stats()
    problems = []
    drop = stats["loss_first"] - stats["loss_last"]
    if drop < config.min_loss_drop:
        problems.append(
            f"the loss fell by {drop:.4f} (from {stats['loss_first']} in the first tenth of the steps to "
            f"{stats['loss_last']} in the last), expected at least smoke.min_loss_drop {config.min_loss_drop}; "
            "raise training.learning_rate or smoke.steps, and look at the samples of pack"
        )
    share = stats["overflow_steps"] / stats["steps"]
    if share > config.max_overflow_share:
        problems.append(
            f"{share:.0%} of the steps overflowed, more than smoke.max_overflow_share {config.max_overflow_share:.0%}; "
            "lower training.loss_scale or training.learning_rate, or train in bf16"
        )
    return problems


def settings(config: RunConfig) -> dict[str, object]:
    return training_settings(config) | {"smoke": config.smoke.model_dump()}


STAGE = Stage(name="smoke", version=1, libraries=LIBRARIES, settings=settings, build=build)
