"""A Prefect server for one workspace: loopback only, SQLite in the workspace, no telemetry, found again by the next run.

With a server a run has a page to watch; without one Prefect starts a temporary one each time, which takes ten seconds
and ends with its pages.
"""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import psutil

from configs.errors import PipelineError
from tasks.files import write_json

HOST = "127.0.0.1"
PREFERRED_PORT = 4200
START_SECONDS = 120


@dataclass(frozen=True)
class LocalServer:
    """A server that runs: its process, when that began (seconds since the epoch, so that no other is taken for it)."""

    process: int
    started: float
    port: int

    @property
    def api(self) -> str:
        return f"http://{HOST}:{self.port}/api"

    @property
    def ui(self) -> str:
        return f"http://{HOST}:{self.port}"


def ensure_server(workspace: Path, preferred_port: int = PREFERRED_PORT) -> LocalServer:
    """Return the workspace's server, started if it does not run.

    Raises:
        PipelineError: it did not come up.
    """
    server = running_server(workspace)
    if server is not None:
        return server
    home = workspace.absolute() / "prefect"
    home.mkdir(parents=True, exist_ok=True)
    port = free_port(preferred_port)
    log = home / "server.log"
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)],
            env=os.environ | server_environment(home, port),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = LocalServer(child.pid, psutil.Process(child.pid).create_time(), port)
    _wait_until_healthy(server, child, log)
    write_json(_state_file(workspace), asdict(server))
    return server


def running_server(workspace: Path) -> LocalServer | None:
    """Return the server that was started for this workspace, if it still answers."""
    try:
        server = LocalServer(**json.loads(_state_file(workspace).read_text(encoding="utf-8")))
        same = psutil.Process(server.process).create_time() == server.started
    except (FileNotFoundError, json.JSONDecodeError, TypeError, psutil.NoSuchProcess):
        return None
    return server if same and is_healthy(server.api) else None


def stop_server(workspace: Path) -> bool:
    """End the workspace's server; return whether there was one."""
    server = running_server(workspace)
    if server is None:
        return False
    process = psutil.Process(server.process)
    family = [*process.children(recursive=True), process]
    process.terminate()
    _, alive = psutil.wait_procs(family, timeout=15)
    for survivor in alive:
        survivor.kill()
    _state_file(workspace).unlink(missing_ok=True)
    return True


def server_environment(home: Path, port: int) -> dict[str, str]:
    """Return the settings of a server. Its page asks the address given here, not the default port, for data."""
    return {
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://{HOST}:{port}/api",
        "PREFECT_UI_API_URL": f"http://{HOST}:{port}/api",
        "PREFECT_SERVER_API_HOST": HOST,
        "PREFECT_SERVER_API_PORT": str(port),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home}/prefect.db",
    }


def free_port(preferred: int) -> int:
    """Return `preferred` if nothing listens there, else a port that the system gives."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise PipelineError(
        f"no free port on {HOST}; close a program that listens, or set PREFECT_API_URL to a server of yours"
    )


def is_healthy(api: str) -> bool:
    """Return whether a server answers at this address of its API."""
    try:
        with urlopen(f"{api}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except HTTPError as error:
        return error.code == HTTPStatus.UNAUTHORIZED  # it is there, and wants a password first
    except (URLError, OSError):
        return False


def _wait_until_healthy(server: LocalServer, child: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        if is_healthy(server.api):
            return
        time.sleep(0.3)
    child.kill()
    raise PipelineError(
        f"the local Prefect server did not answer on port {server.port}; its log is {log}. Mend what it says, or set "
        "PREFECT_API_URL to a server of yours"
    )


def _state_file(workspace: Path) -> Path:
    return workspace / "prefect" / "server.json"
