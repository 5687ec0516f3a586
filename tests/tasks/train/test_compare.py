"""Runs compared: what differed, losses over tokens, and the warning when more than one thing did."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from configs.errors import PipelineError
from tasks.artifact import Manifest
from tasks.files import write_json
from tasks.train.compare import compare, differences, loss_table
from tasks.train.job import METRICS
from tasks.train.metrics import StepMetrics


def manifest(stage: Any = "pretrain", data: str = "abc", **training: float) -> Manifest:
    settings = {"training": {"learning_rate": 3e-4, "weight_decay": 0.1} | training, "seed": 1}
    return Manifest(
        stage=stage,
        key="k",
        config=settings,
        inputs=(data,),
        code_version=1,
        libraries={"mindspore": "2.9.0"},
        files=(),
        stats={},
    )


def steps(count: int, tokens_a_step: int, slope: float) -> list[StepMetrics]:
    return [
        StepMetrics(number, number * tokens_a_step, 10 - slope * number, 1e-3, 1.0, None, False, 0.1, 0.0, 1e4, 10**9)
        for number in range(1, count + 1)
    ]


def run(folder: Path, made: Manifest, measured: list[StepMetrics]) -> Path:
    folder.mkdir()
    write_json(folder / "manifest.json", made.model_dump(mode="json"))
    (folder / METRICS).write_text("".join(f"{json.dumps(asdict(step))}\n" for step in measured))
    return folder


def test_what_differs_in_configuration_data_and_libraries_is_named() -> None:
    one, other = manifest(), manifest(learning_rate=1e-4)
    assert list(differences([one, other])) == [("training.learning_rate", [3e-4, 1e-4])]
    assert list(differences([one, manifest(data="xyz")])) == [("token dataset", ["abc", "xyz"])]
    newer = one.model_copy(update={"libraries": {"mindspore": "2.9.1"}, "code_version": 2})
    assert [what for what, _ in differences([one, newer])] == ["stage's code pretrain", "library mindspore"]


def test_losses_are_compared_at_the_same_tokens_and_not_at_the_same_steps() -> None:
    """20 steps of 100 tokens and 10 of 200: at 2,000 tokens both are at their ends."""
    table = loss_table([steps(20, 100, 0.1), steps(10, 200, 0.2)])
    assert [tokens for tokens, _ in table] == [200 * place for place in range(1, 11)]
    assert table[-1][1] == pytest.approx([8.0, 8.0])
    assert table[0][1] == pytest.approx([9.8, 9.8])


def test_two_changes_at_once_are_warned_of(tmp_path: Path) -> None:
    first = run(tmp_path / "a", manifest(), steps(10, 100, 0.1))
    second = run(tmp_path / "b", manifest(learning_rate=1e-4), steps(10, 100, 0.05))
    third = run(tmp_path / "c", manifest(learning_rate=1e-4, weight_decay=0.0), steps(10, 100, 0.05))
    one = list(compare([first, second]))
    assert "training.learning_rate: A 0.0003, B 0.0001" in one
    assert not any(line.startswith("warning") for line in one)
    assert one[-1].split() == ["1,000", "9.0000", "9.5000"]
    assert any(line.startswith("warning: 2 things differ") for line in compare([first, third]))


def test_what_is_no_training_is_named(tmp_path: Path) -> None:
    data = run(tmp_path / "pack", manifest("pack"), [])
    with pytest.raises(PipelineError, match="an artifact of pack"):
        list(compare([data, data]))
    with pytest.raises(PipelineError, match="two runs or more"):
        list(compare([data]))
