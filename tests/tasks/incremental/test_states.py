"""States are numbered, never changed, gone back to; and one night at a time."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from configs.errors import PipelineError
from tasks.artifact import Workspace
from tasks.incremental.states import State, States


def state(parent: int | None, **artifacts: str) -> State:
    return State(number=0, parent=parent, made=datetime.now(UTC), artifacts=artifacts, tokens=7)


@pytest.fixture
def states(tmp_path: Path) -> States:
    """The first training and two nights after it, of which the second had nothing to train."""
    states = States(Workspace(tmp_path))
    with states.alone():
        states.add(state(None, dedup="d0", pretrain="p0"))
        states.add(state(0, dedup="d1", pretrain="p1"))
        states.add(state(1, dedup="d2"))
    return states


def test_the_next_night_goes_on_from_the_last_state(states: States) -> None:
    line = states.current()
    assert line is not None
    assert line.last.number == 2
    assert line.keys("dedup") == ["d0", "d1", "d2"]
    assert line.keys("pretrain")[-1] == "p1", "the night after it trained nothing"


def test_after_going_back_a_new_number_is_given_and_what_was_left_is_kept(states: States) -> None:
    states.go_to(0)
    line = states.add(state(0, dedup="d3", pretrain="p3"))
    assert line.last.number == 3
    assert line.keys("pretrain") == ["p0", "p3"]
    assert [one.number for one in states.all()] == [0, 1, 2, 3]


def test_a_state_that_is_not_there_is_named(states: States) -> None:
    with pytest.raises(PipelineError, match="no state 9; there are 0, 1, 2"):
        states.go_to(9)


def test_a_state_whose_parent_s_file_is_gone_is_named(states: States) -> None:
    (states.folder / "00001.json").unlink()
    with pytest.raises(
        PipelineError, match=r"no state 1, which state 2 goes on from; there are 0, 2\. Bring its file back"
    ):
        states.current()
    assert states.go_to(0).last.number == 0


def test_a_second_night_is_refused_while_the_first_is_at_work(states: States) -> None:
    with (
        states.alone(),
        pytest.raises(PipelineError, match="another incremental run is at work"),
        States(states.workspace).alone(),
    ):
        pass
    with states.alone():
        pass


def test_artifacts_that_are_gone_are_named(states: States) -> None:
    line = states.current()
    assert line is not None
    with pytest.raises(PipelineError, match=r"the artifact of pretrain that the model's state needs is gone"):
        _ = line.checkpoint


def test_a_damaged_state_is_named(states: States) -> None:
    (states.folder / "00001.json").write_text("{", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"00001\.json: damaged"):
        states.current()
