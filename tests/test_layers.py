"""Imports go one way, MindSpore stays in the training process, and no module hides one of the standard library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

LAYERS = ("configs", "tasks", "flows")
TRAINING_PROCESS = {
    "tasks/train/tiny.py",
    "tasks/train/worker.py",
    "tasks/train/probes.py",
    "tasks/train/mindrecord.py",
    "tasks/train/megatron.py",
}
# Prefect puts the folder of a flow first on the path, and msrun that of the worker.
ON_THE_PATH = ("flows", "tasks/train")


def modules() -> list[Path]:
    return sorted(path for layer in LAYERS for path in (PROJECT / layer).rglob("*.py"))


def imported(file: Path) -> set[str]:
    """Return the top-level packages that a module imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(PROJECT)))
def test_a_module_imports_only_its_own_layer_and_lower_ones(file: Path) -> None:
    layer = file.relative_to(PROJECT).parts[0]
    higher = set(LAYERS[LAYERS.index(layer) + 1 :])
    assert not imported(file) & higher


@pytest.mark.parametrize("file", modules(), ids=lambda file: str(file.relative_to(PROJECT)))
def test_only_the_training_process_imports_mindspore(file: Path) -> None:
    if file.relative_to(PROJECT).as_posix() not in TRAINING_PROCESS:
        assert not imported(file) & {"mindspore", "mindformers"}


def test_prefect_is_met_only_where_a_stage_becomes_a_task() -> None:
    meeting = {str(file.relative_to(PROJECT)) for file in modules() if "prefect" in imported(file)}
    flows = {f"flows/{name}.py" for name in ("deploy", "evaluate", "hooks", "incremental", "pretrain", "stages")}
    assert meeting == flows | {"tasks/cached_task.py", "tasks/run_page.py"}


@pytest.mark.parametrize("folder", ON_THE_PATH)
def test_no_module_bears_the_name_of_a_standard_one(folder: str) -> None:
    names = {path.stem for path in (PROJECT / folder).iterdir()}
    assert not names & set(sys.stdlib_module_names)


def test_the_command_starts_without_prefect_and_mindspore() -> None:
    code = "import sys, flows.cli; print({'prefect', 'mindspore', 'mindformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
