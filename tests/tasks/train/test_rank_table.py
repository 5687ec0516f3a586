"""Rank tables: a sound one passes, and each rule names what breaks it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from configs.errors import PipelineError
from tasks.train.rank_table import check_file, check_table, make_table
from tests.conftest import RunCommand

SERVERS = [("10.0.0.1", ["192.168.1.8", "192.168.1.9"]), ("10.0.0.2", ["192.168.2.8", "192.168.2.9"])]


def broken(path: str, value: Any) -> list[str]:
    """Return the problems of a sound table with one value set otherwise."""
    table = copy.deepcopy(make_table(SERVERS))
    place: Any = table
    *parents, last = path.split(".")
    for parent in parents:
        place = place[int(parent)] if isinstance(place, list) else place[parent]
    place[last] = value
    return list(check_table(table, 4))


def test_a_made_table_is_sound_and_ranks_go_on_from_server_to_server() -> None:
    table = make_table(SERVERS)
    assert list(check_table(table, 4)) == []
    assert [device["rank_id"] for server in table["server_list"] for device in server["device"]] == ["0", "1", "2", "3"]
    assert list(check_table(make_table(SERVERS, "1.2"), 4)) == []


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("server_list.0.device.0.rank_id", 0, 'R6: rank_id is the number 0, expected text: "0"'),
        ("status", "initializing", "R2: status is 'initializing'"),
        ("version", "1.1", "R3: version is '1.1'"),
        ("server_count", "1", "R4: server_count is '1', but server_list has 2"),
        ("server_list.1.server_id", "10.0.0.1", "R5: server_id 10.0.0.1 stands twice"),
        ("server_list.1.device.0.rank_id", "0", "R6: rank_id 0 stands twice"),
        ("server_list.1.device.1.rank_id", "7", "R6: the rank_ids have gaps"),
        ("server_list.0.device.1.device_id", "0", "R7: 10.0.0.1: device_id 0 stands twice"),
        ("server_list.1.device.0.device_ip", "192.168.1.8", "R8: device_ip 192.168.1.8 stands twice"),
        ("server_list.1.device.0.device_ip", "192.168.2.300", "R8: device_ip '192.168.2.300' is no address"),
        ("server_list.1.device.0.device_ip", "127.0.1.1", "R8: device_ip 127.0.1.1 is the node itself"),
    ],
)
def test_each_rule_names_what_breaks_it(path: str, value: Any, said: str) -> None:
    assert any(problem.startswith(said) for problem in broken(path, value))


def test_a_missing_address_a_wrong_count_and_torn_rings_are_named() -> None:
    several = copy.deepcopy(make_table(SERVERS))
    del several["server_list"][1]["device"][0]["device_ip"]
    assert any(problem.startswith("R8: a device has no device_ip") for problem in check_table(several))
    assert any(problem.startswith("R9: 4 devices") for problem in check_table(make_table(SERVERS), 8))
    box = make_table([("10.0.0.1", [f"192.168.1.{number}" for number in range(1, 5)])])
    for place, device in enumerate(box["server_list"][0]["device"]):
        device["device_id"] = str(place + 2)
    assert any(problem.startswith("R12: devices [2, 3, 4, 5]") for problem in check_table(box))


def test_a_superpod_needs_every_server_once_and_super_device_ids() -> None:
    table = make_table(SERVERS, "1.2")
    table["super_pod_list"][0]["server_list"].pop()
    del table["server_list"][0]["device"][0]["super_device_id"]
    assert [problem[:4] for problem in check_table(table)] == ["R11:", "R11:"]


def test_comments_bad_json_and_differing_copies_are_named(tmp_path: Path) -> None:
    file, copy_of_it = tmp_path / "hccl.json", tmp_path / "other.json"
    text = json.dumps(make_table(SERVERS), indent=1)
    file.write_text(text.replace('"status"', '// state\n "status"'))
    assert check_file(file) == ["R1: the file has // comments, which JSON has not; delete them"]
    file.write_text(text[:-5])
    assert check_file(file)[0].startswith("R1: no valid JSON")
    file.write_text(text)
    copy_of_it.write_text(text + "\n")
    assert check_file(file, 4, [copy_of_it]) == [f"R10: {copy_of_it}: differs; every node needs the same file"]


def test_the_command_makes_and_checks_one(tmp_path: Path, mindpretrain: RunCommand) -> None:
    made = mindpretrain("ranktable", "make", "10.0.0.1=192.168.1.8,192.168.1.9", "10.0.0.2=192.168.2.8,192.168.2.9")
    (tmp_path / "hccl.json").write_text(made.stdout)
    assert mindpretrain("ranktable", "check", tmp_path / "hccl.json", "--workers", 4).returncode == 0
    wrong = mindpretrain("ranktable", "check", tmp_path / "hccl.json", "--workers", 8)
    assert (wrong.returncode, "R9: 4 devices" in wrong.stderr) == (1, True)
    with pytest.raises(PipelineError, match=r"R8: device_ip 192\.168\.1\.8 stands twice"):
        make_table([("a", ["192.168.1.8"]), ("b", ["192.168.1.8"])])
