"""All documents that dedup knows, by number: first those of earlier runs, which its index names, then the new ones.

What a pass finds lies in arrays, one file a shard and kind, mapped into memory by the passes that need it. Those under
`index/` stay in the artifact, so that a later run can go on from them; those under `work/` go when it is published.
"""

import json
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from configs.errors import PipelineError
from configs.schema import DedupConfig
from tasks.artifact import Artifact, Workspace, read_manifest
from tasks.files import write_array, write_json

Numbers = npt.NDArray[np.uint32]
"""Documents, counted over the whole corpus."""

DECISIONS = np.dtype([("duplicate_of", "u4"), ("similarity", "f4"), ("step", "u1")])
"""What became of a document: number of the kept one that it repeats, how similar it is to that, and which step said so."""
KEPT = np.uint32(0xFFFFFFFF)
STAYS, SAME_TEXT, SIGNATURES, JACCARD = range(4)
"""Steps."""

# What may differ between the run that made an index and the one that uses it.
FREE_OF_INDEX = frozenset({"index", "takedown_file"})
DECISION_FILE, CORPUS_FILE = "decisions", "corpus.json"


@dataclass(frozen=True)
class Shard:
    """A shard of documents: where its arrays lie, and the numbers of its documents.

    `folder`: of an earlier artifact, None for this one. `index`: its number there. `documents`: the file.
    """

    folder: str | None
    index: int
    documents: str
    first: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.count

    @property
    def is_new(self) -> bool:
        return self.folder is None

    def array(self, draft: Path, name: str) -> npt.NDArray[Any]:
        """Return an array of the index, mapped."""
        return load(index_file(Path(self.folder) if self.folder else draft, name, self.index))


@dataclass(frozen=True)
class Corpus:
    """All shards in order. `draft`: the folder of the artifact in the making."""

    draft: Path
    shards: tuple[Shard, ...]

    @property
    def count(self) -> int:
        return self.shards[-1].end if self.shards else 0

    @cached_property
    def new(self) -> tuple[Shard, ...]:
        return tuple(shard for shard in self.shards if shard.is_new)

    @property
    def first_new(self) -> int:
        return self.new[0].first if self.new else self.count

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Number of each shard's first document."""
        return np.array([shard.first for shard in self.shards], np.int64)

    def shard_of(self, documents: Numbers) -> npt.NDArray[np.int64]:
        """Return for each document the place of its shard in `shards`."""
        return np.searchsorted(self.starts, documents, side="right") - 1

    def earlier_decisions(self) -> npt.NDArray[np.void]:
        """Return `DECISIONS` of the documents of earlier runs."""
        folders = dict.fromkeys(shard.folder for shard in self.shards if shard.folder)
        found = [load(index_file(Path(folder), DECISION_FILE)) for folder in folders]
        return np.concatenate([np.empty(0, DECISIONS), *found])

    def save(self) -> None:
        write_json(self.draft / "work" / CORPUS_FILE, [asdict(shard) for shard in self.shards])


def load_corpus(draft: Path) -> Corpus:
    """Return what `Corpus.save` has written."""
    file = draft / "work" / CORPUS_FILE
    return _read_corpus(draft, file, file.stat().st_mtime_ns)


@lru_cache(maxsize=2)
def _read_corpus(draft: Path, file: Path, _: int) -> Corpus:
    return Corpus(draft, tuple(Shard(**row) for row in json.loads(file.read_text(encoding="utf-8"))))


def index_file(folder: Path, name: str, shard: int | None = None) -> Path:
    return folder / "index" / (f"{name}.npy" if shard is None else f"{name}-{shard:05d}.npy")


def work_file(folder: Path, name: str, *numbers: int) -> Path:
    return folder / "work" / ("-".join([name, *(f"{number:05d}" for number in numbers)]) + ".npy")


def work_files(folder: Path, name: str) -> list[Path]:
    """Return the files of one name that the units of a pass have left, in order."""
    return sorted((folder / "work").glob(f"{name}-*.npy"))


def load(path: Path) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.load(path, mmap_mode="r")
    return array


def save(folder: Path, arrays: dict[Path, npt.NDArray[Any]]) -> dict[str, int | None]:
    """Write arrays; return the names by which a unit records them."""
    for path, array in arrays.items():
        write_array(path, array)
    return {path.relative_to(folder).as_posix(): None for path in arrays}


def earlier_shards(config: DedupConfig, version: int, libraries: dict[str, str]) -> list[Shard]:
    """Return the shards that `config.index` and the indexes before it hold, in order.

    Raises:
        PipelineError: an index that is damaged, or was made with other settings, another version or other libraries; or
            whose documents, the normalize artifact, are gone.
    """
    chain: list[Artifact] = []
    place = config.index
    while place is not None:
        artifact = _open_index(Path(place))
        _check_index(artifact, config, version, libraries)
        chain.append(artifact)
        place = artifact.manifest.config["index"]
    shards: list[Shard] = []
    for artifact in reversed(chain):
        for index, documents in enumerate(_documents_of(artifact)):
            count = len(load(index_file(artifact.folder, "texts", index)))
            first = shards[-1].end if shards else 0
            shards.append(Shard(str(artifact.folder.absolute()), index, str(documents), first, count))
    return shards


def _open_index(folder: Path) -> Artifact:
    try:
        return Artifact(folder, read_manifest(folder))
    except PipelineError as error:
        raise PipelineError(f"dedup.index: {error}") from None


def _check_index(artifact: Artifact, config: DedupConfig, version: int, libraries: dict[str, str]) -> None:
    manifest, folder = artifact.manifest, artifact.folder
    if manifest.stage != "dedup":
        raise PipelineError(f"dedup.index: {folder}: an artifact of {manifest.stage}; give one of dedup")
    made = {key: value for key, value in manifest.config.items() if key not in FREE_OF_INDEX}
    made |= {"version of dedup": manifest.code_version} | manifest.libraries
    wanted = config.model_dump(exclude=set(FREE_OF_INDEX)) | {"version of dedup": version} | libraries
    for name in sorted(made.keys() | wanted.keys()):
        if made.get(name) != wanted.get(name):
            raise PipelineError(
                f"dedup.index: {folder}: made with {name} {made.get(name)}, but this run has {wanted.get(name)}; use the "
                "same, or leave the index out and dedup everything anew"
            )
    if damage := Workspace(folder.parents[2]).damage(folder):
        raise PipelineError(f"dedup.index: {damage}; make it again by running its configuration")


def _documents_of(artifact: Artifact) -> list[Path]:
    """Return the shards of the documents that an artifact was made from."""
    source = artifact.folder.absolute().parents[1] / "normalize" / artifact.manifest.inputs[0]
    try:
        given = Artifact(source, read_manifest(source))
    except PipelineError as error:
        raise PipelineError(
            f"dedup.index: {artifact.folder}: the documents that it stands for are gone ({error}); run its configuration "
            "again with --until normalize"
        ) from None
    return given.shards
