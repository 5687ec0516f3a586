"""The raw files: found, listed, and known by content.

Their listing has a key like an artifact. It depends on what the files hold and on their place under the input, not on
where that input lies or when it was copied. Paths with a protocol (`s3://`) are read through fsspec.
"""

import glob
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import fsspec
import pyarrow as pa

from configs.errors import PipelineError
from configs.schema import InputConfig, RunConfig
from tasks.artifact import Workspace
from tasks.files import Fingerprints, checksum_of, content_key
from tasks.readers import FORMATS

logger = logging.getLogger("mindpretrain")

REMOTE = "://"
RAW_FILES = "raw.parquet"
OF_THE_PLACE = ("path", "modified")
"""What says where a file lies and since when, not what it holds."""


@dataclass(frozen=True)
class RawFile:
    """One raw file: `path` to open it, `name` by which its documents know it (relative to its input).

    `modified`: when a local one was last written, in nanoseconds, as it was listed.
    """

    path: str
    name: str
    source: str
    text_field: str
    id_field: str
    bytes: int
    checksum: str
    modified: int | None = None

    def open(self) -> BinaryIO:
        """Return its bytes as a stream that can seek."""
        return open_raw(self.path)


@dataclass(frozen=True)
class RawCorpus:
    """All raw files in their order: inputs as configured, files by name."""

    key: str
    files: tuple[RawFile, ...]


def open_raw(path: str) -> BinaryIO:
    if REMOTE in path:
        return cast(BinaryIO, fsspec.open(path, "rb").open())
    return Path(path).open("rb")


def corpus_of(files: Sequence[RawFile]) -> RawCorpus:
    """Return files as a corpus. Its key depends on what they hold and on their names, not on where they lie."""
    described = [{name: value for name, value in asdict(file).items() if name not in OF_THE_PLACE} for file in files]
    return RawCorpus(content_key(described), tuple(files))


def raw_table(corpus: RawCorpus) -> pa.Table:
    """Return source, name, bytes and checksum of each file."""
    names = ("source", "name", "bytes", "checksum")
    return pa.table({name: [getattr(file, name) for file in corpus.files] for name in names})


def list_raw_files(config: RunConfig) -> RawCorpus:
    """Return the files of all inputs whose format is known.

    Raises:
        PipelineError: an input that is missing, holds no file of a known format, or one that cannot be read.
    """
    fingerprints = Workspace(Path(config.workspace)).fingerprints
    files = tuple(file for place in config.inputs for file in _list_input(place, fingerprints))
    fingerprints.save()
    return corpus_of(files)


def find_files(place: InputConfig) -> tuple[str, list[str]]:
    """Return the folder that names are relative to, and the files of a known format, sorted.

    Raises:
        PipelineError: the input is missing, or holds no such file.
    """
    root, paths = _find_remote(place) if REMOTE in place.path else _find_local(place)
    found = sorted(path for path in paths if path.lower().endswith(FORMATS))
    if not found:
        raise PipelineError(
            f"inputs: {place.path} (source {place.source}): no file in a known format there; expected {', '.join(FORMATS)}"
        )
    return root, found


def _list_input(place: InputConfig, fingerprints: Fingerprints) -> list[RawFile]:
    root, found = find_files(place)
    return [_describe(place, root, path, fingerprints) for path in found]


def _describe(place: InputConfig, root: str, path: str, fingerprints: Fingerprints) -> RawFile:
    try:
        measure = _measure_remote if REMOTE in path else _measure_local
        size, checksum, modified = measure(path, fingerprints)
    except OSError as error:
        raise PipelineError(
            f"inputs: {path} (source {place.source}): cannot be read: {error.strerror or error}; mend or remove it, then "
            "run the same command again"
        ) from error
    name = path.removeprefix(root).lstrip("/")
    absolute = path if REMOTE in path else str(Path(path).absolute())
    return RawFile(absolute, name, place.source, place.text_field, place.id_field, size, checksum, modified)


def _measure_local(path: str, fingerprints: Fingerprints) -> tuple[int, str, int | None]:
    status = Path(path).stat()
    return status.st_size, fingerprints.of_file(Path(path)), status.st_mtime_ns


def _measure_remote(path: str, fingerprints: Fingerprints) -> tuple[int, str, int | None]:
    """What an object store says of a file's version (ETag, time) stands for its time of modification."""
    system, inside = fsspec.core.url_to_fs(path)
    details = system.info(inside)
    version = next((str(details[name]) for name in ("ETag", "etag", "mtime", "LastModified") if name in details), None)
    compute = partial(checksum_of, partial(open_raw, path))
    size = int(details["size"])
    return size, fingerprints.checksum(path, [size, version], compute) if version else compute(), None


def _find_local(place: InputConfig) -> tuple[str, Iterator[str]]:
    path = Path(place.path)
    if path.is_file():
        return str(path.parent), iter([str(path)])
    if path.is_dir():
        return str(path), map(str, _inside(place, path, path.rglob("*")))
    if glob.has_magic(place.path):
        fixed = Path(*_before_magic(path))
        return str(fixed), map(str, _inside(place, fixed, map(Path, glob.iglob(place.path, recursive=True))))
    raise _missing(place, f", seen from {Path.cwd()}; relative paths start at the folder where the command runs")


def _find_remote(place: InputConfig) -> tuple[str, Iterator[str]]:
    try:
        system, inside = fsspec.core.url_to_fs(place.path)
        if glob.has_magic(inside):
            root = Path(*_before_magic(Path(inside))).as_posix()
            found = system.glob(inside)
        elif system.isdir(inside):
            root, found = inside, system.find(inside)
        elif system.isfile(inside):
            root, found = inside.rpartition("/")[0], [inside]
        else:
            raise _missing(place, "")
    except (ImportError, ValueError) as error:
        raise PipelineError(f"inputs: {place.path} (source {place.source}): {error}; install what it names") from None
    return system.unstrip_protocol(root), map(system.unstrip_protocol, found)


def _inside(place: InputConfig, root: Path, paths: Iterator[Path]) -> Iterator[Path]:
    """Yield the files among `paths`, but links only where the configuration lets them lead out of the folder."""
    folder = root.resolve()
    for path in paths:
        if not path.is_file():
            continue
        if path.is_symlink() and not place.follow_symlinks and folder not in path.resolve().parents:
            logger.warning(
                "inputs: %s: left out, a link out of the folder; inputs.follow_symlinks: true takes it", path
            )
            continue
        yield path


def _before_magic(path: Path) -> list[str]:
    parts: list[str] = []
    for part in path.parts:
        if glob.has_magic(part):
            break
        parts.append(part)
    return parts


def _missing(place: InputConfig, hint: str) -> PipelineError:
    return PipelineError(f"inputs: {place.path} (source {place.source}): no such file or folder{hint}")
