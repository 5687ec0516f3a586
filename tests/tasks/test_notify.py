"""A real webhook hears of a failure; an address that cannot be reached is said without its secrets."""

import logging
from pathlib import Path

import pytest

from configs.operation import NotifyConfig
from tasks.notify import VARIABLE, addresses, notify
from tests.conftest import Webhook


def test_a_webhook_hears_of_it(webhook: Webhook, tmp_path: Path) -> None:
    file = tmp_path / "addresses"
    file.write_text(f"# the team's channel\n{webhook.address}\n", encoding="utf-8")
    assert notify(NotifyConfig(urls_file=str(file)), "pretrain demo: Failed", "损失突跳, password=abc12345")
    assert webhook.heard[-1]["title"] == "pretrain demo: Failed"
    assert webhook.heard[-1]["message"] == "损失突跳, password=***"


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
