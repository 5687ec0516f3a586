"""HTML pages to the Markdown of their main text: headings stay headings, code stays code, navigation goes.

The extraction is trafilatura's. Its list of what to keep decides, so its version is in normalize's key.
"""

import re

import trafilatura
from trafilatura.settings import use_config

from tasks.encoding import decode
from tasks.readers.records import BadRecord, Content, Record, read_all

PAGE = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
DECLARED = re.compile(rb"<meta[^>]+charset=[\"']?([A-Za-z0-9_-]+)", re.IGNORECASE)
# Marks that trafilatura escapes and that are text in Chinese technical prose.
ESCAPED = re.compile(r"\\([_~*#\[\]])")

# Elements that say what they are; without this, pages with little text come with their menus.
NAVIGATION = ["//nav", "//footer", "//*[@role='navigation']", "//*[@role='contentinfo']", "//form"]

SETTINGS = use_config()
SETTINGS.set("DEFAULT", "EXTRACTION_TIMEOUT", "0")  # its alarm signal works in the main thread alone
SETTINGS.set("DEFAULT", "MAX_TREE_SIZE", "100000")


def is_page(text: str) -> bool:
    """Tell whether a text is an HTML page, wherever it came from."""
    return PAGE.match(text[:4096]) is not None


def read_html(content: Content) -> Record | BadRecord:
    """Return the main text of an HTML file.

    Raises:
        UnknownEncodingError, TooLargeError
    """
    data = read_all(content)
    decoded = decode(data)
    main = main_text(decoded.text)
    if main is None:
        return BadRecord("", "no_main_text", "the page has no main text: only navigation, scripts or forms")
    return Record("", main, dict(decoded.meta))


def main_text(page: str) -> str | None:
    """Return the main text of a page as Markdown, None if it has none."""
    found = trafilatura.extract(
        page,
        output_format="markdown",
        include_comments=False,
        include_tables=True,
        include_links=False,
        include_formatting=True,
        favor_recall=True,
        prune_xpath=NAVIGATION,
        config=SETTINGS,
    )
    return ESCAPED.sub(r"\1", found) if found else None
