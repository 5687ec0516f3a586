"""The pages that people look at, in a real browser at desk and phone width."""

from pathlib import Path

import pytest

from tasks.local_server import LocalServer
from tests.conftest import RunCommand
from tests.flows.conftest import write_config
from tests.flows.test_pretrain import last_flow_run
from tests.screenshots import CHROMIUM, WIDTHS, look, open_browser

HARMLESS = "Failed to load resource: net::ERR_"  # the UI asks for fonts and news outside, which are not reached


@pytest.mark.slow
def test_run_page_artifacts_and_report(mindpretrain: RunCommand, server: LocalServer, tmp_path: Path) -> None:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed (Debian: chromium, fonts-noto-cjk)")
    config = write_config(tmp_path, pack={"seq_length": 64, "tokenizer": {"vocab_size": 800}, "held_out_share": 0.2})
    assert mindpretrain("run", config).returncode == 0
    run = last_flow_run(server)
    (report,) = (tmp_path / "runs" / "records").glob("*.html")
    pages = {
        "run": (f"{server.ui}/runs/flow-run/{run['id']}", ("pretrain: Completed", "Artifacts")),
        "artifacts": (f"{server.ui}/artifacts", ("pack-samples", "pretrain-curves", "dedup-removed")),
        "curves": (f"{server.ui}/artifacts/key/pretrain-curves", ("loss, nats a token",)),
        "samples": (f"{server.ui}/artifacts/key/pack-samples", ("end of document",)),
        "report": (f"file://{report}", ("从原始文档到词元", "Training: pretrain", "completed", "困惑度")),
    }
    with open_browser() as browser:
        for name, (url, expected) in pages.items():
            for found in look(browser, url, expected, tmp_path / "pictures" / f"{name}.png"):
                assert found.missing == (), f"{name} at {found.width}"
                assert [error for error in found.errors if HARMLESS not in error] == [], f"{name} at {found.width}"
                assert found.sticks_out == 0, f"{name} at {found.width}"
    assert len(list((tmp_path / "pictures").iterdir())) == len(pages) * len(WIDTHS)
