"""Compares trainings: what differed in configuration, data and code, and how their losses went over the tokens they saw. Of
two runs that differ in more than one thing, nobody can say which one made the difference.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from configs.errors import PipelineError
from tasks.artifact import Manifest, read_manifest
from tasks.train.job import METRICS
from tasks.train.metrics import StepMetrics, read_metrics

TRAININGS = ("smoke", "pretrain")
POINTS = 10
SMOOTHED = 0.05
"""Share of a run over which a loss is averaged, so that single batches do not decide."""


def compare(folders: Sequence[Path]) -> Iterator[str]:
    """Yield the lines that compare trainings, each an artifact folder of smoke or pretrain.

    Raises:
        PipelineError: less than two, or one that is no training.
    """
    if len(folders) < 2:
        raise PipelineError("compare: name two runs or more, each an artifact folder of pretrain or smoke")
    manifests = [_manifest(folder) for folder in folders]
    curves = [read_metrics(folder / METRICS) for folder in folders]
    names = [chr(ord("A") + place) for place in range(len(folders))]
    for name, folder in zip(names, folders, strict=True):
        yield f"{name}  {folder}"
    yield ""
    changed = list(differences(manifests))
    if not changed:
        yield "nothing differs in configuration, data and code"
    for what, values in changed:
        yield f"{what}: {', '.join(f'{name} {value}' for name, value in zip(names, values, strict=True))}"
    if len(changed) > 1:
        yield f"warning: {len(changed)} things differ; change one at a time, or no one can say which made the difference"
    yield ""
    yield f"{'tokens':>14}" + "".join(f"{f'loss {name}':>12}" for name in names)
    for tokens, losses in loss_table(curves):
        yield f"{tokens:>14,}" + "".join(f"{loss:>12.4f}" for loss in losses)


def differences(manifests: Sequence[Manifest]) -> Iterator[tuple[str, list[Any]]]:
    """Yield what is not the same in all runs, with its values. What follows from another difference is left out."""
    flat = [dict(_flatten(manifest.config)) for manifest in manifests]
    for key in sorted({name for one in flat for name in one}):
        values = [one.get(key) for one in flat]
        if len({repr(value) for value in values}) > 1:
            yield key, values
    data = [", ".join(manifest.inputs) for manifest in manifests]
    if len(set(data)) > 1:
        yield "token dataset", data
    for kind, versions in (
        ("stage's code", [{str(manifest.stage): str(manifest.code_version)} for manifest in manifests]),
        ("library", [manifest.libraries for manifest in manifests]),
    ):
        for name in sorted({name for one in versions for name in one}):
            found = [dict(one).get(name) for one in versions]
            if len(set(found)) > 1:
                yield f"{kind} {name}", list(found)


def loss_table(curves: Sequence[Sequence[StepMetrics]]) -> list[tuple[int, list[float]]]:
    """Return (tokens, the loss of each run there), over the tokens that all runs have seen."""
    last = min(curve[-1].tokens for curve in curves)
    points = [last * (place + 1) // POINTS for place in range(POINTS)]
    return [(tokens, [_loss_at(curve, tokens) for curve in curves]) for tokens in points]


def _loss_at(curve: Sequence[StepMetrics], tokens: int) -> float:
    width = max(1, int(len(curve) * SMOOTHED))
    place = next((number for number, step in enumerate(curve) if step.tokens >= tokens), len(curve) - 1)
    near = curve[max(0, place - width + 1) : place + 1]
    return sum(step.loss for step in near) / len(near)


def _manifest(folder: Path) -> Manifest:
    manifest = read_manifest(folder)
    if manifest.stage not in TRAININGS:
        raise PipelineError(
            f"{folder}: an artifact of {manifest.stage}; compare takes those of {' and '.join(TRAININGS)}"
        )
    return manifest


def _flatten(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        place = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from _flatten(value, place)
        else:
            yield place, value
