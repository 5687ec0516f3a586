"""What a run did: which stages it made or found in the cache, how long each took, and how it ended.

<workspace>/records/20261202T081500-demo.json     the record, kept up to date while the run goes on
<workspace>/records/20261202T081500-demo.html     the report for people, made from it
<workspace>/records/.20261202T081500-demo.lock    held while the run goes on: one that is killed cannot write that it ended
"""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from configs.errors import PipelineError
from configs.schema import ArtifactName, RunConfig
from tasks.artifact import Workspace
from tasks.files import try_lock, write_json
from tasks.masking import mask

logger = logging.getLogger("mindpretrain")

FOLDER = "records"
Outcome = Literal["running", "completed", "failed", "cancelled", "interrupted"]


class StageRecord(BaseModel):
    """One stage of a run. `seconds` are of this run: of a cached stage, those that it took to find it."""

    stage: ArtifactName
    key: str
    cached: bool
    seconds: float


class RunRecord(BaseModel):
    """A run. `page`: its address in the Prefect UI. `failed_stage`: the one that was at work when it ended badly.

    `outcome` is interrupted where the record says running, but nothing runs any more.
    """

    id: str
    flow: str
    config_file: str
    config: dict[str, Any]
    started: datetime
    ended: datetime | None = None
    outcome: Outcome = "running"
    error: str | None = None
    failed_stage: ArtifactName | None = None
    page: str | None = None
    stages: list[StageRecord] = []


class Recorder:
    """Keeps the record of a run that goes on."""

    def __init__(self, workspace: Workspace, flow: str, config_file: str, config: RunConfig, page: str | None) -> None:
        started = datetime.now().astimezone()
        self._workspace = workspace
        self.record = RunRecord(
            id=_free_id(workspace.root / FOLDER, f"{started:%Y%m%dT%H%M%S}-{Path(config_file).stem}"),
            flow=flow,
            config_file=config_file,
            config=config.model_dump(mode="json"),
            started=started,
            page=page,
        )
        self.save()

    @property
    def page(self) -> Path:
        """The report's file."""
        return report_page(self._workspace, self.record)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Hold the lock by which others see that the run goes on."""
        with ExitStack() as stack:
            lock = _lock(self.page)
            with suppress(OSError):  # as in `save`
                stack.enter_context(try_lock(lock))
                stack.callback(lock.unlink, missing_ok=True)
            yield

    @contextmanager
    def stage(self, name: ArtifactName) -> Iterator["StageTimer"]:
        """Record a stage that ends within the block."""
        self.record.failed_stage = name
        timer = StageTimer(name)
        yield timer
        self.record.stages.append(timer.record())
        self.record.failed_stage = None
        self.save()

    def end(self, outcome: Outcome, error: str | None = None) -> None:
        self.record.outcome, self.record.ended = outcome, datetime.now().astimezone()
        self.record.error = mask(error) if error else None
        self.save()

    def save(self) -> None:
        """Write the record. Where it cannot be, the run says so and goes on: its own error is worth more."""
        file = self.page.with_suffix(".json")
        try:
            write_json(file, self.record.model_dump(mode="json"))
        except OSError as error:
            logger.warning("%s: the record could not be written: %s", file, error.strerror or error)


class StageTimer:
    """Takes the time of a stage; told which artifact came of it."""

    def __init__(self, name: ArtifactName) -> None:
        self._name, self._began = name, time.monotonic()
        self.key, self.cached = "", False

    def record(self) -> StageRecord:
        return StageRecord(
            stage=self._name, key=self.key, cached=self.cached, seconds=round(time.monotonic() - self._began, 2)
        )


def report_page(workspace: Workspace, record: RunRecord) -> Path:
    """Return where a run's report lies."""
    return workspace.root / FOLDER / f"{record.id}.html"


def read_record(given: Path) -> RunRecord:
    """Return the record in a file; of a folder of records, or a workspace, the newest.

    Raises:
        PipelineError: there is none, or it cannot be read.
    """
    folder = given / FOLDER if (given / FOLDER).is_dir() else given
    file = max(folder.glob("*.json"), default=None) if folder.is_dir() else given.with_suffix(".json")
    if file is None or not file.is_file():
        raise PipelineError(f"{given}: no record of a run there; give a workspace, or a file of its records/")
    try:
        record = RunRecord.model_validate_json(file.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError):
        raise PipelineError(f"{file}: damaged, or no record of a run") from None
    gone = record.outcome == "running" and not _is_held(_lock(file))
    return record.model_copy(update={"outcome": "interrupted"}) if gone else record


def all_records(workspace: Workspace) -> list[RunRecord]:
    """Return every record, the oldest first."""
    return [read_record(file) for file in sorted((workspace.root / FOLDER).glob("*.json"))]


def _lock(file: Path) -> Path:
    return file.with_name(f".{file.stem}.lock")


def _is_held(lock: Path) -> bool:
    if not lock.exists():
        return False
    with try_lock(lock) as free:
        return not free


def _free_id(folder: Path, wanted: str) -> str:
    """Return a name that no record has: two runs may begin in one second."""
    number, found = 1, wanted
    while (folder / f"{found}.json").exists():
        number += 1
        found = f"{wanted}-{number}"
    return found
