"""What goes wrong is named: the first cause, the log, and the mend where it is known."""

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from tasks.train import msrun
from tasks.train.failures import first_cause
from tasks.train.job import TrainingFailed
from tasks.train.launch import train
from tasks.train.metrics import StepMetrics
from tests.tasks.train.jobs import make_job, run


def test_an_absurd_learning_rate_is_named(dataset: Path, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", dataset, learning_rate=1e30, max_gradient_norm=1e30, warmup_share=0.0)
    with pytest.raises(TrainingFailed, match=r"(?s)not finite .* lower training\.learning_rate.*launch\.log"):
        run(job)


def test_a_dataset_that_is_no_mindrecord_is_named(dataset: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mindrecord"
    broken.write_bytes(dataset.read_bytes()[:100])
    broken.with_name("broken.mindrecord.db").write_bytes(b"")
    with pytest.raises(TrainingFailed, match=r"after step 0 of 40: the token dataset cannot be read"):
        run(make_job(tmp_path / "job", broken))


def test_fewer_sequences_than_a_global_batch_are_refused_before_anything_starts(dataset: Path, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", dataset, sequences=7, workers=2)
    with pytest.raises(TrainingFailed, match=r"7 sequences, but .* takes 8 a step; lower them or add documents"):
        run(job)
    assert not job.folder.exists()


def test_a_worker_killed_by_the_system_is_named(dataset: Path, tmp_path: Path) -> None:
    def kill_the_worker(step: StepMetrics) -> None:
        if step.step == 3:
            worker = next(p for p in psutil.Process().children(recursive=True) if "worker.py" in p.cmdline()[1])
            os.kill(worker.pid, signal.SIGKILL)

    with pytest.raises(TrainingFailed, match=r"ended from outside by signal 9; most often .* for want of memory"):
        train(make_job(tmp_path / "job", dataset, steps=400, max_restarts=0), kill_the_worker)


def test_a_taken_port_is_named_at_once_and_not_after_the_timeout(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setattr(msrun, "free_port", lambda: other.getsockname()[1])
        job = make_job(tmp_path / "job", dataset, workers=2, timeout_minutes=1, max_restarts=0)
        with pytest.raises(TrainingFailed, match=r"another program took their port; run the same command again"):
            run(job)


def test_of_two_workers_the_killed_one_is_the_cause_and_not_what_msrun_says_of_it(tmp_path: Path) -> None:
    """The launcher's lines are those of a real run whose second worker was ended by kill -9."""
    worker, launcher = tmp_path / "worker_0.log", tmp_path / "launch.log"
    worker.write_text("INFO - { Epoch:[  1/ 63], step:[    5/   32], loss:[6.220850/6.230875]\n")
    launcher.write_text(
        "[ERROR] ME(9983:140189840456576,MainProcess):2026-12-01-12:54:31.598.000 [mindspore/parallel/cluster/"
        "process_entity/_api.py:364] Worker process 9991 exit with exception. Error code: -9.\n"
        "RuntimeError: Distributed job exited with exception. Please check logs in directory: /x/logs.\n"
    )
    assert first_cause([worker, launcher], 1).text == (
        f"a process was ended from outside by signal 9; most often the system, for want of memory; lower "
        f"training.batch_size or the readers' memory, or find out who ended it (`dmesg`) (log: {launcher})"
    )
    worker.write_text("ValueError: what really happened\n")
    assert first_cause([worker, launcher], 1).text == f"ValueError: what really happened (log: {worker})"


def test_a_training_without_steps_is_given_up(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingFailed, match=r"no training step ended for training.timeout_minutes 0.01"):
        run(make_job(tmp_path / "job", dataset, timeout_minutes=0.01, max_restarts=0))


def test_a_log_without_a_known_cause_is_quoted(tmp_path: Path) -> None:
    log = tmp_path / "worker_0.log"
    log.write_text("RuntimeError: Allocate memory failed, std::bad_alloc\nValueError: later\n")
    assert first_cause([log], 1).text.startswith("out of memory; lower training.batch_size")
    log.write_text("INFO fine\n")
    assert first_cause([log], 137).text.startswith("a process was ended from outside by signal 9")
    assert first_cause([log], 1).text == f"status 1, and no error in the logs; they end with\n  {log}: INFO fine"
