"""Which raw files are new since the last night, by what they hold."""

import logging
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from tasks.raw import REMOTE, RawCorpus, RawFile, corpus_of

logger = logging.getLogger("mindpretrain")


@dataclass(frozen=True)
class Changes:
    """What became of the raw files. `new` also has those that changed; `unsettled` ones may be half copied."""

    new: RawCorpus
    changed: tuple[str, ...]
    deleted: tuple[str, ...]
    unsettled: tuple[str, ...]


def find_changes(
    files: Sequence[RawFile],
    seen: Mapping[tuple[str, str], str],
    contents: AbstractSet[str],
    settle_seconds: float,
) -> Changes:
    """Compare files with those seen before. `seen`: source and name to checksum; `contents`: all checksums ever seen.

    A file is new by its content: moved or copied it is not. What was trained on cannot be taken back, so deleted files are
    only named. Files that changed less than `settle_seconds` ago (or, by a clock that is ahead, later than now) are looked
    at again after that time, once for all.
    """
    fresh = [file for file in files if file.checksum not in contents]
    unsettled = _unsettled(fresh, settle_seconds)
    new = [file for file in fresh if file.path not in unsettled]
    there = {(file.source, file.name) for file in files}
    return Changes(
        new=corpus_of(new),
        changed=tuple(file.name for file in new if (file.source, file.name) in seen),
        deleted=tuple(f"{source}/{name}" for source, name in sorted(seen.keys() - there)),
        unsettled=tuple(sorted(unsettled)),
    )


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
