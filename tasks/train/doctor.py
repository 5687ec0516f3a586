"""Looks at the machine before a training is planned on it: versions, devices, network, disk. Each check says what it found
and what to change; none of them changes anything.
"""

import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distributions, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from configs.errors import PipelineError
from configs.schema import RunConfig
from configs.sizes import show_size
from tasks.train import installed
from tasks.train.failures import first_cause
from tasks.train.memory import count_parameters
from tasks.train.msrun import MASTER_PORT, environment
from tasks.train.versions import Status, check_versions

OVERRIDDEN = {"pyarrow": "mindformers' own 19.0 cannot read newer Parquet"}
"""Pins of mindformers that the lock file departs from, and why."""
AIMV2_SINCE = (4, 54)
CANN_FILES = ("version.cfg", "ascend_toolkit_install.info", "version.info")
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
OPTIMIZER_BYTES = 12
"""A checkpoint's bytes a parameter: fp32 weights and two moments."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    found: str
    mend: str = ""


def examine(config: RunConfig | None, hosts: Sequence[str], device: str) -> Iterator[Check]:
    """Yield what each check found. `config`: also look at the room for its checkpoints, and its workspace on all hosts."""
    yield _versions()
    yield from _pins()
    yield from _name_conflicts()
    yield _registry()
    yield _devices(device)
    yield _overflow_mode(device)
    yield _tiny_training(device)
    yield _port()
    yield from _hosts(hosts)
    if config is not None:
        yield _disk(config)
        if hosts:
            yield _shared_folder(Path(config.workspace), hosts)


def _versions() -> Check:
    found = check_versions(version("mindspore"), version("mindformers"), platform.python_version(), _cann_version())
    cann = _cann_version()
    return Check("versions", found.status, found.text + (f", CANN {cann}" if cann else "; no CANN here"))


def _cann_version() -> str:
    home = os.environ.get("ASCEND_HOME_PATH") or os.environ.get("ASCEND_TOOLKIT_HOME")
    for name in CANN_FILES if home else ():
        file = Path(str(home)) / name
        if file.is_file() and (
            found := re.search(r"(?im)^\s*(?:toolkit_)?version\s*=\s*\[?([\w.]+)", file.read_text())
        ):
            return found[1]
    return ""


def _pins() -> Iterator[Check]:
    """Compare what mindformers asks for with what is installed."""
    for text in requires("mindformers") or []:
        asked = Requirement(text)
        if asked.marker is not None and not asked.marker.evaluate():
            continue
        try:
            found = version(asked.name)
        except PackageNotFoundError:
            yield Check(
                "pins", "fail", f"mindformers asks for {asked}, which is not installed", "install requirements.lock"
            )
            continue
        if not asked.specifier.contains(found, prereleases=True):
            reason = OVERRIDDEN.get(asked.name)
            status: Status = "ok" if reason else "warn"
            said = f"mindformers asks for {asked}, found {found}" + (f" (on purpose: {reason})" if reason else "")
            yield Check("pins", status, said, "" if reason else f"install {asked}")


def _name_conflicts() -> Iterator[Check]:
    """Find packages that register a name with transformers which transformers has itself."""
    transformers = version("transformers")
    known = tuple(int(part) for part in transformers.split(".")[:2]) >= AIMV2_SINCE
    guilty = [name for name in _packages_on("transformers") if _registers(name, "aimv2")] if known else []
    for name in guilty:
        yield Check(
            "aimv2",
            "fail",
            f"{name} {version(name)} registers aimv2 with transformers {transformers}, which has it itself: importing it "
            "ends with «'aimv2' is already used by a Transformers config, pick another name»; it is no name of your "
            "configuration",
            f"upgrade {name}, or install it elsewhere",
        )
    if not guilty:
        yield Check("aimv2", "ok", f"no package registers a name that transformers {transformers} has")


def _packages_on(name: str) -> list[str]:
    def needs(found: Distribution) -> bool:
        return any(re.match(rf"{name}\b", text) for text in found.requires or [])

    return sorted({found.metadata["Name"] for found in distributions() if needs(found)})


def _registers(package: str, model: str) -> bool:
    files = next((found.files for found in distributions() if found.metadata["Name"] == package), None) or []
    pattern = re.compile(rf"register\(\s*['\"]{model}['\"]")
    sources = [Path(str(file.locate())) for file in files if file.suffix == ".py"]
    return any(pattern.search(source.read_text("utf-8", "replace")) for source in sources if source.is_file())


def _registry() -> Check:
    """mindformers' registry takes a second class of a name in silence."""
    twice = installed.registered_names()
    taken = [name for name in installed.OWN_CLASSES if installed.class_file(name)]
    if twice or taken:
        names = [*twice, *taken]
        return Check(
            "registry", "warn", f"two classes are registered as {', '.join(names)}: the last one wins", "rename yours"
        )
    return Check("registry", "ok", "no class name is registered twice")


