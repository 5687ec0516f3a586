"""Setting up says what is missing before it has downloaded gigabytes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PROJECT


@pytest.mark.parametrize(("target", "gigabytes"), [(".venv/.ready", 6), (".torch/.ready", 8)])
def test_a_disk_that_is_too_small_is_said_first(tmp_path: Path, target: str, gigabytes: int) -> None:
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "tests/torch-requirements.lock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(PROJECT / name, tmp_path / name)
    small = tmp_path / "bin" / "df"
    small.parent.mkdir()
    small.write_text("#!/bin/sh\necho Filesystem Blocks Used Available\necho /dev/small 9000000 7000000 2000000\n")
    small.chmod(0o755)
    environment = os.environ | {"PATH": f"{small.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["make", target], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"make: {target} takes up to {gigabytes} GB, and 2 GB are free" in done.stdout
    assert not (tmp_path / target).parent.exists()
