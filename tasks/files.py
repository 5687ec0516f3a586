"""Hashing and atomic writing: a file stands under its final name only when it is whole and on the disk."""

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

READ_BYTES = 4 * 2**20
TEMPORARY = ".tmp"


def checksum(path: Path) -> str:
    """Return the XXH3-128 of a file's bytes, in hexadecimal digits."""
    return checksum_of(lambda: path.open("rb"))


def checksum_of(open_stream: Callable[[], BinaryIO]) -> str:
    """Return the XXH3-128 of a stream's bytes, in hexadecimal digits."""
    digest = xxhash.xxh3_128()
    with open_stream() as stream:
        while block := stream.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def content_key(parts: Any) -> str:
    """Return the 24 hexadecimal digits that stand for a JSON value, the same for equal values in any key order."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Give a temporary path beside `target`; what was written there becomes `target` if the block succeeds."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_array(target: Path, array: npt.NDArray[Any]) -> None:
    """Write an array in NumPy's format, from which it can be mapped into memory."""
    with atomic_path(target) as temporary, temporary.open("wb") as stream:
        np.save(stream, array)


def write_json(target: Path, value: Any) -> None:
    with atomic_path(target) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


@contextmanager
def try_lock(file: Path) -> Iterator[bool]:
    """Lock a file, which is made if it is missing; give whether nobody else had it.

    The lock goes with the process that holds it, however that ends.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free


class Fingerprints:
    """Checksums of files, remembered by path, size and modification time so that an unchanged file is read once.

    Only a shortcut: when its own file is lost, unreadable or overwritten by another run, checksums are computed anew.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, list[Any]] = {}
        try:
            self._known = json.loads(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
            self._known = {}

    def checksum(self, name: str, state: list[Any], compute: Callable[[], str]) -> str:
        """Return the checksum of the file `name`, computed only if its size and version differ from those remembered."""
        entry = self._known.get(name)
        if entry and entry[:2] == state:
            return str(entry[2])
        digest = compute()
        self._known[name] = [*state, digest]
        return digest

    def of_file(self, path: Path) -> str:
        """Return the checksum of a local file, known by size and time of modification."""
        status = path.stat()
        return self.checksum(str(path.absolute()), [status.st_size, status.st_mtime_ns], lambda: checksum(path))

    def save(self) -> None:
        write_json(self._file, self._known)
