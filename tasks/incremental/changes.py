"""Which raw files are new since the last night, by what they hold."""

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasks.raw import REMOTE, RawCorpus, RawFile, corpus_of

logger = logging.getLogger("mindpretrain")

VERSION = re.compile(r"@[0-9a-f]{8}$")


@dataclass(frozen=True)
class Changes:
    """What became of the raw files. `new` also has those that changed; `unsettled` ones may be half copied."""

    new: RawCorpus
    changed: tuple[str, ...]
    deleted: tuple[str, ...]
    unsettled: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """What was ever taken. `latest`: source and name to the checksum of what a file last held; `contents`: all checksums."""

    latest: dict[tuple[str, str], str]
    contents: set[str]


def find_changes(files: Sequence[RawFile], seen: Seen, settle_seconds: float) -> Changes:
    """Compare files with those seen before.

    A file is new by its content: moved or copied it is not. What was trained on cannot be taken back, so deleted files are
    only named. Files that changed less than `settle_seconds` ago (or, by a clock that is ahead, later than now) are looked
    at again after that time, once for all.
    """
    fresh = [file for file in files if file.checksum not in seen.contents]
    unsettled = _unsettled(fresh, settle_seconds)
    settled = [file for file in fresh if file.path not in unsettled]
    changed = {file.path for file in settled if (file.source, file.name) in seen.latest}
    there = {(file.source, file.name) for file in files}
    return Changes(
        new=corpus_of([as_version(file) if file.path in changed else file for file in settled]),
        changed=tuple(file.name for file in settled if file.path in changed),
        deleted=tuple(f"{source}/{name}" for source, name in sorted(seen.latest.keys() - there)),
        unsettled=tuple(sorted(unsettled)),
    )


def as_version(file: RawFile) -> RawFile:
    """Return a changed file under a name of its own, `a.txt@1f3a9c2b`, so that its documents have other ids than before."""
    return replace(file, name=f"{file.name}@{file.checksum[:8]}")


def original_name(name: str) -> str:
    """Return the name of the file that `as_version` named."""
    return VERSION.sub("", name)


def _unsettled(files: Sequence[RawFile], settle_seconds: float) -> set[str]:
    """Return the paths of files that something still writes to."""
    now = time.time()
    local = [Path(file.path) for file in files if REMOTE not in file.path]  # an object store shows whole files alone
    before = {path: _version(path) for path in local}
    sizes = {Path(file.path): file.bytes for file in files}
    recent = [path for path, version in before.items() if version is None or version[1] / 1e9 > now - settle_seconds]
    if not recent:
        return set()
    logger.info(
        "%d files changed less than %g s ago; waiting to see whether they are whole", len(recent), settle_seconds
    )
    time.sleep(settle_seconds)
    after = {path: _version(path) for path in recent}
    return {
        str(path)
        for path, version in after.items()
        if version is None or version != before[path] or version[0] != sizes[path]
    }


def _version(path: Path) -> tuple[int, int] | None:
    """Return size and time of modification (nanoseconds); None for a file that is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
