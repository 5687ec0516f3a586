"""A night by the command, after a run that is there already: what is new is trained on, and the state says so."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tasks.artifact import read_manifest
from tests.conftest import SAMPLE, RunCommand
from tests.flows.test_pretrain import states

NIGHT = {"min_new_tokens": 500, "settle_seconds": 0.2, "learning_rate": 1e-3, "final_learning_rate": 1e-4}


@pytest.fixture
def config(finished: tuple[Path, str], tmp_path: Path) -> Path:
    """The configuration of a finished run, whose workspace and raw files were copied and may grow."""
    shutil.copytree(finished[0].parent / "runs" / "artifacts", tmp_path / "runs" / "artifacts")
    shutil.copytree(SAMPLE / "troubles", tmp_path / "raw")
    settings = yaml.safe_load(finished[0].read_text(encoding="utf-8"))
    settings |= {"workspace": str(tmp_path / "runs"), "incremental": NIGHT}
    settings["inputs"][0]["path"] = str(tmp_path / "raw")
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return file


def test_a_night_trains_on_what_is_new_and_the_next_finds_nothing(
    config: Path, mindpretrain: RunCommand, tmp_path: Path
) -> None:
    assert "nothing is new: nothing was done" in mindpretrain("incremental", config).stdout
    for file in ("recompute.md", "mixed_precision.md"):
        shutil.copy(SAMPLE / "articles" / file, tmp_path / "raw")
    few = mindpretrain("incremental", config, "--set", "incremental.min_new_tokens=100000")
    assert "they wait for more" in few.stdout
    done = mindpretrain("incremental", config)
    assert done.returncode == 0, done.stderr
    assert "2 new files, 0 of them changed" in done.stdout
    assert "no text is held out (pack.held_out_share): the checkpoint is taken without being measured" in done.stdout
    assert states(done.stdout) | {"smoke": "", "pretrain": ""} == {
        "normalize": "Cached", "dedup": "Cached", "filter": "Cached", "tokens": "Cached",
        "chunk": "Completed", "pack": "Completed", "mix": "Completed", "smoke": "", "pretrain": "",
    }  # fmt: skip
    assert "nothing is new: nothing was done" in mindpretrain("incremental", config).stdout
    state = json.loads((tmp_path / "runs" / "states" / "00001.json").read_text(encoding="utf-8"))
    trained = read_manifest(tmp_path / "runs" / "artifacts" / "pretrain" / state["artifacts"]["pretrain"])
    first = json.loads((tmp_path / "runs" / "states" / "00000.json").read_text(encoding="utf-8"))
    assert trained.config["model"]["initial_weights"] is not None
    assert trained.inputs == (state["artifacts"]["mix"],)
    assert state["parent"] == 0
    assert "pretrain" in first["artifacts"]

    mix = tmp_path / "runs" / "artifacts" / "mix" / state["artifacts"]["mix"]
    new = re.search(r"── sequence (\d+)\n\[(\S+recompute\.md)\] ", mindpretrain("inspect", mix, "-n", "1000").stdout)
    assert new is not None
    assert f"  {new[2]}\n" in mindpretrain("trace", mix, new[1]).stdout
    assert re.search(rf"report +{tmp_path}/runs/records/\S+-run\.html", done.stdout)

    listed = mindpretrain("states", "list", "--workspace", tmp_path / "runs").stdout.splitlines()
    assert [line[:7] for line in listed] == ["      0", "*     1"]
    assert mindpretrain("states", "back", "0", "--workspace", tmp_path / "runs").returncode == 0
    assert mindpretrain("states", "list", "--workspace", tmp_path / "runs").stdout.startswith("*     0")


def test_without_a_finished_training_there_is_nothing_to_go_on_from(
    config: Path, mindpretrain: RunCommand, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "runs")
    done = mindpretrain("incremental", config)
    assert done.returncode == 1
    assert (
        "holds no finished training of this configuration to go on from; run `mindpretrain run CONFIG`" in done.stderr
    )


def test_a_folder_of_raw_files_that_vanished_is_no_deletion(
    config: Path, mindpretrain: RunCommand, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "raw")
    done = mindpretrain("incremental", config)
    assert done.returncode == 1
    assert "no such file or folder" in done.stderr
