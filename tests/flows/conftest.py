"""A chain that has been run once for all tests of the flow and the command."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.local_server import LocalServer
from tests.conftest import COMMAND, PROJECT, SAMPLE

STAGES = ["normalize", "dedup", "filter", "chunk", "pack", "smoke", "pretrain"]


def write_config(folder: Path, **sections: Any) -> Path:
    """Write a configuration that trains a very small model on part of the sample."""
    config: dict[str, Any] = {
        "inputs": [{"path": str(SAMPLE / "troubles"), "source": "troubles"}],
        "workspace": str(folder / "runs"),
        "normalize": {"shard_bytes": 8000},
        "pack": {"seq_length": 64, "tokenizer": {"vocab_size": 800}},
        "model": {"hidden_size": 32, "intermediate_size": 64, "num_layers": 1, "num_heads": 2},
        "training": {"learning_rate": 0.01, "batch_size": 4, "warmup_share": 0.1},
        "smoke": {"steps": 20},
        "pretrain": {"steps": 20, "checkpoint_every": 10, "keep_checkpoints": 2},
    }
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(config | sections), encoding="utf-8")
    return file


def artifact_of(config: Path, stage: str) -> Path:
    (folder,) = [path for path in (config.parent / "runs" / "artifacts" / stage).iterdir() if path.is_dir()]
    return folder


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, server: LocalServer) -> tuple[Path, str]:
    """A configuration that has been run to its end, and what the command said."""
    config = write_config(tmp_path_factory.mktemp("chain"))
    environment = os.environ | {"PREFECT_API_URL": server.api}
    done = subprocess.run(
        [str(COMMAND), "run", str(config)], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return config, done.stdout
