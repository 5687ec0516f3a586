"""The checkpoints of a training: folders `checkpoints/step-00000500` with weights, optimizer and `state.json`.

A checkpoint gets its final name by rename when it is whole. `state.json` has size and checksum of each file, so that one
which was damaged later (a disk, a copy that broke off) is noticed before it is trained on.
"""

import json
import logging
from pathlib import Path
from typing import Any

from configs.errors import PipelineError
from tasks.files import checksum

logger = logging.getLogger("mindpretrain")

CHECKPOINTS = "checkpoints"
CHECKPOINT_STATE = "state.json"
WEIGHTS, OPTIMIZER = "model.safetensors", "optimizer.safetensors"


def whole_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a training, oldest first, those left out whose files lack bytes."""
    found = sorted(path.parent for path in folder.glob(f"{CHECKPOINTS}/step-*/{CHECKPOINT_STATE}"))
    return [checkpoint for checkpoint in found if not _short_file(checkpoint)]


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was written."""
    return int(_state(checkpoint)["step"])


def describe(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return size and checksum of a checkpoint's files, for its state."""
    return {name: {"bytes": (folder / name).stat().st_size, "checksum": checksum(folder / name)} for name in names}


def damage(checkpoint: Path) -> str | None:
    """Return what is wrong with a checkpoint, every byte being read; None where nothing is."""
    if not (checkpoint / CHECKPOINT_STATE).is_file():
        return f"{checkpoint / CHECKPOINT_STATE} is missing"
    try:
        files = _state(checkpoint)["files"]
    except (ValueError, KeyError, TypeError):
        return f"{checkpoint / CHECKPOINT_STATE} cannot be read"
    if short := _short_file(checkpoint):
        return short
    changed = [name for name, file in files.items() if checksum(checkpoint / name) != file["checksum"]]
    return f"{checkpoint / changed[0]} has changed since it was written (its checksum differs)" if changed else None


def last_good(folder: Path) -> Path | None:
    """Return the newest checkpoint that is unharmed. Damaged ones are put aside, and said to be.

    Raises:
        PipelineError: there are checkpoints, and all are damaged: going on from nothing would be another training.
    """
    found = sorted(path for path in folder.glob(f"{CHECKPOINTS}/step-*") if path.is_dir())
    damaged: list[tuple[Path, str]] = []
    while found:
        newest = found.pop()
        wrong = damage(newest)
        if wrong is None:
            for bad, reason in damaged:
                logger.warning(
                    "%s; the checkpoint of step %d is used, so %d steps are done again",
                    reason, step_of(newest), int(bad.name.partition("-")[2]) - step_of(newest),
                )  # fmt: skip
                bad.rename(bad.with_name(f".{bad.name}.damaged"))
            return newest
        damaged.append((newest, wrong))
    if damaged:
        raise PipelineError(
            f"{damaged[0][1]}, and no earlier checkpoint in {folder / CHECKPOINTS} is whole; delete that folder to train "
            "from the beginning, or restore it"
        )
    return None


def find_checkpoint(given: Path) -> Path:
    """Return the checkpoint that `given` is, or the last whole one of the training that it is the folder of.

    Raises:
        PipelineError: there is none, or the one that was named is damaged.
    """
    if (given / CHECKPOINT_STATE).exists():
        if wrong := damage(given):
            raise PipelineError(f"model.init_from: {wrong}; name another checkpoint")
        return given
    place = given if (given / CHECKPOINTS).is_dir() else given.parent if given.name == CHECKPOINTS else given
    found = last_good(place)
    if found is None:
        raise PipelineError(
            f"model.init_from: {given}: no checkpoint there (a folder such as checkpoints/step-00000500 with "
            f"{CHECKPOINT_STATE}); training would begin from random weights. Name one, or write init: scratch"
        )
    return found


def _state(checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((checkpoint / CHECKPOINT_STATE).read_text(encoding="utf-8"))
    return state


def _short_file(checkpoint: Path) -> str | None:
    for name, file in _state(checkpoint).get("files", {}).items():
        path = checkpoint / name
        found = path.stat().st_size if path.is_file() else 0
        if found != file["bytes"]:
            return f"{path} has {found} bytes of {file['bytes']}"
    return None
