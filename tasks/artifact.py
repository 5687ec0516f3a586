"""What flows between stages: a folder that is published whole, described by its manifest.

    <workspace>/artifacts/<stage>/<key>/      manifest.json, stats.json, part-00000.parquet, removed/, units/
    <workspace>/artifacts/<stage>/.<key>.draft/    the same while it is made; survives kill -9 and is taken up again

The key comes from content (see `stage.py`), so a folder's name says what is in it. The work of a stage is cut into
units; each leaves a record under `units/` once its files are on the disk, and a rerun does only the units without one.
Nothing in a published folder depends on time, host or number of workers, so two builds are equal byte for byte. (The
training stages are the exception: they keep the times of their steps.)
"""

import fcntl
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from configs.errors import PipelineError
from configs.schema import ArtifactName
from tasks.files import TEMPORARY, Fingerprints, checksum, write_json

logger = logging.getLogger("mindpretrain")

SCHEMA_VERSION = 1


class ArtifactFile(BaseModel):
    """One file of an artifact: its path inside the folder, rows (of a table), bytes and XXH3-128."""

    model_config = ConfigDict(frozen=True)
    name: str
    bytes: int
    checksum: str
    rows: int | None = None


class Manifest(BaseModel):
    """What an artifact is and holds. Small; the only thing that Prefect stores and passes between tasks."""

    model_config = ConfigDict(frozen=True)
    schema_version: int = SCHEMA_VERSION
    stage: ArtifactName
    key: str
    config: dict[str, Any]
    inputs: tuple[str, ...]
    """Keys of the artifacts that it was made from, or of the listing of raw files."""
    code_version: int
    libraries: dict[str, str]
    files: tuple[ArtifactFile, ...]
    stats: dict[str, Any]

    @property
    def shards(self) -> list[ArtifactFile]:
        """The data, in order."""
        return [file for file in self.files if file.name.startswith("part-")]

    @property
    def removed(self) -> list[ArtifactFile]:
        """What the stage took out, with reasons, in order."""
        return [file for file in self.files if file.name.startswith("removed/")]


class UnitRecord(BaseModel):
    """That a unit of work is done: the files that it left and what it counted."""

    model_config = ConfigDict(frozen=True)
    files: tuple[ArtifactFile, ...]
    counts: dict[str, int]


