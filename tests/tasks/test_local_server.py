"""The local server: on a free port, found again, and gone when it is stopped."""

import json
import socket
from pathlib import Path
from urllib.request import urlopen

import psutil

from tasks.local_server import HOST, ensure_server, free_port, is_healthy, running_server, stop_server


def test_a_taken_port_is_avoided() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) not in (port, 0)


def test_a_server_is_started_found_again_and_stopped(tmp_path: Path) -> None:
    server = ensure_server(tmp_path)
    try:
        assert is_healthy(server.api)
        assert ensure_server(tmp_path) == server
        assert (tmp_path / "prefect" / "prefect.db").is_file()
        listening = {c.laddr[:2] for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr}
        assert {address for address, port in listening if port == server.port} == {HOST}
        with urlopen(f"{server.ui}/ui-settings", timeout=10) as answer:
            assert json.load(answer)["api_url"] == server.api  # the page asks this server, not the default port
    finally:
        assert stop_server(tmp_path)
    assert running_server(tmp_path) is None
    assert not psutil.pid_exists(server.process)
    assert not stop_server(tmp_path)


def test_a_state_file_of_a_dead_server_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "server.json").write_text('{"process": 1, "started": 0.0, "port": 4200}')
    assert running_server(tmp_path) is None
    (tmp_path / "prefect" / "server.json").write_text("{")
    assert running_server(tmp_path) is None
