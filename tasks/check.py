"""What can be found wrong with a run before it starts, beyond what the configuration's types already refuse; and the same
for a mindformers YAML that somebody else wrote.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks import dedup, filter, normalize
from tasks.pack.checks import check_model
from tasks.raw import find_files
from tasks.tokenizer.sources import check_tokenizer
from tasks.train.initial import weight_files
from tasks.train.mindformers_yaml import described
from tasks.train.plan import memory_problem
from tasks.train.planned import planned_job
from tasks.train.rules import check_yaml, show
from tasks.train.rules.finding import Finding
from tasks.train.settings import origins, plain

OF_MINDFORMERS = {
    "trainer", "runner_config", "train_dataset", "train_dataset_task", "lr_schedule", "optimizer", "parallel_config",
    "train", "runner_wrapper", "callbacks", "run_mode", "use_parallel",
}  # fmt: skip
"""Keys at the top of a mindformers YAML, or of a recipe for one, that no configuration of ours has."""


@dataclass(frozen=True)
class Checked:
    """What is wrong, each with its key and the mend."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def check_config(config: RunConfig) -> Checked:
    """Return everything that is wrong with a run: inputs, tokenizer, settings, and the mindformers YAML that it makes."""
    checks: list[Callable[[], object]] = [
        *(partial(find_files, place) for place in config.inputs),
        *(partial(stage.settings, config) for stage in (normalize.STAGE, dedup.STAGE, filter.STAGE)),
        partial(dedup.check_index, config),
        partial(_check_tokenizer, config),
        *([partial(weight_files, config.model)] if config.model.init != "scratch" else []),
    ]
    found = [message for attempt in checks if (message := _error_of(attempt)) is not None]
    of_training = _check_training(config)
    return replace(of_training, errors=(*found, *_impossible_settings(config), *of_training.errors))


def foreign_yaml(file: Path) -> dict[str, Any] | None:
    """Return the content of a mindformers YAML; None for a configuration of this project, or what is no YAML."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    if not isinstance(content, dict) or "inputs" in content:
        return None
    return content if set(content) & OF_MINDFORMERS else None


def check_foreign(content: dict[str, Any], devices: int | None, servers: int) -> Checked:
    """Return what is wrong with a mindformers YAML, key by key and rule by rule."""
    return _by_severity(check_yaml(content, devices, servers), {})


def _check_training(config: RunConfig) -> Checked:
    """Return what is wrong with the YAML that the configuration makes, and with its memory."""
    job = planned_job(config).job
    content = described(job, 0)
    findings = check_yaml(plain(content), config.training.workers, max(1, len(config.training.hosts)))
    findings = [finding for finding in findings if finding.rule not in ("D1", "K4")]  # their files come later
    found = _by_severity(findings, {".".join(path): origin for path, _, origin in origins(content)})
    problem = memory_problem(job)
    return found if problem is None else replace(found, errors=(*found.errors, problem))


def _by_severity(findings: Sequence[Finding], named: dict[str, str]) -> Checked:
    errors, warnings = (
        tuple(show([finding for finding in findings if finding.severity == severity], named))
        for severity in ("error", "warning")
    )
    return Checked(errors, warnings)


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
