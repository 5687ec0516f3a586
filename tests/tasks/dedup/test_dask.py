"""On a real Dask cluster of two workers: the same artifact, also when a worker is killed in the middle."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from configs.errors import PipelineError
from configs.schema import ExecutorConfig, RunConfig
from tasks import dedup, normalize
from tasks.artifact import Workspace
from tasks.executor import open_executor
from tasks.raw import list_raw_files
from tasks.stage import build_artifact
from tests.conftest import PROJECT, MakeConfig, build_chain, files_of
from tests.tasks.dedup.test_index import SAMPLE_TEXTS, with_repetitions, write_batch

DASK = Path(sys.executable).with_name("dask")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """A scheduler and its workers, as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self._scheduler = self._start("scheduler", "--host", self.address, "--no-dashboard")
        self.workers = [self.add_worker() for _ in range(2)]

    def add_worker(self) -> "subprocess.Popen[bytes]":
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard")

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        log = (self.folder / f"{arguments[0]}.log").open("ab")
        return subprocess.Popen([str(DASK), *arguments], cwd=self.folder, env=self._environment, stdout=log, stderr=log)

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(PROJECT)}

    def stop(self) -> None:
        for process in (*self.workers, self._scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    running = Cluster(folder)
    yield running
    running.stop()


def build_on(cluster: Cluster, config: RunConfig, given: object) -> Path:
    with open_executor(ExecutorConfig(kind="dask", address=cluster.address)) as executor:
        manifest = build_artifact(dedup.STAGE, config, [given], executor)  # type: ignore[list-item]
    return Workspace(Path(config.workspace)).folder("dedup", manifest.key)


def when(happens: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    """Do something, in a thread, as soon as something is seen to have happened."""

    def watch() -> None:
        while not happens():
            time.sleep(0.002)
        act()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_a_worker_killed_in_the_middle_loses_nothing(make_config: MakeConfig, cluster: Cluster, tmp_path: Path) -> None:
    """One is killed during the signatures and replaced, and again one during the candidates of the bands."""
    write_batch(tmp_path / "raw", [text for seed in range(30) for text in with_repetitions(SAMPLE_TEXTS, seed)], 0)
    config = make_config(normalize={"shard_bytes": 100_000})
    (given,) = build_chain(config, normalize.STAGE)
    drafts = Path(config.workspace) / "artifacts" / "dedup"
    seen: list[int] = []

    def units(label: str) -> int:
        return len(list(drafts.glob(f".*.draft/units/{label}-*.json")))

    def kill_a_worker(label: str) -> None:
        seen.append(units(label))
        victim = cluster.workers.pop(0)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        cluster.workers.append(cluster.add_worker())

    threads = [
        when(lambda label=label: units(label) >= 2, lambda label=label: kill_a_worker(label))  # type: ignore[misc]
        for label in ("sign", "candidates")
    ]
    folder = build_on(cluster, config, given.manifest)
    for thread in threads:
        thread.join(10)
    shards = len(given.shards)
    assert shards >= 20
    assert len(seen) == 2
    assert seen[0] < shards
    assert seen[1] < 16
    undisturbed = make_config(normalize={"shard_bytes": 100_000}, workspace=str(tmp_path / "here"))
    *_, expected = build_chain(undisturbed, normalize.STAGE, dedup.STAGE)
    assert files_of(folder) == files_of(expected.folder)
    assert expected.manifest.stats["documents_removed:near_duplicate"] > 50


def test_paths_start_where_the_command_was_given(
    make_config: MakeConfig, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_batch(tmp_path / "raw", SAMPLE_TEXTS, 0)
    config = make_config(inputs=[{"path": "raw", "source": "raw"}], workspace="relative")
    with open_executor(ExecutorConfig(kind="dask", address=cluster.address)) as executor:
        manifest = build_artifact(normalize.STAGE, config, [list_raw_files(config)], executor)
    assert manifest.stats["documents_kept"] == len(SAMPLE_TEXTS)


def test_an_error_in_a_unit_is_the_user_s_message(make_config: MakeConfig, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "broken.jsonl").write_text("{}\n" * 200, encoding="utf-8")
    config = make_config()
    with open_executor(ExecutorConfig(kind="dask", address=cluster.address)) as executor, pytest.raises(PipelineError):
        build_artifact(normalize.STAGE, config, [list_raw_files(config)], executor)


def test_a_scheduler_that_does_not_answer_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.executor.CONNECT_SECONDS", 1)
    address = f"tcp://127.0.0.1:{free_port()}"
    config = ExecutorConfig(kind="dask", address=address)
    with pytest.raises(PipelineError, match=f"{address}: no Dask scheduler answers there"), open_executor(config):
        pass
