"""The states of a growing model: the first training, and each night that went on from it.

    <workspace>/states/00003.json     which artifacts a night made, from which state it went on, what it measured
    <workspace>/states/current        the number of the state that the next night goes on from

States are never changed. Going back is to point `current` at an earlier one; the next night goes on from there.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, ValidationError

from configs.errors import PipelineError
from configs.schema import ArtifactName, RunConfig
from tasks import pack, pretrain
from tasks.artifact import Artifact, Manifest, Workspace, read_manifest
from tasks.files import atomic_path, try_lock, write_json
from tasks.incremental.changes import Seen, original_name
from tasks.raw import RAW_FILES

logger = logging.getLogger("mindpretrain")

CURRENT, LOCK = "current", ".lock"


class State(BaseModel):
    """What one night has left.

    `artifacts`: the keys of those that it made; without `pretrain` nothing was worth training, and the checkpoint is that
    of the state before. Perplexities are of held-out text, after the night; `before` has them from before it.
    """

    model_config = ConfigDict(frozen=True)
    number: int
    parent: int | None
    made: datetime
    artifacts: dict[ArtifactName, str]
    tokens: int
    perplexity_old: float | None = None
    perplexity_new: float | None = None
    before_old: float | None = None
    before_new: float | None = None


@dataclass(frozen=True)
class Lineage:
    """A state and all that it goes back to, the first training first."""

    workspace: Workspace
    states: tuple[State, ...]

    @property
    def last(self) -> State:
        return self.states[-1]

    def keys(self, stage: ArtifactName) -> list[str]:
        """Return the artifacts of a stage, the oldest first."""
        return [state.artifacts[stage] for state in self.states if stage in state.artifacts]

    def artifacts(self, stage: ArtifactName) -> list[Artifact]:
        """Return the same, opened.

        Raises:
            PipelineError: one is gone.
        """
        return [Artifact(self.workspace.folder(stage, key), self._manifest(stage, key)) for key in self.keys(stage)]

    @property
    def checkpoint(self) -> Path:
        """The folder of the training whose last checkpoint the next one begins with."""
        return self.artifacts("pretrain")[-1].folder

    def seen(self) -> Seen:
        """Return what every raw file that was ever taken held."""
        found = Seen({}, set())
        for artifact in self.artifacts("normalize"):
            for row in pq.read_table(artifact.folder / RAW_FILES).to_pylist():
                found.latest[row["source"], original_name(row["name"])] = row["checksum"]
                found.contents.add(row["checksum"])
        return found

    def _manifest(self, stage: ArtifactName, key: str) -> Manifest:
        try:
            return self.workspace.manifest(stage, key)
        except PipelineError as error:
            raise PipelineError(
                f"states: the artifact of {stage} that the model's state needs is gone ({error}); bring it back, or go back "
                "to an earlier state with `mindpretrain states back NUMBER`"
            ) from None


class States:
    """All states of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.folder = workspace.root / "states"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other nights out.

        Raises:
            PipelineError: another night is at work.
        """
        with try_lock(self.folder / LOCK) as free:
            if not free:
                raise PipelineError(
                    f"{self.folder}: another incremental run is at work in this workspace; let it end, then run again"
                )
            yield

    def all(self) -> list[State]:
        """Return every state, in the order in which they were made.

        Raises:
            PipelineError: one cannot be read.
        """
        return [_read(file) for file in sorted(self.folder.glob("[0-9]*.json"))]

    def current(self) -> Lineage | None:
        """Return what the next night goes on from; None where there has been none."""
        try:
            number = int((self.folder / CURRENT).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise PipelineError(f"{self.folder / CURRENT}: no number; write that of a state, such as 0") from None
        return self.lineage(number)

    def lineage(self, number: int) -> Lineage:
        """Return a state with all before it.

        Raises:
            PipelineError: there is no such state.
        """
        known = {state.number: state for state in self.all()}
        line: list[State] = []
        wanted: int | None = number
        while wanted is not None:
            if wanted not in known:
                needed = f", which state {line[0].number} goes on from" if line else ""
                there = ", ".join(map(str, known)) or "none"
                raise PipelineError(
                    f"{self.folder}: no state {wanted}{needed}; there are {there}. Bring its file back, or choose another "
                    "with `mindpretrain states back NUMBER`"
                )
            line.insert(0, known[wanted])
            wanted = line[0].parent
        return Lineage(self.workspace, tuple(line))

    def add(self, state: State) -> Lineage:
        """Keep a state under the next free number, and let the next night go on from it."""
        numbered = state.model_copy(update={"number": max((old.number for old in self.all()), default=-1) + 1})
        write_json(self.folder / f"{numbered.number:05d}.json", numbered.model_dump(mode="json"))
        return self.go_to(numbered.number)

    def go_to(self, number: int) -> Lineage:
        """Let the next night go on from a state."""
        found = self.lineage(number)
        with atomic_path(self.folder / CURRENT) as temporary:
            temporary.write_text(f"{number}\n", encoding="utf-8")
        return found

    def begin(self, config: RunConfig) -> Lineage:
        """Keep the newest finished training of this configuration as the first state.

        Raises:
            PipelineError: there is none.
        """
        base = _finished_training(self.workspace, config)
        if base is None:
            raise PipelineError(
                f"incremental: {self.workspace.root} holds no finished training of this configuration to go on from; run "
                "`mindpretrain run CONFIG` (deployment pretrain/full) first"
            )
        packed = self.workspace.manifest("pack", base["pack"])
        state = State(
            number=0, parent=None, made=datetime.now().astimezone(), artifacts=base, tokens=packed.stats["tokens"]
        )
        return self.add(state)


def _finished_training(workspace: Workspace, config: RunConfig) -> dict[ArtifactName, str] | None:
    """Return the artifacts of the newest training of the model that `config` describes, on a dataset that it describes.

    How long it trained and how it learnt may be another.
    """
    wanted = pretrain.STAGE.settings(config)
    folders = (workspace.root / "artifacts" / "pretrain").glob("*/manifest.json")
    for file in sorted(folders, key=lambda path: -path.stat().st_mtime):
        trained = read_manifest(file.parent)
        if any(trained.config[name] != wanted[name] for name in ("model", "seq_length")):
            continue
        keys: dict[ArtifactName, str] = {"pretrain": trained.key}
        key = trained.inputs[0]
        for stage in ("pack", "chunk", "filter", "dedup", "normalize"):
            if not workspace.folder(stage, key).is_dir():
                break
            keys[stage] = key
            key = workspace.manifest(stage, key).inputs[0]
        if "normalize" in keys and workspace.manifest("pack", keys["pack"]).config == pack.STAGE.settings(config):
            return keys
    return None


def _read(file: Path) -> State:
    try:
        return State.model_validate_json(file.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise PipelineError(f"{file}: damaged; restore it, or delete it with those after it ({error})") from None