def _devices(device: str) -> Check:
    if device == "CPU":
        return Check("devices", "ok", f"CPU: {len(os.sched_getaffinity(0))} cores")
    found = sorted(Path("/dev").glob("davinci[0-9]*"))
    if not found:
        return Check(
            "devices", "fail", "no Ascend device (/dev/davinci*)", "install the driver, or pass the devices in"
        )
    tool = shutil.which("npu-smi")
    listed = subprocess.run([tool, "info"], capture_output=True, text=True, check=False).stdout if tool else ""
    busy = re.findall(r"\|\s+\d+\s+\d+\s+\|\s+(\d+)\s+\|", listed)
    said = f"{len(found)} Ascend devices" + (f"; processes on them: {', '.join(busy)}" if busy else "")
    return Check("devices", "warn" if busy else "ok", said, "end what occupies them" if busy else "")


def _overflow_mode(device: str) -> Check:
    mode = os.environ.get("MS_ASCEND_CHECK_OVERFLOW_MODE", "")
    if device == "CPU":
        return Check("overflow", "ok", "CPU computes with infinities and NaN")
    if mode == "SATURATION_MODE":
        return Check(
            "overflow", "warn", "saturation: no NaN proves nothing", "export MS_ASCEND_CHECK_OVERFLOW_MODE=INFNAN_MODE"
        )
    return Check("overflow", "ok", f"{mode or 'INFNAN_MODE, the default of A2 and A3'}; 910A knows saturation alone")


def _tiny_training(device: str) -> Check:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "tiny.log"
        with log.open("wb") as output:
            command = [sys.executable, "-m", "tasks.train.tiny", device, folder]
            done = subprocess.run(command, env=environment(), stdout=output, stderr=output, check=False, timeout=300)
        if done.returncode:
            return Check("tiny training", "fail", first_cause([log], done.returncode).text, "mend this first")
    return Check("tiny training", "ok", f"forward and backward pass of a small network on {device}")


def _port() -> Check:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", MASTER_PORT))  # noqa: S104 - as msrun's master does
        except OSError as error:
            return Check("port", "fail", f"{MASTER_PORT}: {error.strerror}", "end what listens there")
    return Check("port", "ok", f"{MASTER_PORT} is free for the master")


def _hosts(hosts: Sequence[str]) -> Iterator[Check]:
    addresses: dict[str, str] = {}
    for host in hosts:
        try:
            addresses[host] = socket.gethostbyname(host)
        except OSError as error:
            yield Check(
                "hosts", "fail", f"{host} cannot be resolved: {error}", "add it to /etc/hosts or DNS on every host"
            )
    twice = [name for name, count in Counter(hosts).items() if count > 1]
    same = [address for address, count in Counter(addresses.values()).items() if count > 1]
    if twice or same:
        yield Check(
            "hosts", "fail", f"{(twice or same)[0]} is named twice", "give each host a name and an address of its own"
        )
    elif hosts and len(addresses) == len(hosts):
        yield Check("hosts", "ok", f"{len(hosts)} hosts with names and addresses of their own")


def _disk(config: RunConfig) -> Check:
    rows = config.model.vocab_size or config.pack.tokenizer.vocab_size
    one = count_parameters(config.model, rows).total * OPTIMIZER_BYTES
    wanted = one * (config.pretrain.keep_checkpoints + 1)
    folder = Path(config.workspace).absolute()
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    said = f"{config.pretrain.keep_checkpoints} checkpoints and one more while it is written: {show_size(wanted)}; "
    said += f"{place} has {show_size(free)}"
    return Check(
        "disk", "ok" if free > wanted else "fail", said, "" if free > wanted else "lower pretrain.keep_checkpoints"
    )


def _shared_folder(workspace: Path, hosts: Sequence[str]) -> Check:
    """Write a word into the workspace and read it from every host, over ssh."""
    workspace.mkdir(parents=True, exist_ok=True)
    word, file = secrets.token_hex(8), workspace.absolute() / f".seen-by-all-{os.getpid()}"
    file.write_text(word, encoding="utf-8")
    try:
        blind = [host for host in hosts if _read_there(host, file) != word]
    except FileNotFoundError:
        return Check("shared folder", "warn", "ssh is not installed, so it was not looked at", "install ssh")
    finally:
        file.unlink()
    if blind:
        return Check(
            "shared folder",
            "fail",
            f"{', '.join(blind)} do not see {workspace.absolute()} (or do not let ssh in without a password)",
            "put the workspace on storage that all hosts have under the same path",
        )
    return Check("shared folder", "ok", f"{workspace.absolute()} is seen from {len(hosts)} hosts")


def _read_there(host: str, file: Path) -> str:
    done = subprocess.run([*SSH, host, "cat", str(file)], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip()


def raise_if_failed(checks: Sequence[Check]) -> None:
    """Raise what failed.

    Raises:
        PipelineError: a check failed.
    """
    failed = [check for check in checks if check.status == "fail"]
    if failed:
        raise PipelineError(f"doctor: {len(failed)} of {len(checks)} checks failed")
