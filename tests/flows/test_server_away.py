"""The server goes away in the middle of a training, and comes back: the run goes on, and is told as if nothing had been."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.local_server import HOST, LocalServer, free_port, is_healthy, server_environment
from tests.conftest import COMMAND, PROJECT
from tests.flows.conftest import artifact_of, write_config
from tests.flows.operator import kill_family, wait_until
from tests.flows.test_pretrain import last_flow_run

AWAY_SECONDS = 45


def start(server: LocalServer, home: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(server.port)]
    environment = os.environ | server_environment(home, server.port)
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    wait_until(lambda: is_healthy(server.api), 120)
    return process


@pytest.mark.slow
def test_a_run_outlives_its_server(tmp_path: Path) -> None:
    server = LocalServer(0, 0.0, free_port(0))
    process = start(server, tmp_path)
    config = write_config(tmp_path, pretrain={"steps": 1500, "checkpoint_every": 100, "sample_tokens": 0})
    environment = os.environ | {"PREFECT_API_URL": server.api}
    with (tmp_path / "run.log").open("w") as log:
        run = subprocess.Popen([str(COMMAND), "run", str(config)], cwd=PROJECT, env=environment, stdout=log, stderr=log)
    try:
        trainings = tmp_path / "runs" / "artifacts" / "pretrain"
        wait_until(lambda: any(trainings.glob(".*.draft/checkpoints/step-*")), 240)
        kill_family(process.pid)
        process.wait()
        time.sleep(AWAY_SECONDS)
        assert run.poll() is None, (tmp_path / "run.log").read_text(encoding="utf-8")
        process = start(server, tmp_path)
        assert run.wait(300) == 0, (tmp_path / "run.log").read_text(encoding="utf-8")
        assert (artifact_of(config, "pretrain") / "manifest.json").is_file()
        assert last_flow_run(server)["state"]["type"] == "COMPLETED"
        assert "Traceback" not in (tmp_path / "run.log").read_text(encoding="utf-8")
    finally:
        kill_family(run.pid)
        kill_family(process.pid)


def test_a_server_that_is_away_at_the_start_is_said(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    environment = os.environ | {"PREFECT_API_URL": f"http://{HOST}:{free_port(0)}/api"}
    done = subprocess.run(
        [str(COMMAND), "run", str(config)], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no Prefect server answers there" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs" / "artifacts").exists()
