"""How the workers are started: one runs directly (`msrun` takes one that joins no group for a failed one), several under
`msrun`, on each host by a command line of its own.
"""

import os
import shlex
import socket
import sys
from pathlib import Path

from configs.training import TrainingConfig
from tasks.train.job import JOB_FILE, TrainingJob

PROJECT = Path(__file__).resolve().parents[2]
MASTER_PORT = 8118
CLUSTER_TIMEOUT_SECONDS = 7200
"""How long the hosts wait for one another; that of mindformers' own launcher."""


def command(job: TrainingJob, node: int = 0, port: int | None = None) -> list[str]:
    """Return the command that starts the workers of one host. `port`: of the master; a free one where all are here."""
    training = job.training
    arguments = [str(Path(__file__).with_name("worker.py")), str((job.folder / JOB_FILE).absolute())]
    if training.workers == 1:
        return [sys.executable, *arguments]
    hosts = training.hosts or ["127.0.0.1"]
    several = [f"--node_rank={node}", f"--cluster_time_out={CLUSTER_TIMEOUT_SECONDS}"] if len(hosts) > 1 else []
    return [
        "msrun",
        *(["--bind_core=True"] if training.device == "Ascend" else []),
        f"--worker_num={training.workers}",
        f"--local_worker_num={training.workers // len(hosts)}",
        f"--master_addr={hosts[0]}",
        f"--master_port={port or (MASTER_PORT if training.hosts else free_port())}",
        *several,
        f"--log_dir={(job.folder / 'logs').absolute()}",
        "--join=True",
        *arguments,
    ]


def settings(training: TrainingConfig) -> dict[str, str]:
    """Return the environment variables that decide how long processes wait for one another; the same on every host.

    Sources: the MindSpore FAQ (MS_NODE_TIMEOUT: 200 s, 900 to 1800 from 128 devices on; HCCL_CONNECT_TIMEOUT: 120 s is too
    short for several hosts) and the limit of a collective operation (HCCL_EXEC_TIMEOUT: 1836 s), which a pause for saving
    or evaluation must not reach.
    """
    if training.device == "CPU":
        return {"GLOG_v": "3", "MS_NODE_TIMEOUT": "30"}
    workers, several = training.workers, len(training.hosts) > 1
    return {
        "MS_NODE_TIMEOUT": "1800" if workers > 128 else "900" if workers >= 64 else "300",
        "HCCL_CONNECT_TIMEOUT": "1800" if several else "600",
        "HCCL_EXEC_TIMEOUT": "3600" if several else "1836",
        "MS_ASCEND_CHECK_OVERFLOW_MODE": "INFNAN_MODE",
    }


def environment(training: TrainingConfig | None = None) -> dict[str, str]:
    """Return a process's environment: this interpreter first, this project importable, and what workers need."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"PATH": search, "PYTHONPATH": str(PROJECT), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    return os.environ | own | (settings(training) if training else {"GLOG_v": "3"})


def command_lines(job: TrainingJob) -> list[tuple[str, str]]:
    """Return each host with the command line to run there, from the project's folder in its environment."""
    variables = {name: value for name, value in settings(job.training).items() if name != "GLOG_v"}
    prefix = " ".join(f"{name}={value}" for name, value in {"PYTHONPATH": str(PROJECT), **variables}.items())
    hosts = job.training.hosts or [socket.gethostname()]
    return [(host, f"{prefix} {shlex.join(command(job, node))}") for node, host in enumerate(hosts)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
