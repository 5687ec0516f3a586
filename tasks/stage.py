"""What a stage is, and how one is built into an artifact: key, draft, units, manifest.

A stage is a pure function with a name, a version and the part of the configuration that it obeys. Its key is

    hash(stage, that part of the configuration, keys of inputs, version, versions of the libraries that decide the output)

The version is a number beside the code, raised by hand when the output changes (a test compares digests of the code and
reminds of it): hashing the code itself would make 200 GB again for a corrected comment.
"""

import errno
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from configs.errors import PipelineError
from configs.schema import ArtifactName, RunConfig
from tasks.artifact import SCHEMA_VERSION, Artifact, ArtifactFile, Draft, Manifest, UnitRecord, Workspace
from tasks.executor import Executor
from tasks.files import content_key
from tasks.forecast import warn_if_short
from tasks.raw import RawCorpus
from tasks.watch import Nobody, Watcher

logger = logging.getLogger("mindpretrain")

SECONDS_BETWEEN_REPORTS = 2

Argument = TypeVar("Argument")
StageInput = RawCorpus | Manifest
UnitResult = tuple[dict[str, int | None], Counter[str]]
"""The files that a unit wrote (name to rows, None where it is no table) and what it counted."""
UnitFunction = Callable[[Argument, Path], UnitResult]
"""Does one unit: takes its argument and the draft's folder."""


@dataclass(frozen=True)
class StageRun:
    """What a stage is given to build its artifact."""

    stage: ArtifactName
    config: RunConfig
    inputs: tuple[StageInput, ...]
    draft: Draft
    executor: Executor
    watcher: Watcher

    @property
    def corpus(self) -> RawCorpus:
        """The raw files, for the stage that reads them."""
        return next(given for given in self.inputs if isinstance(given, RawCorpus))

    def artifact(self, stage: ArtifactName) -> Artifact:
        """Return the artifact of an earlier stage that this one was given."""
        return next(given for given in self.artifacts if given.manifest.stage == stage)

    @property
    def artifacts(self) -> list[Artifact]:
        """All artifacts that this one was given, in order."""
        return [self._open(given) for given in self.inputs if isinstance(given, Manifest)]

    @property
    def dataset(self) -> Artifact:
        """The token dataset that a training was given: that of pack, or a mix of several."""
        return self.artifacts[0]

    def make(self, stage: "Stage", given: Manifest) -> Artifact:
        """Return the artifact of a further stage, made on the way to this one unless it is there."""
        return self._open(build_artifact(stage, self.config, [given], self.executor, self.watcher))

    def _open(self, manifest: Manifest) -> Artifact:
        return Workspace(Path(self.config.workspace)).open(manifest)

    def map(self, label: str, function: UnitFunction[Argument], arguments: Sequence[Argument]) -> list[UnitRecord]:
        """Do each unit that has no valid record yet; return the records of all, in order. `label` names the units."""
        units = [f"{label}-{index:05d}" for index in range(len(arguments))]
        records = {unit: self.draft.finished(unit) for unit in units}
        missing = [(unit, argument) for unit, argument in zip(units, arguments, strict=True) if records[unit] is None]
        if len(missing) < len(units):
            logger.info(
                "%s: %d of %d %s shards were done before", self.stage, len(units) - len(missing), len(units), label
            )
        done = self.executor.map(
            partial(_do_unit, function, self.draft),
            missing,
            self._progress(label, len(missing)),
        )
        records.update(zip((unit for unit, _ in missing), done, strict=True))
        return [record for record in records.values() if record is not None]

    def _progress(self, label: str, total: int) -> Callable[[int], None]:
        """Return a function that tells how many units are done; it logs not more often than people can read."""
        last = time.monotonic()

        def report(done: int) -> None:
            nonlocal last
            self.watcher.progress(f"{label} shards", done, total)
            if time.monotonic() - last >= SECONDS_BETWEEN_REPORTS:
                last = time.monotonic()
                logger.info("%s: %s %d of %d", self.stage, label, done, total)

        return report


@dataclass(frozen=True)
class StageResult:
    """What a stage leaves: its files in order, and its figures."""

    files: Sequence[ArtifactFile]
    stats: dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """One stage of the chain."""

    name: ArtifactName
    version: int
    libraries: tuple[str, ...]
    """Distributions that decide the output."""
    settings: Callable[[RunConfig], dict[str, Any]]
    """The part of the configuration that decides the output."""
    build: Callable[[StageRun], StageResult]

    def library_versions(self) -> dict[str, str]:
        return {name: version(name) for name in self.libraries}

    def key(self, config: RunConfig, inputs: Sequence[StageInput]) -> str:
        """Return the name of the artifact that this stage makes of `inputs` under `config`."""
        return content_key(
            {
                "schema": SCHEMA_VERSION,
                "stage": self.name,
                "version": self.version,
                "config": self.settings(config),
                "inputs": [given.key for given in inputs],
                "libraries": self.library_versions(),
            }
        )


def build_artifact(
    stage: Stage, config: RunConfig, inputs: Sequence[StageInput], executor: Executor, watcher: Watcher | None = None
) -> Manifest:
    """Return the manifest of the stage's artifact, which is made unless it is there already and unharmed.

    Raises:
        PipelineError: what the stage found wrong, or no space left. Finished units stay for the next attempt.
    """
    workspace = Workspace(Path(config.workspace))
    key = stage.key(config, inputs)
    try:
        with workspace.draft(stage.name, key) as draft:
            existing = workspace.find(stage.name, key)
            if existing is not None:
                return existing
            warn_if_short(stage.name, config, inputs)
            result = stage.build(StageRun(stage.name, config, tuple(inputs), draft, executor, watcher or Nobody()))
            manifest = Manifest(
                stage=stage.name,
                key=key,
                config=stage.settings(config),
                inputs=tuple(given.key for given in inputs),
                code_version=stage.version,
                libraries=stage.library_versions(),
                files=tuple(result.files),
                stats=result.stats,
            )
            return workspace.publish(draft, manifest)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PipelineError(
                f"{config.workspace}: no space left while {stage.name} was writing; free some and run the same command "
                "again: finished shards are kept"
            ) from error
        place = error.filename or config.workspace
        raise PipelineError(
            f"{stage.name}: {place}: {error.strerror or error}; mend it and run the same command again"
        ) from error


def _do_unit(function: UnitFunction[Argument], draft: Draft, task: tuple[str, Argument]) -> UnitRecord:
    unit, argument = task
    files, counts = function(argument, draft.folder)
    return draft.finish(unit, files, counts)