@dataclass(frozen=True)
class Artifact:
    """A published artifact."""

    folder: Path
    manifest: Manifest

    def paths(self, files: Iterable[ArtifactFile]) -> list[Path]:
        return [self.folder / file.name for file in files]

    @property
    def shards(self) -> list[Path]:
        return self.paths(self.manifest.shards)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of an artifact folder.

    Raises:
        PipelineError: the folder has no manifest, or one that this version cannot read.
    """
    file = folder / "manifest.json"
    try:
        return Manifest.model_validate_json(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise PipelineError(f"{folder}: no artifact (it has no manifest.json)") from None
    except (ValidationError, UnicodeDecodeError):
        raise PipelineError(f"{file}: damaged, or written by another version; run its stage again") from None


@dataclass(frozen=True)
class Draft:
    """An artifact in the making."""

    folder: Path

    def finished(self, unit: str) -> UnitRecord | None:
        """Return the record of a unit whose files are all there and unharmed."""
        try:
            record = UnitRecord.model_validate_json(self._record(unit).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValidationError):
            return None
        return record if all(_holds(self.folder, file, checksum) for file in record.files) else None

    def finish(self, unit: str, files: dict[str, int | None], counts: Counter[str]) -> UnitRecord:
        """Record a unit as done. `files`: path inside the folder to rows (None where it is no table)."""
        described = tuple(_describe(self.folder, name, rows) for name, rows in files.items())
        record = UnitRecord(files=described, counts=dict(sorted(counts.items())))
        write_json(self._record(unit), record.model_dump())
        return record

    def describe(self, *names: str) -> list[ArtifactFile]:
        """Return size and checksum of files that belong to no unit."""
        return [_describe(self.folder, name, None) for name in names]

    def _record(self, unit: str) -> Path:
        return self.folder / "units" / f"{unit}.json"


@dataclass(frozen=True)
class Workspace:
    """The folder that holds everything runs produce."""

    root: Path

    def folder(self, stage: ArtifactName, key: str) -> Path:
        return self.root / "artifacts" / stage / key

    @property
    def fingerprints(self) -> Fingerprints:
        return Fingerprints(self.root / "fingerprints.json")

    def open(self, manifest: Manifest) -> Artifact:
        return Artifact(self.folder(manifest.stage, manifest.key), manifest)

    def manifest(self, stage: ArtifactName, key: str) -> Manifest:
        """Return the manifest of an artifact that must be there.

        Raises:
            PipelineError: it is not.
        """
        return read_manifest(self.folder(stage, key))

    def find(self, stage: ArtifactName, key: str) -> Manifest | None:
        """Return the manifest of a whole, undamaged artifact, or None where there is none."""
        folder = self.folder(stage, key)
        return None if not folder.exists() or self.damage(folder) else read_manifest(folder)

    def damage(self, folder: Path, anew: bool = False) -> str | None:
        """Return what is wrong with a published artifact: the first file that is missing or differs. With `anew` every byte
        is read, else what has the size and time of an earlier look is taken for what it was."""
        try:
            manifest = read_manifest(folder)
        except PipelineError as error:
            return str(error)
        fingerprints = self.fingerprints
        checksum_of = checksum if anew else fingerprints.of_file
        broken = next((f for f in manifest.files if not _holds(folder, f, checksum_of)), None)
        fingerprints.save()
        return f"{folder / broken.name}: missing or changed since it was made" if broken else None

    @contextmanager
    def draft(self, stage: ArtifactName, key: str) -> Iterator[Draft]:
        """Give the draft of an artifact to this process alone; what an interrupted or damaged build left is kept in it.

        The lock is an flock: it goes with the process that holds it, however that ends.
        """
        folder = self.folder(stage, key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f".{key}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logger.info("%s: another process is making this artifact; waiting for it", stage)
                fcntl.flock(lock, fcntl.LOCK_EX)
            draft = folder.with_name(f".{key}.draft")
            if folder.exists() and self.damage(folder):
                shutil.rmtree(draft, ignore_errors=True)
                folder.rename(draft)
            draft.mkdir(exist_ok=True)
            yield Draft(draft)
            if draft.exists() and not any(draft.iterdir()):
                draft.rmdir()

    def publish(self, draft: Draft, manifest: Manifest) -> Manifest:
        """Write manifest and stats, and give the finished draft its final name."""
        shutil.rmtree(draft.folder / "work", ignore_errors=True)
        for left in draft.folder.rglob(f".*{TEMPORARY}"):  # by a process that was killed while it wrote
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        write_json(draft.folder / "stats.json", manifest.stats)
        write_json(draft.folder / "manifest.json", manifest.model_dump(mode="json"))
        draft.folder.rename(self.folder(manifest.stage, manifest.key))
        _sync_folder(self.folder(manifest.stage, manifest.key).parent)
        return manifest


def merge_counts(records: Iterable[UnitRecord]) -> Counter[str]:
    total: Counter[str] = Counter()
    for record in records:
        total.update(record.counts)
    return Counter(dict(sorted(total.items())))


def _describe(folder: Path, name: str, rows: int | None) -> ArtifactFile:
    path = folder / name
    return ArtifactFile(name=name, bytes=path.stat().st_size, checksum=checksum(path), rows=rows)


def _holds(folder: Path, file: ArtifactFile, checksum_of: Any) -> bool:
    path = folder / file.name
    return path.is_file() and path.stat().st_size == file.bytes and checksum_of(path) == file.checksum


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
