"""Runs a command and sees to it that nothing of it survives: `python -m tasks.train.supervisor COMMAND...`.

`msrun` starts its workers in sessions of their own, and neither ends them when it is told to end nor when it is killed.
This process adopts whatever loses its parent (Linux's child subreaper) and, when it is told to end, when its own parent
dies, or when the command ends, ends every descendant that is left.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from types import FrameType

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 3.0
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Told(Exception):  # noqa: N818
    """A signal asked this process to end."""


def main(command: list[str]) -> int:
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    for number in END_SIGNALS:
        signal.signal(number, _raise_told)
    status = 128 + signal.SIGTERM
    try:
        if os.getppid() == parent:  # it may have died before the death signal was asked for
            status = subprocess.call(command)
    except Told:
        pass
    finally:
        for number in END_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        end_descendants()
    return status if status >= 0 else 128 - status


def end_descendants() -> None:
    """End every descendant: politely, then by force, until there is none."""
    deadline = time.monotonic() + GRACE_SECONDS
    me = psutil.Process()
    while left := [child for child in me.children(recursive=True) if _lives(child)]:
        for child in left:
            try:
                child.terminate() if time.monotonic() < deadline else child.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=0.3)


def _lives(child: psutil.Process) -> bool:
    try:
        return bool(child.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # it ended after it was listed
        return False


def _raise_told(number: int, frame: FrameType | None) -> None:
    """A second signal must not interrupt the ending of the descendants."""
    for later in END_SIGNALS:
        signal.signal(later, signal.SIG_IGN)
    raise Told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
