"""Plain text out of an artifact: one paragraph a line, a blank line between documents, as tools for corpora expect it.

Lines that only wrap a paragraph are joined, with a space except between Chinese characters and marks. Lines of code,
tables, lists and formulas stay lines of their own.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from configs.errors import PipelineError
from tasks.artifact import Artifact, read_manifest
from tasks.blocks import HEADING, PARAGRAPH, scan_blocks
from tasks.code_points import code_points
from tasks.documents import read_table
from tasks.files import atomic_path

FIRST_CJK = "\u2e80"


def export_text(artifact: Path, target: Path | None) -> int:
    """Write an artifact of documents or chunks as plain text, to standard output without `target`; return the documents.

    Raises:
        PipelineError: the artifact holds no text.
    """
    opened = Artifact(artifact, read_manifest(artifact))
    if opened.manifest.stage not in ("normalize", "dedup", "filter", "chunk"):
        raise PipelineError(
            f"{artifact}: a {opened.manifest.stage} artifact holds no text; give one of chunk or before"
        )
    if target is None:
        return sum(sys.stdout.write(f"{text}\n\n") > 0 for text in _documents(opened))
    documents = 0
    with atomic_path(target) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for text in _documents(opened):
            stream.write(f"{text}\n\n")
            documents += 1
    return documents


def one_paragraph_a_line(text: str) -> str:
    """Return a text with the lines of each paragraph joined, and no blank lines."""
    lines: list[str] = []
    for start, end, kind, _ in scan_blocks(code_points(text)).tolist():
        block = [line.strip() if kind in (HEADING, PARAGRAPH) else line for line in text[start:end].split("\n")]
        block = [line for line in block if line.strip()]
        lines += [_joined(block)] if kind == PARAGRAPH else block
    return "\n".join(lines)


def _joined(lines: list[str]) -> str:
    joined = ""
    for line in lines:
        between = "" if not joined or min(joined[-1], line[0]) >= FIRST_CJK else " "
        joined += between + line
    return joined


def _documents(artifact: Artifact) -> Iterator[str]:
    """Yield each document as plain text; chunks are put together again."""
    for path in artifact.shards:
        if artifact.manifest.stage != "chunk":
            yield from map(one_paragraph_a_line, read_table(path, ["text"])["text"].to_pylist())
            continue
        parts: list[str] = []
        for row in read_table(path, ["text", "last"]).to_pylist():
            parts.append(row["text"])
            if row["last"]:
                yield one_paragraph_a_line("".join(parts))
                parts = []
