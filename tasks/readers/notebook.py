"""Jupyter notebooks: text cells as they are, code cells as fences; outputs go."""

from collections.abc import Iterator
from typing import Any

import orjson

from tasks.encoding import decode
from tasks.readers.records import BadRecord, Content, Record, read_all


def read_notebook(content: Content) -> Record | BadRecord:
    """Return the cells of a notebook as one Markdown text.

    Raises:
        UnknownEncodingError, TooLargeError
    """
    decoded = decode(read_all(content))
    try:
        notebook = orjson.loads(decoded.text)
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        return Record("", "\n\n".join(_cells(notebook["cells"], language)), dict(decoded.meta))
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        return BadRecord("", "damaged_notebook", f"it is no notebook of format 4: {error}")


def _cells(cells: list[dict[str, Any]], language: str) -> Iterator[str]:
    for cell in cells:
        source = cell["source"]
        text = ("".join(source) if isinstance(source, list) else source).strip("\n")
        if text.strip():
            yield text if cell["cell_type"] != "code" else f"```{language}\n{text}\n```"
