"""Tells people how a run ended, at the addresses that the configuration names."""

import logging
import os
from pathlib import Path

from configs.operation import NotifyConfig
from tasks.masking import mask

logger = logging.getLogger("mindpretrain")

VARIABLE = "MINDPRETRAIN_NOTIFY_URLS"


def addresses(config: NotifyConfig) -> list[str]:
    """Return where to tell: of the file that is named, and of the environment."""
    file = config.urls_file
    lines = Path(file).read_text(encoding="utf-8").splitlines() if file else []
    named = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return [*named, *os.environ.get(VARIABLE, "").split()]


def notify(config: NotifyConfig, title: str, text: str) -> bool:
    """Send a message to every address; return whether all took it. One that cannot be reached is logged, without secrets."""
    from apprise import Apprise  # takes a second to import, which only failures should wait for

    every_one = True
    for address in addresses(config):
        receiver = Apprise()
        taken = receiver.add(address) and bool(receiver.notify(title=title, body=mask(text)))
        if not taken:
            logger.warning("notify: %s: the message could not be sent", address.partition("://")[0] + "://...")
        every_one = every_one and taken
    return every_one
