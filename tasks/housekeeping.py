"""What lies in a workspace, who needs it, and what can go.

Needed is what a state of the growing model names (any of them can be gone back to), what its index goes back to, and what
the newest runs made or used. Of the rest, the longest unused goes first.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

from configs.errors import PipelineError
from configs.schema import ArtifactName
from tasks.artifact import Workspace, read_manifest
from tasks.files import try_lock
from tasks.incremental.states import States
from tasks.record import all_records

Identity = tuple[ArtifactName, str]
"""Stage and key of an artifact."""


@dataclass(frozen=True)
class Stored:
    """An artifact, or the draft of one. `used`: when it was made or last taken by a run. `needed_by`: None for nobody."""

    stage: ArtifactName
    key: str
    folder: Path
    bytes: int
    used: datetime
    needed_by: str | None

    @property
    def is_draft(self) -> bool:
        return self.folder.name.startswith(".")


def stored_artifacts(workspace: Workspace, kept_runs: int) -> list[Stored]:
    """Return all artifacts and drafts, the longest unused first. `kept_runs`: the newest so many runs keep theirs.

    Raises:
        PipelineError: a state or record cannot be read, so that nobody knows what it needs.
    """
    needed, used = _needed(workspace, kept_runs)
    found = []
    for folder in sorted((workspace.root / "artifacts").glob("*/*")):
        if not folder.is_dir():
            continue
        stage = cast(ArtifactName, folder.parent.name)
        key = folder.name.removeprefix(".").removesuffix(".draft")
        try:
            made = datetime.fromtimestamp(folder.stat().st_mtime).astimezone()
        except FileNotFoundError:  # a draft that was finished meanwhile
            continue
        found.append(
            Stored(
                stage=stage,
                key=key,
                folder=folder,
                bytes=sum(_sizes(folder)),
                used=max(made, used.get((stage, key), made)),
                needed_by=needed.get((stage, key)),
            )
        )
    return sorted(found, key=lambda stored: stored.used)


def removable(stored: list[Stored], older_than: timedelta, largest: int | None) -> list[Stored]:
    """Return what nobody needs and nothing has used for `older_than`; with `largest`, only until so many bytes are left."""
    limit = datetime.now().astimezone() - older_than
    total = sum(one.bytes for one in stored)
    chosen = []
    for one in stored:
        if one.needed_by is None and one.used <= limit and (largest is None or total > largest):
            chosen.append(one)
            total -= one.bytes
    return chosen


def remove(stored: Stored) -> bool:
    """Remove an artifact; return whether it could be: not while a run is making it."""
    with try_lock(stored.folder.parent / f".{stored.key}.lock") as free:  # under which an artifact is made
        if not free:
            return False
        doomed = stored.folder.with_name(f".{stored.key}.removed")  # half removed it must not count as whole
        shutil.rmtree(doomed, ignore_errors=True)  # by a removal that was interrupted
        stored.folder.rename(doomed)
        shutil.rmtree(doomed)
    return True


def verify(workspace: Workspace, stored: Stored) -> str | None:
    """Return what is wrong with an artifact, every byte being read; None where nothing is."""
    return None if stored.is_draft else workspace.damage(stored.folder, anew=True)


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the bytes of each file, those left out that a run at work takes away meanwhile."""
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield Path(place, name).stat().st_size


def _needed(workspace: Workspace, kept_runs: int) -> tuple[dict[Identity, str], dict[Identity, datetime]]:
    """Return who needs an artifact, and when runs last used it."""
    needed: dict[Identity, str] = {}
    used: dict[Identity, datetime] = {}
    records = all_records(workspace)
    for place, record in enumerate(records):
        for entry in record.stages:
            used[entry.stage, entry.key] = record.started
            if place >= len(records) - kept_runs or record.outcome == "running":
                needed[entry.stage, entry.key] = f"run {record.id}"
    for state in States(workspace).all():
        for stage, key in state.artifacts.items():
            needed[stage, key] = f"state {state.number}"
    for (stage, key), why in list(needed.items()):
        for behind in _behind(workspace, stage, key):
            needed.setdefault(behind, why)
    for folder in (*workspace.root.glob("artifacts/scores/*"), *workspace.root.glob("artifacts/tokens/*")):
        source: ArtifactName = "dedup" if folder.parent.name == "scores" else "filter"
        identity = (cast(ArtifactName, folder.parent.name), folder.name)
        if (folder / "manifest.json").is_file() and (reason := needed.get((source, read_manifest(folder).inputs[0]))):
            needed[identity] = reason
    return needed, used


def _behind(workspace: Workspace, stage: ArtifactName, key: str) -> Iterator[Identity]:
    """Yield what a dedup artifact stands on: the documents that it was made from, and the indexes before it."""
    while stage == "dedup" and (workspace.folder(stage, key) / "manifest.json").is_file():
        manifest = workspace.manifest(stage, key)
        yield "normalize", manifest.inputs[0]
        index: str | None = manifest.config["index"]
        if index is None:
            return
        key = Path(index).name
        yield stage, key


def parse_days(text: str) -> timedelta:
    """Return a time such as 30d or 12h.

    Raises:
        PipelineError: it is none.
    """
    units = {"d": "days", "h": "hours"}
    number, unit = text[:-1], text[-1:]
    if unit not in units or not number.isdigit():
        raise PipelineError(f"{text}: expected a number of days or hours, such as 30d or 12h")
    return timedelta(**{units[unit]: int(number)})
