"""Rank tables (hccl.json), for launches that still need one: which device of which server is which rank.

Checked by the rules R1 to R12. Sources: the HCCL user guide (versions 1.0 and 1.2) and mindformers' hccl_tools. All scalars
are text in such a file.
"""

import hashlib
import ipaddress
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from configs.errors import PipelineError

VERSIONS = {"1.0": "Atlas A2 and older", "1.2": "Atlas A3 SuperPoD"}
MAX_SERVER_ID = 63
HALF_BOX = 4
"""Devices 0 to 3 and 4 to 7 of an older box are two rings."""
BOXES = (8, 16)


def check_file(file: Path, workers: int | None = None, others: Sequence[Path] = ()) -> list[str]:
    """Return what is wrong with a rank table, each problem with its rule. `workers`: as many devices are wanted; `others`:
    the same table on other nodes.

    Raises:
        PipelineError: the file cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
        copies = {other: other.read_bytes() for other in others}
    except OSError as error:
        raise PipelineError(f"{error.filename}: cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(text.encode()).hexdigest()
    differing = [str(other) for other, content in copies.items() if hashlib.sha256(content).hexdigest() != digest]
    found = [f"R10: {', '.join(differing)}: differs; every node needs the same file"] if differing else []
    if re.search(r"^\s*//|\s//\s", text, re.MULTILINE):
        return [*found, "R1: the file has // comments, which JSON has not; delete them"]
    try:
        table = json.loads(text)
    except ValueError as error:
        return [*found, f"R1: no valid JSON: {error}"]
    if not isinstance(table, dict) or not isinstance(table.get("server_list"), list):
        return [*found, "R1: expected an object with server_list"]
    return [*found, *check_table(table, workers)]


def check_table(table: dict[str, Any], workers: int | None = None) -> Iterator[str]:
    """Yield what is wrong with a rank table."""
    servers = [server for server in table["server_list"] if isinstance(server, dict)]
    devices = [(server, device) for server in servers for device in server.get("device", [])]
    yield from _not_text(table, servers)
    if table.get("status") != "completed":
        yield f"R2: status is {table.get('status')!r}, expected 'completed': the table is not finished"
    if table.get("version") not in VERSIONS:
        kinds = ", ".join(f"{version} ({kind})" for version, kind in VERSIONS.items())
        yield f"R3: version is {table.get('version')!r}, expected one of {kinds}"
    if str(table.get("server_count")) != str(len(servers)):
        yield f"R4: server_count is {table.get('server_count')!r}, but server_list has {len(servers)}"
    yield from _servers(servers)
    yield from _ranks(servers, devices)
    yield from _device_ids(servers)
    yield from _device_addresses(servers, devices)
    if workers is not None and len(devices) != workers:
        yield f"R9: {len(devices)} devices, but data x tensor x pipeline x context is {workers}"
    yield from _pods(table, servers)
    yield from _rings(servers)


def make_table(servers: Sequence[tuple[str, Sequence[str]]], version: str = "1.0") -> dict[str, Any]:
    """Return a rank table. `servers`: address and the addresses of its devices, in the order of the ranks.

    Raises:
        PipelineError: what would be wrong with it.
    """
    rank = 0
    listed = []
    for server, addresses in servers:
        devices = []
        for number, address in enumerate(addresses):
            device = {"device_id": str(number), "device_ip": address, "rank_id": str(rank)}
            devices.append(device | ({"super_device_id": str(rank)} if version == "1.2" else {}))
            rank += 1
        own = {"host_nic_ip": "reserve"} if version == "1.0" else {"host_ip": server}
        listed.append({"server_id": server, **own, "device": devices})
    table: dict[str, Any] = {
        "version": version,
        "server_count": str(len(listed)),
        "server_list": listed,
        "status": "completed",
    }
    if version == "1.2":
        pod = {"super_pod_id": "0", "server_list": [{"server_id": server} for server, _ in servers]}
        table["super_pod_list"] = [pod]
    if problems := list(check_table(table)):
        raise PipelineError("\n  ".join(["ranktable make: the table would be wrong:", *problems]))
    return table


def _not_text(table: dict[str, Any], servers: list[dict[str, Any]]) -> Iterator[str]:
    scalars = [(name, table.get(name)) for name in ("version", "server_count", "status")]
    scalars += [("server_id", server.get("server_id")) for server in servers]
    devices = [device for server in servers for device in server.get("device", [])]
    scalars += [(name, device.get(name)) for device in devices for name in ("device_id", "rank_id", "device_ip")]
    wrong = [(name, value) for name, value in scalars if value is not None and not isinstance(value, str)]
    if wrong:
        name, value = wrong[0]
        yield f'R6: {name} is the number {value}, expected text: "{value}" ({len(wrong)} such values)'


def _servers(servers: list[dict[str, Any]]) -> Iterator[str]:
    names = [str(server.get("server_id", "")) for server in servers]
    if twice := _repeated(names):
        yield f"R5: server_id {twice} stands twice; each node needs its own"
    long = [name for name in names if not name or len(name) > MAX_SERVER_ID]
    if long:
        yield f"R5: server_id {long[0]!r}: expected 1 to {MAX_SERVER_ID} characters"


def _ranks(servers: list[dict[str, Any]], devices: list[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[str]:
    ranks = [_whole(device.get("rank_id")) for _, device in devices]
    if sorted(rank for rank in ranks if rank is not None) != list(range(len(devices))):
        twice = _repeated([str(rank) for rank in ranks])
        what = f"rank_id {twice} stands twice" if twice else "the rank_ids have gaps, or are no numbers"
        yield f"R6: {what}; expected 0 to {len(devices) - 1}, each once (a table of one node begins at 0 again)"
        return
    for server in servers:
        own = [int(device["rank_id"]) for device in server.get("device", [])]
        if own != list(range(own[0], own[0] + len(own))) if own else False:
            yield f"R6: the ranks of {server.get('server_id')} are {own}; expected consecutive ones"


def _device_ids(servers: list[dict[str, Any]]) -> Iterator[str]:
    for server in servers:
        ids = [_whole(device.get("device_id")) for device in server.get("device", [])]
        wrong = [number for number in ids if number is None or number >= BOXES[-1]]
        twice = _repeated([str(number) for number in ids])
        if wrong or twice:
            what = f"device_id {twice} stands twice" if twice else f"device_id {wrong[0]} is none"
            yield f"R7: {server.get('server_id')}: {what}; expected different ones from 0 to {BOXES[-1] - 1}"


def _device_addresses(
    servers: list[dict[str, Any]], devices: list[tuple[dict[str, Any], dict[str, Any]]]
) -> Iterator[str]:
    addresses = [str(device.get("device_ip", "")) for _, device in devices]
    given = [address for address in addresses if address]
    if len(servers) > 1 and len(given) < len(addresses):
        yield "R8: a device has no device_ip, which several nodes need; see /etc/hccn.conf or `hccn_tool -i 0 -ip -g`"
    if twice := _repeated(given):
        yield f"R8: device_ip {twice} stands twice; each device has its own"
    for address in given:
        try:
            loopback = ipaddress.ip_address(address).is_loopback
        except ValueError:
            yield f"R8: device_ip {address!r} is no address"
            return
        if loopback:
            yield f"R8: device_ip {address} is the node itself; write that of the device (`hccn_tool -i 0 -ip -g`)"
            return


def _pods(table: dict[str, Any], servers: list[dict[str, Any]]) -> Iterator[str]:
    if table.get("version") != "1.2":
        return
    placed = [str(server.get("server_id")) for pod in table.get("super_pod_list", []) for server in pod["server_list"]]
    if sorted(placed) != sorted(str(server.get("server_id")) for server in servers):
        yield "R11: super_pod_list must have every server once"
    if any("super_device_id" not in device for server in servers for device in server.get("device", [])):
        yield "R11: a device has no super_device_id, which version 1.2 needs"


def _rings(servers: list[dict[str, Any]]) -> Iterator[str]:
    if len(servers) != 1:
        return
    ids = [number for device in servers[0].get("device", []) if (number := _whole(device.get("device_id"))) is not None]
    halves = {number // HALF_BOX for number in ids}
    if len(ids) > 1 and len(ids) not in BOXES and len(halves) > 1:
        yield f"R12: devices {ids} lie in both halves of a box; use 0 to 3, 4 to 7, or all"


def _repeated(values: Sequence[str]) -> str | None:
    return next((value for value, count in Counter(values).items() if count > 1), None)


def _whole(value: Any) -> int | None:
    return int(value) if str(value).isdigit() else None
