"""A real webhook hears of a failure; an address that cannot be reached is said without its secrets."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from configs.operation import NotifyConfig
from tasks.notify import VARIABLE, addresses, notify

HEARD: list[dict[str, str]] = []


class Webhook(BaseHTTPRequestHandler):
    """Remembers what it is sent."""

    def do_POST(self) -> None:
        HEARD.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Webhook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


def test_a_webhook_hears_of_it(port: int, tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    file.write_text(f"# the team's channel\njson://127.0.0.1:{port}/hook\n", encoding="utf-8")
    assert notify(NotifyConfig(urls_file=str(file)), "pretrain demo: Failed", "损失突跳, password=abc12345")
    assert HEARD[-1]["title"] == "pretrain demo: Failed"
    assert HEARD[-1]["message"] == "损失突跳, password=***"


def test_addresses_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "json://one mailto://two")
    assert addresses(NotifyConfig()) == ["json://one", "mailto://two"]


def test_an_address_that_cannot_be_reached_is_said_without_secrets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "json://user:secret99@127.0.0.1:9/hook")
    with caplog.at_level(logging.WARNING, "mindpretrain"):
        assert not notify(NotifyConfig(), "title", "text")
    assert "json://...: the message could not be sent" in caplog.text
    assert "secret99" not in "".join(record.message for record in caplog.records if record.name == "mindpretrain")


def test_nobody_is_told_where_nobody_is_named() -> None:
    assert notify(NotifyConfig(), "title", "text")
