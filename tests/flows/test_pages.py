"""The pages that people look at, in a real browser at desk and phone width."""

from pathlib import Path

import pytest

from tasks.local_server import LocalServer
from tests.conftest import RunCommand
from tests.flows.conftest import write_config
from tests.flows.operator import Operator
from tests.flows.test_pretrain import last_flow_run
from tests.screenshots import CHROMIUM, WIDTHS, look, open_browser

HARMLESS = ("net::ERR_", "/favicon.ico", "/ico/undefined.svg")
"""What Prefect's own page asks for and does not get: fonts and news from outside, and two icons that it does not have."""


@pytest.mark.slow
def test_run_page_artifacts_and_report(mindpretrain: RunCommand, server: LocalServer, tmp_path: Path) -> None:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed (Debian: chromium, fonts-noto-cjk)")
    config = write_config(tmp_path, pack={"seq_length": 64, "tokenizer": {"vocab_size": 800}, "held_out_share": 0.2})
    assert mindpretrain("run", config).returncode == 0
    run = last_flow_run(server)
    (report,) = (tmp_path / "runs" / "records").glob("*.html")
    shown = Operator(server).artifacts(run["id"])
    pages = {
        "run": (f"{server.ui}/runs/flow-run/{run['id']}", ("raw files: 28", "Completed")),
        "artifacts": (f"{server.ui}/artifacts", ("pack-samples", "pretrain-curves", "dedup-removed")),
        "curves": (shown["pretrain-curves"], ("loss, nats a token",)),
        "samples": (shown["pack-samples"], ("end of document",)),
        "report": (f"file://{report}", ("从原始文档到词元", "Training: pretrain", "completed", "困惑度")),
    }
    problems = []
    with open_browser() as browser:
        for name, (url, expected) in pages.items():
            for found in look(browser, url, expected, tmp_path / "pictures" / f"{name}.png"):
                wrong = [error for error in found.errors if not any(known in error for known in HARMLESS)]
                if found.missing or wrong or found.sticks_out:
                    problems.append((name, found.width, found.missing, wrong, found.sticks_out))
    assert problems == []
    assert len(list((tmp_path / "pictures").iterdir())) == len(pages) * len(WIDTHS)
