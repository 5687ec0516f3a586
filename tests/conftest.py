"""Fixtures: real text, small configurations, a real Prefect server."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import zstandard

from configs.schema import RunConfig
from tasks.artifact import Artifact, Manifest, Workspace
from tasks.executor import LocalExecutor
from tasks.local_server import LocalServer, ensure_server, stop_server
from tasks.raw import list_raw_files
from tasks.stage import Stage, StageInput, build_artifact

PROJECT = Path(__file__).resolve().parents[1]
SAMPLE = PROJECT / "data" / "sample"
CORPUS, BENCH = (PROJECT.parent / "shared" / name for name in ("corpus", "bench"))
COMMAND = Path(sys.executable).with_name("mindpretrain")

MakeConfig = Callable[..., RunConfig]
BenchRecords = Callable[[str, int], list[dict[str, str]]]
RunCommand = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def corpus() -> Path:
    """A larger collection of real documents and hard cases, which is not part of the project."""
    if not CORPUS.is_dir():
        pytest.skip(f"{CORPUS} is not there: it holds real documents that the project does not ship")
    return CORPUS


@pytest.fixture
def bench_records() -> BenchRecords:
    """Return a function that gives the first records of one source of real documents, not part of the project."""
    if not BENCH.is_dir():
        pytest.skip(f"{BENCH} is not there: it holds real documents that the project does not ship")

    def read(source: str, count: int) -> list[dict[str, str]]:
        lines = io.TextIOWrapper(zstandard.open(BENCH / f"{source}.jsonl.zst"), "utf-8", newline="\n")
        return [json.loads(line) for line in islice(lines, count)]

    return read


@pytest.fixture
def documents() -> list[tuple[str, str]]:
    """2,000 real documents as (source, text), 250 of each of eight sources, which are not part of the project."""
    if not BENCH.is_dir():
        pytest.skip(f"{BENCH} is not there: it holds real documents that the project does not ship")
    return [
        (file.name.partition(".")[0], json.loads(line)["text"])
        for file in sorted(BENCH.glob("*.jsonl.zst"))
        for line in islice(io.TextIOWrapper(zstandard.open(file), "utf-8", newline="\n"), 250)
    ]


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    """Return a function that makes a configuration over a folder `raw` (made by the test) and its own workspace."""

    def make(**sections: Any) -> RunConfig:
        inputs = sections.pop("inputs", [{"path": str(tmp_path / "raw"), "source": "raw"}])
        workspace = sections.pop("workspace", str(tmp_path / "runs"))
        return RunConfig.model_validate({"inputs": inputs, "workspace": workspace, **sections})

    return make


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """The folder of raw files that `make_config` names."""
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A real Prefect server for the whole session."""
    workspace = tmp_path_factory.mktemp("server")
    yield ensure_server(workspace, preferred_port=0)  # no worker that looks at the usual port may take its runs
    stop_server(workspace)


class Webhook(HTTPServer):
    """Remembers what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Listener)
        self.heard: list[dict[str, str]] = []

    @property
    def address(self) -> str:
        """As Apprise takes it."""
        return f"json://127.0.0.1:{self.server_port}/hook"


class _Listener(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        self.server.heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    server = Webhook()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def mindpretrain(server: LocalServer) -> RunCommand:
    """Return a function that runs the command against the session's server."""

    def run(*arguments: str | Path, cwd: Path = PROJECT) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | {"PREFECT_API_URL": server.api}
        command = [str(COMMAND), *map(str, arguments)]
        return subprocess.run(
            command, env=environment, cwd=cwd, capture_output=True, text=True, check=False, timeout=500
        )

    return run


def build_chain(config: RunConfig, *stages: Stage) -> list[Artifact]:
    """Return the artifacts of consecutive stages, built in this process without Prefect."""
    given: StageInput = list_raw_files(config)
    artifacts = []
    for stage in stages:
        given = build_artifact(stage, config, [given], LocalExecutor())
        artifacts.append(Workspace(Path(config.workspace)).open(given))
    return artifacts


def files_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def removed_by(manifest: Manifest) -> dict[str, int]:
    """Return rule to how many documents it removed."""
    prefix = "documents_removed:"
    return {name.removeprefix(prefix): count for name, count in manifest.stats.items() if name.startswith(prefix)}
