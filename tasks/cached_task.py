"""Makes a stage a Prefect task whose result is cached by the stage's own key.

What Prefect stores is the manifest, as JSON, under `<workspace>/results/<stage>/<key>.json`.
The record alone never wins: the artifact is verified first, and made again when it is missing or damaged.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from prefect import Task, task
from prefect.client.schemas.objects import State
from prefect.concurrency.sync import concurrency
from prefect.context import TaskRunContext

from configs.schema import RunConfig
from tasks.artifact import Manifest, Workspace
from tasks.executor import open_executor
from tasks.run_page import RunPage
from tasks.stage import Stage, StageInput, build_artifact

logger = logging.getLogger("mindpretrain")

StageTask = Task[..., Manifest]
TRAINING_LIMIT = "training"
"""Name of the limit on how many trainings run at once; also the tag of the tasks that count."""
LEASE_SECONDS = 90
"""So long a place stays taken when its holder was killed."""


def cached_task(stage: Stage, description: str, tags: set[str]) -> StageTask:
    """Return the Prefect task of a stage. It takes the configuration and the stage's inputs, and returns a manifest."""

    def make(config: RunConfig, inputs: tuple[StageInput, ...]) -> Manifest:
        with _place(tags), open_executor(config.executor) as executor:
            return build_artifact(stage, config, inputs, executor, RunPage(stage.name))

    def cache_key(_: TaskRunContext, parameters: dict[str, Any]) -> str:
        return _record_name(stage, stage.key(parameters["config"], parameters["inputs"]))

    make.__name__ = make.__qualname__ = stage.name
    decorate = task(
        name=stage.name,
        description=description,
        tags=tags,
        cache_key_fn=cache_key,
        persist_result=True,
        result_serializer="json",
    )
    return decorate(make)


@contextmanager
def _place(tags: set[str]) -> Iterator[None]:
    """Wait for a free place among the trainings, where the server limits them; the place goes with this process."""
    if TRAINING_LIMIT not in tags:
        yield
        return
    with concurrency(TRAINING_LIMIT, lease_duration=LEASE_SECONDS, raise_on_lease_renewal_failure=False):
        yield


def run_cached(
    stage: Stage, stage_task: StageTask, config: RunConfig, inputs: tuple[StageInput, ...]
) -> State[Manifest]:
    """Run a stage's task, or take its cached result if the artifact behind it is whole; return the final state."""
    workspace = Workspace(Path(config.workspace).absolute())
    key = stage.key(config, inputs)
    results = workspace.root / "results"
    recorded = (results / _record_name(stage, key)).exists()
    stale = recorded and workspace.find(stage.name, key) is None
    if stale:
        logger.warning("%s: made again: %s", stage.name, workspace.damage(workspace.folder(stage.name, key)))
    bound = stage_task.with_options(result_storage=results, refresh_cache=stale)
    return cast(State[Manifest], bound(config, inputs, return_state=True))


def _record_name(stage: Stage, key: str) -> str:
    return f"{stage.name}/{key}.json"
