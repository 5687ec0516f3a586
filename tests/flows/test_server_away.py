"""The server goes away in the middle of a training, or its database is locked, and comes back: the run goes on, and is told
as if nothing had been.
"""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from tasks.local_server import HOST, LocalServer, free_port, is_healthy, server_environment
from tests.conftest import COMMAND, PROJECT
from tests.flows.conftest import artifact_of, write_config
from tests.flows.operator import kill_family, wait_until
from tests.flows.test_pretrain import last_flow_run

AWAY_SECONDS = 45


class Server:
    """A server that can be killed and started again at the same address."""

    def __init__(self, home: Path) -> None:
        self.home, self.address = home, LocalServer(0, 0.0, free_port(0))
        self.start()

    def start(self) -> None:
        port = self.address.port
        command = [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
        environment = os.environ | server_environment(self.home, port)
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: is_healthy(self.address.api), 120)

    def kill(self) -> None:
        kill_family(self.process.pid)
        self.process.wait()


@contextmanager
def killed(server: Server) -> Iterator[None]:
    server.kill()
    yield
    server.start()


@contextmanager
def database_locked(server: Server) -> Iterator[None]:
    with closing(sqlite3.connect(server.home / "prefect.db", timeout=60, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")


@pytest.mark.slow
@pytest.mark.parametrize("away", [killed, database_locked])
def test_a_run_outlives_what_its_server_suffers(
    tmp_path: Path, away: Callable[[Server], AbstractContextManager[None]]
) -> None:
    server = Server(tmp_path)
    config = write_config(tmp_path, pretrain={"steps": 1500, "checkpoint_every": 100, "sample_tokens": 0})
    environment = os.environ | {"PREFECT_API_URL": server.address.api}
    with (tmp_path / "run.log").open("w") as log:
        run = subprocess.Popen([str(COMMAND), "run", str(config)], cwd=PROJECT, env=environment, stdout=log, stderr=log)
    try:
        trainings = tmp_path / "runs" / "artifacts" / "pretrain"
        wait_until(lambda: any(trainings.glob(".*.draft/checkpoints/step-*")), 240)
        with away(server):
            time.sleep(AWAY_SECONDS)
            assert run.poll() is None, (tmp_path / "run.log").read_text(encoding="utf-8")
        assert run.wait(300) == 0, (tmp_path / "run.log").read_text(encoding="utf-8")
        assert (artifact_of(config, "pretrain") / "manifest.json").is_file()
        assert last_flow_run(server.address)["state"]["type"] == "COMPLETED"
        assert "Traceback" not in (tmp_path / "run.log").read_text(encoding="utf-8")
    finally:
        kill_family(run.pid)
        server.kill()


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
