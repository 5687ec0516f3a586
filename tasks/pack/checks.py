"""What is checked of every dataset, and of one from elsewhere: sources well mixed, and eos at the ends of documents, not
after every line.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks.tokenizer import TokenIds

WINDOW = 1000
"""Sequences among which every source must be found in its share."""
LARGEST_DEVIATION = 6.0
"""In standard deviations of drawing without order; one in 500 million by chance."""
RARE = 20
"""A source with fewer sequences a window is not looked at: chance alone moves it too far."""
LINE_SHARE = 0.5
"""More documents of one line, if they are also shorter than 100 tokens, look like lines that were taken for documents."""
LINE_TOKENS, ENOUGH_DOCUMENTS = 100, 20


def check_model(config: RunConfig, tokens: int) -> None:
    """Refuse a model whose embedding has fewer rows than the vocabulary.

    Raises:
        PipelineError: it has.
    """
    size = config.model.vocab_size
    if size is not None and size < tokens:
        raise PipelineError(
            f"model.vocab_size: {size} is less than the tokenizer's {tokens} tokens: larger ids would read memory that is "
            "not the embedding's; leave it out, or write at least that"
        )


@dataclass(frozen=True)
class EosFindings:
    """What stands between the eos of a dataset. `without_newline`: share of the whole documents that are one line."""

    tokens: int
    eos: int
    documents: int
    without_newline: float
    largest: int

    def problems(self, ids: TokenIds, max_eos_share: float) -> list[str]:
        """Return what is wrong, each with the mend."""
        found = []
        share = self.eos / max(1, self.tokens)
        if share > max_eos_share:
            found.append(
                f"{share:.1%} of the tokens are eos, one in {round(1 / share)}, more than {max_eos_share:.1%}: most often "
                "lines were taken for documents; write one eos after each document, not after each line"
            )
        if not self.eos and self.tokens:
            found.append(f"no eos (id {ids.eos}) among {self.tokens} tokens: documents run into one another")
        short = share * LINE_TOKENS > 1
        if short and self.documents >= ENOUGH_DOCUMENTS and self.without_newline > LINE_SHARE:
            found.append(
                f"{self.without_newline:.0%} of {self.documents} documents have no newline and {round(1 / share)} tokens on "
                "average: are they lines of documents? Write eos after each document alone"
            )
        if self.largest >= ids.vocab_size:
            found.append(
                f"token id {self.largest} is not in the vocabulary of {ids.vocab_size}: another tokenizer's data?"
            )
        return found


def examine(tokens: npt.NDArray[Any], ids: TokenIds, newline: npt.NDArray[np.bool_]) -> EosFindings:
    """Return what stands between the eos of a stream of ids. `newline`: for each id whether its text has a newline."""
    ends = np.flatnonzero(tokens == ids.eos)
    lines = np.cumsum(newline[np.minimum(tokens, newline.size - 1)])
    between = np.diff(lines[ends])
    one_line = int(np.count_nonzero(between == 0)) / max(1, between.size)
    return EosFindings(tokens.size, ends.size, between.size, one_line, int(tokens.max(initial=0)))


def newline_table(pieces: Sequence[bytes]) -> npt.NDArray[np.bool_]:
    return np.array([b"\n" in piece for piece in pieces], np.bool_)


def mixing_deviation(sources: npt.NDArray[np.uint16]) -> float:
    """Return by how many standard deviations the sequences of a source in a window differ most from its share.

    `sources`: the source of each sequence, in the order of the dataset. 0 with less than two windows, or one source.
    """
    windows = sources.size // WINDOW
    if windows < 2:
        return 0.0
    shares = np.bincount(sources) / sources.size
    worst = 0.0
    for source, share in enumerate(shares):
        if share * WINDOW >= RARE and share < 1:
            found = (sources[: windows * WINDOW] == source).reshape(windows, WINDOW).sum(axis=1)
            deviation = np.abs(found - share * WINDOW).max() / np.sqrt(WINDOW * share * (1 - share))
            worst = max(worst, float(deviation))
    return worst
