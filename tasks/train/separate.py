"""Runs modules of this package that import MindSpore, each in a process of its own: importing it costs seconds and half a
gigabyte, and it writes into the current folder.
"""

import json
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tasks.files import TEMPORARY, write_json
from tasks.train.failures import first_cause
from tasks.train.job import TrainingFailed
from tasks.train.msrun import PROJECT, environment

MEGATRON_CHECKED = "read_back.json"


class RecordFile(BaseModel):
    """Rows of token ids, and the MindRecord that is to be made of them."""

    model_config = ConfigDict(frozen=True)
    rows: Path
    header: Path
    """JSON that describes the rows: dtype, tokens_a_row, eos, pad."""
    target: Path


class WriteMindRecord(BaseModel):
    """Which rows to write as MindRecord, and with which columns. `documents_in_a_sequence`: the most that a row holds."""

    model_config = ConfigDict(frozen=True)
    files: tuple[RecordFile, ...]
    training_columns: bool = False
    reset_positions: bool = False
    documents_in_a_sequence: int = 1


def write_mindrecord(job: WriteMindRecord) -> None:
    """Write rows of token ids as MindRecord, read back and compared.

    Raises:
        TrainingFailed: MindSpore could not write it, or read something else back.
    """
    final = job.files[0].target.parent
    # A folder of its own, so that what a killed process left running cannot write into the files of the next one.
    folder = final / f".{secrets.token_hex(4)}{TEMPORARY}"
    folder.mkdir(parents=True)
    try:
        drafts = [file.model_copy(update={"target": folder / file.target.name}) for file in job.files]
        paths = {"files": [{name: str(path.absolute()) for name, path in file} for file in drafts]}
        write_json(folder / "job.json", job.model_dump(exclude={"files"}) | paths)
        run_module("mindrecord", job.files[0].target, folder / "job.json")
        for draft in drafts:
            for written in (draft.target, draft.target.with_name(f"{draft.target.name}.db")):
                written.replace(final / written.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_megatron(folder: Path, expected: dict[str, tuple[int, int]]) -> None:
    """Read Megatron files by mindformers' reader, and keep what it found. `expected`: documents and checksum of each.

    Raises:
        TrainingFailed: it could not read them, or read something else.
    """
    target = folder / MEGATRON_CHECKED
    run_module("megatron", target, folder, target)
    found = json.loads(target.read_text(encoding="utf-8"))
    for name, (documents, digest) in expected.items():
        if found.get(name) != [documents, digest]:
            raise TrainingFailed(
                f"{folder / name}: mindformers reads {found.get(name)} (documents and checksum), expected "
                f"{documents} and {digest}"
            )


def run_module(name: str, target: Path, *arguments: Path) -> None:
    """Run a module of this package that imports MindSpore, in a process of its own; its output shows only if it fails."""
    log = target.with_name(f"{target.name}.log")
    module = [sys.executable, "-m", f"tasks.train.{name}", *(str(argument.absolute()) for argument in arguments)]
    command = [sys.executable, "-m", "tasks.train.supervisor", *module]  # so that it ends with this process
    with log.open("wb") as output:
        done = subprocess.run(command, env=environment(), cwd=PROJECT, stdout=output, stderr=output, check=False)
    if done.returncode:
        raise TrainingFailed(f"{target}: not written; {first_cause([log], done.returncode).text}")
    log.unlink()
