"""Files are new by what they hold, and only once nothing writes to them any more."""

import os
import threading
import time
from pathlib import Path

import pytest

from tasks.incremental.changes import Changes, Seen, find_changes, original_name
from tasks.raw import list_raw_files
from tests.conftest import MakeConfig

OLD = 1_000_000_000


def write(path: Path, text: str, changed: float = OLD) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (changed, changed))


def changes(make_config: MakeConfig, before: dict[tuple[str, str], str], settle: float = 0.0) -> Changes:
    return find_changes(list_raw_files(make_config()).files, Seen(before, set(before.values())), settle)


@pytest.fixture
def seen(raw: Path, make_config: MakeConfig) -> dict[tuple[str, str], str]:
    """What three files held when they were last looked at."""
    for name in ("a.txt", "b.txt", "c.txt"):
        write(raw / name, f"这是文件 {name} 的内容。")
    return {(file.source, file.name): file.checksum for file in list_raw_files(make_config()).files}


def test_nothing_is_new_twice(make_config: MakeConfig, seen: dict[tuple[str, str], str]) -> None:
    found = changes(make_config, seen)
    assert (found.new.files, found.changed, found.deleted, found.unsettled) == ((), (), (), ())


def test_new_changed_moved_and_deleted_files_are_told_apart(
    raw: Path, make_config: MakeConfig, seen: dict[tuple[str, str], str]
) -> None:
    write(raw / "d.txt", "新的文件。")
    write(raw / "a.txt", "改过的内容。")
    (raw / "b.txt").rename(raw / "moved.txt")
    found = changes(make_config, seen)
    changed, new = found.new.files
    assert original_name(changed.name) == "a.txt"
    assert changed.name != "a.txt", "its documents must not have the ids of those before"
    assert Path(changed.path) == raw / "a.txt"
    assert new.name == "d.txt"
    assert found.changed == ("a.txt",)
    assert found.deleted == ("raw/b.txt",)


def test_a_file_that_is_touched_but_not_changed_is_not_new(
    raw: Path, make_config: MakeConfig, seen: dict[tuple[str, str], str]
) -> None:
    (raw / "a.txt").touch()
    assert changes(make_config, seen, settle=0.1).new.files == ()


@pytest.mark.parametrize("ahead", [0, 3600], ids=["now", "by a clock that is an hour ahead"])
def test_a_file_that_grows_while_it_is_looked_at_waits(
    raw: Path, make_config: MakeConfig, seen: dict[tuple[str, str], str], ahead: int
) -> None:
    write(raw / "whole.txt", "已经写完的文件。", time.time() + ahead)
    write(raw / "half.txt", "只写了一半", time.time() + ahead)

    def go_on() -> None:
        time.sleep(0.3)
        write(raw / "half.txt", "只写了一半，现在写完了。", time.time() + ahead)

    writer = threading.Thread(target=go_on)
    writer.start()
    found = changes(make_config, seen, settle=1.0)
    writer.join()
    assert [file.name for file in found.new.files] == ["whole.txt"]
    assert found.unsettled == (str(raw / "half.txt"),)


def test_an_old_file_is_not_waited_for(raw: Path, make_config: MakeConfig, seen: dict[tuple[str, str], str]) -> None:
    write(raw / "d.txt", "早就写好的文件。")
    began = time.monotonic()
    assert len(changes(make_config, seen, settle=30.0).new.files) == 1
    assert time.monotonic() - began < 10
