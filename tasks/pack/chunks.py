"""Chunks as runs of tokens. Documents are tokenized whole, so a chunk's border lies between two characters; it is moved to
the nearest token border at or after it.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tasks.compiled import compiled
from tasks.documents import read_table
from tasks.pack.corpus import Corpus
from tasks.pack.plan import Indices, Runs
from tasks.pack.tokens import FOLDER
from tasks.tokenizer import open_tokenizer


def chunk_runs(corpus: Corpus, chunks: tuple[Path, ...]) -> Runs:
    """Return the chunks of every document in order, as runs of its tokens. `chunks`: one table a shard."""
    tokenizer = open_tokenizer(corpus.folder / FOLDER)
    controls = set(tokenizer.special_tokens.values())
    sizes = np.array([0 if n in controls else len(tokenizer.piece(n)) for n in range(tokenizer.vocab_size)], np.int64)
    parts = [_of_shard(corpus, shard, path, sizes) for shard, path in enumerate(chunks)]
    return Runs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _of_shard(corpus: Corpus, shard: int, path: Path, sizes: npt.NDArray[np.int64]) -> tuple[Indices, Indices, Indices]:
    table = read_table(path, ["text", "last"])
    last = table["last"].to_numpy()
    bytes_ = pc.cast(pc.binary_length(table["text"]), "int64").to_numpy()
    first, end = corpus.first_of_shard[shard], corpus.first_of_shard[shard + 1]
    # Documents without text have no chunk; the others have theirs in order.
    numbers = np.flatnonzero(corpus.lengths[first:end]) + first
    document = numbers[np.cumsum(last) - last]
    tokens = corpus.tokens(shard)
    starts = _token_borders(tokens, sizes, np.stack([document, bytes_]), corpus.offsets, corpus.lengths)
    ends = np.append(starts[1:], 0)
    ends[last] = corpus.lengths[document[last]]
    kept = ends > starts
    return document[kept], starts[kept], (ends - starts)[kept]


@compiled
def _token_borders(
    tokens: npt.NDArray[np.uint16],
    sizes: Indices,
    chunks: Indices,
    offsets: Indices,
    lengths: Indices,
) -> Indices:
    """Return for each chunk how many tokens of its document lie before it. `chunks`: document and bytes of each."""
    document, chunk_bytes = chunks
    starts = np.zeros(document.size, np.int64)
    before, wanted, token = 0, 0, 0
    for chunk in range(document.size):
        number = document[chunk]
        if chunk == 0 or number != document[chunk - 1]:
            before, wanted, token = 0, 0, 0
        else:
            wanted += chunk_bytes[chunk - 1]
            while before < wanted and token < lengths[number] - 1:
                before += sizes[tokens[offsets[number] + token]]
                token += 1
        starts[chunk] = token
    return starts
