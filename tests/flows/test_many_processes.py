"""A whole run as on many machines: PostgreSQL behind the Prefect server, a Dask cluster for the data stages."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tasks.local_server import HOST, LocalServer, free_port, is_healthy, server_environment
from tests.conftest import COMMAND, PROJECT
from tests.flows.conftest import STAGES, artifact_of, write_config
from tests.flows.operator import Operator, kill_family, wait_until

BIN = Path(sys.executable).parent


def listening() -> set[tuple[str, int]]:
    """Return address and port of every socket that waits for connections."""
    found = psutil.net_connections("inet")
    return {(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN and one.laddr}


def postgres_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    return found[-1].parent


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def running(command: list[str], log: Path, **variables: str) -> Iterator[None]:
    """Run a program in a session of its own, and end it with all that it started."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=PROJECT, env=os.environ | variables, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield
        finally:
            kill_family(process.pid)
            process.wait()


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a database; PostgreSQL refuses to run as root, so it runs as its own user."""
    programs, folder, port = postgres_programs(), Path("/tmp") / f"mindpretrain-postgres-{os.getpid()}", free_port(0)  # noqa: S108 - its user cannot enter pytest's folder
    logs = tmp_path_factory.mktemp("postgres")
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    make = [*as_user, str(programs / "initdb"), "-D", str(folder), "-A", "trust", "-U", "prefect"]
    subprocess.run(make, check=True, capture_output=True)
    server = [programs / "postgres", "-D", folder, "-p", str(port), "-h", HOST, "-k", folder]
    try:
        with running([str(part) for part in (*as_user, *server)], logs / "postgres.log"):
            wait_until(lambda: answers(port), 30)
            time.sleep(1)
            subprocess.run([programs / "createdb", "-h", HOST, "-p", str(port), "-U", "prefect", "prefect"], check=True)
            yield f"postgresql+asyncpg://prefect@{HOST}:{port}/prefect"
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with two workers, each a process."""
    port = free_port(0)
    address = f"tcp://{HOST}:{port}"
    scheduler = [str(BIN / "dask"), "scheduler", "--host", HOST, "--port", str(port), "--no-dashboard"]
    worker = [str(BIN / "dask"), "worker", address, "--nthreads", "1", "--nworkers", "2", "--no-dashboard"]
    with running(scheduler, tmp_path / "scheduler.log"):
        wait_until(lambda: answers(port), 60)
        with running([*worker, "--local-directory", str(tmp_path)], tmp_path / "workers.log"):
            yield address


@pytest.mark.slow
def test_postgres_and_a_dask_cluster_serve_a_whole_run(postgres: str, dask: str, tmp_path: Path) -> None:
    port = free_port(0)
    server = LocalServer(0, 0.0, port)
    variables = server_environment(tmp_path, port) | {"PREFECT_API_DATABASE_CONNECTION_URL": postgres}
    command = [str(BIN / "prefect"), "server", "start", "--host", HOST, "--port", str(port)]
    config = write_config(tmp_path, executor={"kind": "dask", "address": dask})
    with running(command, tmp_path / "server.log", **variables):
        wait_until(lambda: is_healthy(server.api), 120)
        operator = Operator(server)
        operator.deploy()
        with operator.worker(tmp_path / "worker.log"):
            run = operator.start("pretrain/full", config=str(config))
            assert operator.wait(run) == "COMPLETED", operator.logs(run)
        assert list(operator.task_states(run)) == STAGES
    assert (artifact_of(config, "pretrain") / "manifest.json").is_file()


@pytest.mark.slow
def test_a_default_run_listens_on_loopback_alone(tmp_path: Path) -> None:
    """Server, flow and two training workers are looked at while they run."""
    config = write_config(
        tmp_path,
        pretrain={"steps": 400},
        training={"workers": 2, "batch_size": 2, "learning_rate": 0.01, "warmup_share": 0.1},
    )
    before = listening()
    seen: set[tuple[str, int]] = set()
    process = subprocess.Popen([str(COMMAND), "run", str(config)], cwd=PROJECT, stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            seen |= listening() - before
            time.sleep(0.2)
        assert process.returncode == 0
        assert len(seen) >= 2, "the server, and what the two training workers meet at"
        assert {address for address, _ in seen} <= {HOST, "::1"}
    finally:
        kill_family(process.pid)
        subprocess.run(
            [str(COMMAND), "server", "stop", "--workspace", str(tmp_path / "runs")], cwd=PROJECT, check=False
        )
