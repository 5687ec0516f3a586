"""What an operator does: starts a worker, deploys, starts and cancels runs through the server's API, and looks at them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import psutil

from tasks.local_server import LocalServer
from tests.conftest import COMMAND, PROJECT
from tests.tasks.train import jobs

PREFECT = Path(sys.executable).with_name("prefect")
wait_until = partial(jobs.wait_until, every=0.2)  # each look is a request
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@dataclass(frozen=True)
class Operator:
    """Works on one server."""

    server: LocalServer

    def deploy(self) -> None:
        environment = os.environ | {"PREFECT_API_URL": self.server.api}
        done = subprocess.run(
            [str(COMMAND), "deploy"], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, deployment: str, **parameters: Any) -> str:
        """Start a run of a deployment, such as pretrain/full; return its id."""
        found = self._get(f"deployments/name/{deployment}")
        return str(self._post(f"deployments/{found['id']}/create_flow_run", {"parameters": parameters})["id"])

    def form(self, deployment: str) -> dict[str, Any]:
        """Return what the UI's form knows of each parameter of a deployment."""
        found = self._get(f"deployments/name/{deployment}")
        return dict(found["parameter_openapi_schema"]["properties"])

    def state(self, run: str) -> str:
        return str(self._get(f"flow_runs/{run}")["state"]["type"])

    def message(self, run: str) -> str:
        return str(self._get(f"flow_runs/{run}")["state"]["message"])

    def wait(self, run: str, seconds: float = 300) -> str:
        """Return the state in which a run has ended."""
        wait_until(lambda: self.state(run) in FINAL, seconds)
        return self.state(run)

    def task_states(self, run: str) -> dict[str, str]:
        """Return the name of each task's state."""
        tasks = self._post(
            "task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}, "sort": "EXPECTED_START_TIME_ASC"}
        )
        return {task["name"].rsplit("-", 1)[0]: task["state"]["name"] for task in tasks}

    def artifacts(self, run: str) -> dict[str, str]:
        """Return the address of each artifact that a run shows in its page, the newest of each key."""
        found = self._post("artifacts/filter", {"flow_runs": {"id": {"any_": [run]}}, "sort": "UPDATED_DESC"})
        return {one["key"]: f"{self.server.ui}/artifacts/artifact/{one['id']}" for one in reversed(found)}

    def logs(self, run: str) -> str:
        found = self._post(
            "logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200, "sort": "TIMESTAMP_DESC"}
        )
        return "\n".join(entry["message"] for entry in found)

    def says(self, run: str, text: str) -> bool:
        """Return whether a run's logs have a text; they come some seconds after the run has ended."""
        try:
            wait_until(lambda: text in self.logs(run), 20)
        except TimeoutError:
            return False
        return True

    def cancel(self, run: str) -> None:
        self._post(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})

    @contextmanager
    def worker(self, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
        """A worker in a session of its own, which ends with all that it started."""
        environment = os.environ | {"PREFECT_API_URL": self.server.api, "PREFECT_WORKER_QUERY_SECONDS": "2"}
        command = [str(PREFECT), "worker", "start", "--pool", "mindpretrain"]
        with log.open("w") as output:
            process = subprocess.Popen(
                command, cwd=PROJECT, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                yield process
            finally:
                kill_family(process.pid)
                process.wait()

    def _get(self, path: str) -> Any:
        return self._ask("GET", path, None)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """Return the server's answer. While SQLite is busy it says 503, on which Prefect's own clients ask again, too."""
        for pause in (1, 2, 4, 0):
            answer = httpx.request(method, f"{self.server.api}/{path}", json=body, timeout=30)
            if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                break
            time.sleep(pause)
        answer.raise_for_status()
        return answer.json()


def family_of(pid: int) -> list[psutil.Process]:
    """Return a process with all that came of it."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill_family(pid: int) -> None:
    """End a process and all that came of it as the system does when memory is short."""
    for process in family_of(pid):
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
