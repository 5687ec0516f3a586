"""The raw files: found, listed, and known by content.

Their listing has a key like an artifact. It depends on what the files hold and on their place under the input, not on
where that input lies or when it was copied.
"""

import glob
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from configs.errors import PipelineError
from configs.schema import InputConfig, RunConfig
from tasks.artifact import Workspace
from tasks.files import Fingerprints, content_key

FORMATS = (".txt", ".md", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")


@dataclass(frozen=True)
class RawFile:
    """One raw file: `path` to open it, `name` by which its documents know it (relative to its input)."""

    path: str
    name: str
    source: str
    text_field: str
    id_field: str
    bytes: int
    checksum: str


@dataclass(frozen=True)
class RawCorpus:
    """All raw files in their order: inputs as configured, files by name."""

    key: str
    files: tuple[RawFile, ...]


def list_raw_files(config: RunConfig) -> RawCorpus:
    """Return the files of all inputs whose format is known.

    Raises:
        PipelineError: an input that is missing, holds no file of a known format, or one that cannot be read.
    """
    fingerprints = Workspace(Path(config.workspace)).fingerprints
    files = tuple(file for place in config.inputs for file in _list_input(place, fingerprints))
    fingerprints.save()
    described = [{name: value for name, value in asdict(file).items() if name != "path"} for file in files]
    return RawCorpus(content_key(described), files)


def find_files(place: InputConfig) -> tuple[Path, list[Path]]:
    """Return the folder that names are relative to, and the files of a known format, sorted.

    Raises:
        PipelineError: the input is missing, or holds no such file.
    """
    root, paths = _find(place)
    found = sorted((path for path in paths if path.name.lower().endswith(FORMATS)), key=str)
    if not found:
        raise PipelineError(
            f"inputs: {place.path} (source {place.source}): no file in a known format there; expected {', '.join(FORMATS)}"
        )
    return root, found


def _list_input(place: InputConfig, fingerprints: Fingerprints) -> list[RawFile]:
    root, found = find_files(place)
    return [_describe(place, root, path, fingerprints) for path in found]


def _describe(place: InputConfig, root: Path, path: Path, fingerprints: Fingerprints) -> RawFile:
    try:
        size, checksum = path.stat().st_size, fingerprints.checksum(path)
    except OSError as error:
        raise PipelineError(
            f"inputs: {path} (source {place.source}): cannot be read: {error.strerror}; mend or remove it, then run the "
            "same command again"
        ) from error
    name = path.relative_to(root).as_posix()
    return RawFile(str(path.absolute()), name, place.source, place.text_field, place.id_field, size, checksum)


def _find(place: InputConfig) -> tuple[Path, Iterator[Path]]:
    """Return the folder that names are relative to, and the files."""
    path = Path(place.path)
    if path.is_file():
        return path.parent, iter([path])
    if path.is_dir():
        return path, (file for file in path.rglob("*") if file.is_file())
    if glob.has_magic(place.path):
        fixed = Path(*_before_magic(path))
        return fixed, (Path(match) for match in glob.iglob(place.path, recursive=True) if Path(match).is_file())
    raise PipelineError(
        f"inputs: {place.path} (source {place.source}): no such file or folder, seen from {Path.cwd()}; "
        "relative paths start at the folder where the command runs"
    )


def _before_magic(path: Path) -> list[str]:
    parts: list[str] = []
    for part in path.parts:
        if glob.has_magic(part):
            break
        parts.append(part)
    return parts
