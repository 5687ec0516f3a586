"""Looks at pages in a real browser: `python -m tests.screenshots FOLDER NAME=URL...` keeps pictures of them at desk and
phone width. The tests use `look` to find errors in the console, texts that are missing, and what sticks out of the page.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, TimeoutError, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
WIDTHS = (1400, 390)
HEIGHT = 900
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
WAIT_MILLISECONDS = 20_000


@dataclass(frozen=True)
class Look:
    """What a page was like at one width (pixels). `sticks_out`: by how many pixels it is wider than the window."""

    width: int
    errors: tuple[str, ...]
    missing: tuple[str, ...]
    sticks_out: int
    picture: Path


@contextmanager
def open_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


def look(browser: Browser, url: str, expected: Sequence[str], picture: Path) -> list[Look]:
    """Return what the page is like at each width; its pictures are `picture` with the width in their names."""
    return [_look_at(browser, url, expected, picture, width) for width in WIDTHS]


def _look_at(browser: Browser, url: str, expected: Sequence[str], picture: Path, width: int) -> Look:
    page = browser.new_page(viewport={"width": width, "height": HEIGHT})
    errors: list[str] = []
    page.on("console", lambda message: errors.append(_described(message)) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url, wait_until="load")
    missing = []
    for text in expected:
        try:
            page.get_by_text(text).first.wait_for(timeout=WAIT_MILLISECONDS, state="attached")
        except TimeoutError:
            missing.append(text)
    page.wait_for_timeout(1000)
    beyond = page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth")
    target = picture.with_name(f"{picture.stem}-{width}.png")
    target.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(target), full_page=True)
    page.close()
    return Look(width, tuple(errors), tuple(missing), max(0, int(beyond)), target)


def _described(message: ConsoleMessage) -> str:
    return f"{message.text} {message.location.get('url', '')}".strip()


def main(folder: Path, pages: Sequence[str]) -> None:
    with open_browser() as browser:
        for entry in pages:
            name, _, url = entry.partition("=")
            for found in look(browser, url, (), folder / f"{name}.png"):
                print(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
