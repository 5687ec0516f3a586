"""What can be found wrong with a run before it starts, beyond what the configuration's types already refuse."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks import dedup, filter, normalize
from tasks.pack.checks import check_model
from tasks.raw import find_files
from tasks.tokenizer.sources import check_tokenizer


def problems(config: RunConfig) -> list[str]:
    """Return everything that is wrong, each with its key and the mend; an empty list when the run may start."""
    checks: list[Callable[[], object]] = [
        *(partial(find_files, place) for place in config.inputs),
        *(partial(stage.settings, config) for stage in (normalize.STAGE, dedup.STAGE, filter.STAGE)),
        partial(dedup.check_index, config),
        partial(_check_tokenizer, config),
    ]
    found = [message for attempt in checks if (message := _error_of(attempt)) is not None]
    return [*found, *_impossible_settings(config)]


def _error_of(attempt: Callable[[], object]) -> str | None:
    try:
        attempt()
    except PipelineError as error:
        return str(error)
    return None


def _check_tokenizer(config: RunConfig) -> None:
    tokenizer = check_tokenizer(config.pack.tokenizer)
    check_model(config, config.pack.tokenizer.vocab_size if tokenizer is None else tokenizer.vocab_size)


def _impossible_settings(config: RunConfig) -> Iterator[str]:
    pretrain = config.pretrain
    if pretrain.steps is not None and pretrain.checkpoint_every > pretrain.steps:
        yield (
            f"pretrain.checkpoint_every: {pretrain.checkpoint_every} is more than pretrain.steps {pretrain.steps}, so an "
            "interrupted training would start again from nothing; lower it"
        )
    cores = os.cpu_count() or 1
    if config.training.device == "CPU" and config.training.workers > cores:
        yield f"training.workers: {config.training.workers} on {cores} CPU cores; each worker needs one: lower it"
    folder = Path(config.workspace).absolute()
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        yield f"workspace: {config.workspace}: cannot be made or written in {nearest}; choose another folder"
