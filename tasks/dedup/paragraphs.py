"""Paragraphs that stand in several documents: licence notes, reader's notes, footers.

The first kept document that has one keeps it. Code, tables and headings are never taken out.
"""

import numpy as np
import numpy.typing as npt
import xxhash

from tasks.blocks import Block, split_blocks

Hashes = npt.NDArray[np.uint64]


def hash_text(text: str) -> bytes:
    """Return the XXH3-128 of a text with white space folded."""
    return xxhash.xxh3_128_digest(" ".join(text.split()).encode())


def long_paragraphs(text: str, min_characters: int) -> list[tuple[Block, int]]:
    """Return the paragraphs of at least `min_characters`, each with the lower 64 bits of its hash."""
    if not min_characters:
        return []
    return [
        (block, int.from_bytes(hash_text(text[block.start : block.end])[8:]))
        for block in split_blocks(text)
        if block.kind in ("paragraph", "list") and len(text[block.start : block.end].strip()) >= min_characters
    ]


def first_owners(hashes: Hashes, documents: npt.NDArray[np.int64]) -> dict[int, int]:
    """Return hash to the first document that has it, for paragraphs that more than one document has.

    `documents` is the document, ascending, of each paragraph; removed documents must be left out.
    """
    order = np.argsort(hashes, kind="stable")
    ordered, owners = hashes[order], documents[order]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if ordered.size else np.empty(0, bool)
    first = owners[begins]
    last = owners[np.concatenate([np.flatnonzero(begins)[1:], [ordered.size]]) - 1] if ordered.size else first
    shared = first != last
    return dict(zip(ordered[begins][shared].tolist(), first[shared].tolist(), strict=True))
