"""What the doctor sees of a machine, and of one that has been broken on purpose."""

import socket
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tasks.train import doctor, installed, msrun
from tasks.train.doctor import Check, examine
from tests.conftest import MakeConfig, RunCommand


def named(checks: list[Check], name: str) -> list[Check]:
    return [check for check in checks if check.name == name]


def test_this_environment_is_sound(mindpretrain: RunCommand) -> None:
    """With the small training in a process of its own, and the one pin that is overridden on purpose."""
    done = mindpretrain("doctor", "configs/demo.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "ok   versions: mindformers 1.9.0, mindspore 2.9.0",
        "ok   pins: mindformers asks for pyarrow==19.0.0",
        "ok   tiny training: forward and backward pass",
        "ok   disk: 3 checkpoints",
        "ok   aimv2:",
    ):
        assert said in done.stdout


def test_a_package_that_registers_aimv2_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a package is made here: metadata that asks for transformers, and a module that registers the name."""
    (tmp_path / "guest").mkdir()
    (tmp_path / "guest" / "__init__.py").write_text('AutoConfig.register("aimv2", Own)\n')
    metadata = tmp_path / "guest-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: guest\nVersion: 1.0\nRequires-Dist: transformers\n"
    )
    (metadata / "RECORD").write_text("guest/__init__.py,,\nguest-1.0.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert any(found.metadata["Name"] == "guest" for found in distributions())
    (check,) = list(doctor._name_conflicts())
    assert (check.status, "guest 1.0 registers aimv2" in check.found) == ("fail", True)
    assert "it is no name of your configuration" in check.found


def test_a_taken_port_and_hosts_that_cannot_be_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        monkeypatch.setattr(doctor, "MASTER_PORT", other.getsockname()[1])
        assert doctor._port().status == "fail"
    monkeypatch.setattr(doctor, "MASTER_PORT", msrun.free_port())
    assert doctor._port().status == "ok"
    (unknown,) = list(doctor._hosts(["no-such-host.invalid"]))
    assert (unknown.status, "cannot be resolved" in unknown.found) == ("fail", True)
    (same,) = list(doctor._hosts(["localhost", "127.0.0.1"]))
    assert (same.status, "named twice" in same.found) == ("fail", True)


def test_a_workspace_that_a_host_does_not_see_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ssh is a script here that runs the command on this machine, or, for the host `blind`, nowhere."""
    script = tmp_path / "bin" / "ssh"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\nshift 4\n[ "$1" = blind ] && exit 1\nshift\nexec "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
    workspace = tmp_path / "runs"
    assert doctor._shared_folder(workspace, ["a", "b"]).status == "ok"
    seen = doctor._shared_folder(workspace, ["a", "blind"])
    assert (seen.status, seen.found.startswith("blind do not see")) == ("fail", True)
    assert list(workspace.iterdir()) == []


def test_too_little_disk_for_the_checkpoints_is_named(make_config: MakeConfig) -> None:
    config = make_config(model={"preset": "llama2-13b"}, pretrain={"keep_checkpoints": 500})
    found = doctor._disk(config)
    assert (found.status, "500 checkpoints" in found.found) == ("fail", True)


def test_ascend_without_a_device_is_named_before_anything_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_tiny_training", lambda device: Check("tiny training", "ok", device))
    (devices,) = named(list(examine(None, [], "Ascend")), "devices")
    assert (devices.status, "no Ascend device" in devices.found) == ("fail", True)


def test_a_class_name_of_mindformers_is_found_in_its_registry() -> None:
    assert installed.class_file("MFTrainOneStepCell") == "wrapper/wrapper.py"
    assert installed.class_file("StepRecorder") is None
