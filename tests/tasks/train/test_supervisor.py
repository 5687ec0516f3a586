"""Nothing that the supervisor started survives it, its parent, or its command."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tasks.train import msrun, supervisor
from tests.conftest import PROJECT
from tests.tasks.train.jobs import descendants, kill, wait_until

SLEEPER = "import os, pathlib, sys, time\npathlib.Path(sys.argv[1], str(os.getpid())).touch()\ntime.sleep(300)\n"
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'tasks.train.supervisor', *sys.argv[1:]])"


def supervise(*command: str) -> "subprocess.Popen[bytes]":
    """Start the supervisor below a parent that can be killed."""
    return subprocess.Popen([sys.executable, "-c", PARENT, *command], cwd=PROJECT, env=msrun.environment())


def sleeping_python(pids: Path, prelude: str = "") -> list[str]:
    return [sys.executable, "-c", prelude + SLEEPER, str(pids)]


def test_workers_of_the_real_msrun_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    """msrun puts its scheduler and two workers into sessions of their own, and dies without ending them."""
    script, pids = tmp_path / "sleeper.py", tmp_path / "pids"
    script.write_text(SLEEPER)
    pids.mkdir()
    parent = supervise(
        "msrun", "--worker_num=2", "--local_worker_num=2", "--master_addr=127.0.0.1",
        f"--master_port={msrun.free_port()}", f"--log_dir={tmp_path / 'logs'}", "--join=True", str(script), str(pids),
    )  # fmt: skip
    wait_until(lambda: len(list(pids.iterdir())) == 3)
    started = descendants(parent.pid)
    assert {int(file.name) for file in pids.iterdir()} <= {process.pid for process in started}
    kill(parent)
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_ignores_the_polite_signal_is_ended_by_force(tmp_path: Path, number: signal.Signals) -> None:
    prelude = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    parent = supervise(*sleeping_python(tmp_path, prelude))
    wait_until(lambda: any(tmp_path.iterdir()))
    started = descendants(parent.pid)
    started[0].send_signal(number)
    _, alive = psutil.wait_procs(started, timeout=10)
    parent.wait()
    assert alive == []


def test_what_the_command_leaves_behind_ends_with_it_and_its_status_is_passed_on(tmp_path: Path) -> None:
    leaves = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True); sys.exit(7)"
    command = [sys.executable, "-m", "tasks.train.supervisor", sys.executable, "-c", leaves, *sleeping_python(tmp_path)]
    assert subprocess.run(command, cwd=PROJECT, check=False).returncode == 7
    assert not any(psutil.pid_exists(int(file.name)) for file in tmp_path.iterdir())


def test_a_command_killed_by_a_signal_gives_128_and_its_number() -> None:
    command = [sys.executable, "-m", "tasks.train.supervisor", "sh", "-c", "kill -9 $$"]
    assert subprocess.run(command, cwd=PROJECT, check=False).returncode == 128 + signal.SIGKILL


def test_a_child_that_ends_while_it_is_looked_at_does_not_save_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    staying = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    listed = [psutil.Process(gone.pid), psutil.Process(staying.pid)]
    gone.wait()
    looks = iter([listed])
    monkeypatch.setattr(psutil.Process, "children", lambda _, *, recursive: next(looks, []))
    supervisor.end_descendants()
    assert not psutil.pid_exists(staying.pid)
