"""Curves as TensorBoard files, for those who want them there; `metrics.jsonl` has the same."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.errors import PipelineError
from tasks.train.metrics import StepMetrics

FOLDER = "tensorboard"
CURVES = ("loss", "learning_rate", "gradient_norm", "loss_scale", "tokens_per_second")


@contextmanager
def open_curves(folder: Path, wanted: bool) -> Iterator[Callable[[StepMetrics], None]]:
    """Give a function that takes each step. It does nothing unless TensorBoard files are wanted.

    Raises:
        PipelineError: they are, and tensorboardX is not installed.
    """
    if not wanted:
        yield lambda step: None
        return
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise PipelineError(
            "training.tensorboard: the package tensorboardX is not installed; `pip install tensorboardX`, or write false"
        ) from None
    with SummaryWriter(str(folder / FOLDER)) as writer:

        def draw(step: StepMetrics) -> None:
            for name in CURVES:
                value = getattr(step, name)
                if value is not None:
                    writer.add_scalar(name, value, step.step)

        yield draw
