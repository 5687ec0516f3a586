"""For each log the right first cause, with a mend; and what follows from it after it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.errors import PipelineError
from tasks.train.diagnose import diagnose, find_logs
from tasks.train.failures import find_failures
from tasks.train.known_failures import FAILURES
from tests.conftest import RunCommand

CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("failure_logs.yaml").read_text(encoding="utf-8"))


def written(case: dict[str, Any], folder: Path) -> list[Path]:
    for name, text in case["logs"].items():
        (folder / name).write_text(text, encoding="utf-8")
    return find_logs([folder])


@pytest.mark.parametrize("case", CASES, ids=[case["first"] for case in CASES])
def test_the_first_cause_is_named(case: dict[str, Any], tmp_path: Path) -> None:
    found = [one.failure.name for one in find_failures(written(case, tmp_path))]
    assert found[0] == case["first"]
    assert found[1 : 1 + len(case.get("then", []))] == case.get("then", [])


def test_there_are_logs_for_forty_failures_and_more() -> None:
    assert len({case["first"] for case in CASES}) >= 50
    assert len({failure.name for failure in FAILURES}) == len(FAILURES)
    assert all(failure.cause and (failure.mend or failure.verdict or failure.outside) for failure in FAILURES)


def test_the_command_shows_cause_mend_file_and_line(tmp_path: Path, mindpretrain: RunCommand) -> None:
    (case,) = [case for case in CASES if case.get("then") == ["link_timeout", "job_exited"]]
    written(case, tmp_path)
    lines = mindpretrain("diagnose", tmp_path).stdout.splitlines()
    assert lines[0] == "first cause"
    assert lines[1].startswith("  out_of_memory: out of memory; lower training.batch_size")
    assert f"{tmp_path}/worker_3.log:1:" in lines[2]
    assert lines[4] == "also found, which most often follows from it"


def test_a_log_without_anything_known_says_so_and_a_missing_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("all is well\n")
    assert next(diagnose([tmp_path / "a.log"])).startswith("nothing known in 1 log")
    with pytest.raises(PipelineError, match=r"b\.log: not there"):
        find_logs([tmp_path / "b.log"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(PipelineError, match="no logs"):
        find_logs([tmp_path / "empty"])
