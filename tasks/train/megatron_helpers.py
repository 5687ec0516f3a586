"""What mindformers' Megatron loader compiles from C++ at its first use, with `make` and `g++` inside site-packages: which
tokens make a sample, and which dataset of a blend gives it. Here in NumPy, so that no compiler is needed and nothing is
written into the installation. Same arguments and results; the worker puts this module in the place of the compiled one.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.compiled import compiled


def build_sample_idx(  # noqa: PLR0913, PLR0917 - as it is called
    sizes: npt.NDArray[np.int32],
    document_index: npt.NDArray[np.int32],
    sequence_length: int,
    num_epochs: int,
    tokens_per_epoch: int,
    drop_last_partial_sequence: bool = True,
    add_extra_token_to_sequence: int = 1,
) -> npt.NDArray[np.int64]:
    """Return for each sample, and the end of the last, its first document (its place in `document_index`) and the token in
    it; shape (samples + 1, 2). A sample begins `sequence_length` tokens after the one before.
    """
    tokens = num_epochs * tokens_per_epoch - int(add_extra_token_to_sequence)
    samples = tokens // sequence_length if drop_last_partial_sequence else -(-tokens // sequence_length)
    lengths = sizes[document_index].astype(np.int64)
    ends = np.cumsum(lengths)
    places = np.minimum(np.arange(samples + 1) * sequence_length, ends[-1] - 1)
    document = np.searchsorted(ends, places, side="right")
    return np.stack([document, places - (ends - lengths)[document]], axis=1)


def build_blending_indices(  # noqa: PLR0913, PLR0917 - as it is called
    dataset_index: npt.NDArray[np.int16],
    dataset_sample_index: npt.NDArray[np.int64],
    weights: Any,
    num_datasets: int,
    size: int,
    verbose: bool,
) -> None:
    """Fill in, for each of `size` samples, its dataset and its number there: the dataset furthest behind its weight."""
    _blend(dataset_index, dataset_sample_index, np.asarray(weights, np.float64), size)


def build_exhaustive_blending_indices(
    dataset_index: npt.NDArray[np.int16],
    dataset_sample_index: npt.NDArray[np.int64],
    sizes: Any,
    num_datasets: int,
) -> None:
    """Fill in every sample of every dataset once, each dataset spread evenly."""
    counts = np.asarray(sizes, np.int64)
    share = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    dataset = np.repeat(np.arange(counts.size), counts)
    number = np.concatenate([np.arange(count) for count in counts])
    order = np.argsort(share, kind="stable")
    dataset_index[:], dataset_sample_index[:] = dataset[order], number[order]


@compiled
def _blend(
    dataset_index: npt.NDArray[np.int16],
    dataset_sample_index: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    size: int,
) -> None:
    taken = np.zeros(weights.size, np.int64)
    for sample in range(size):
        chosen = np.argmax(weights * max(sample, 1) - taken)
        dataset_index[sample] = chosen
        dataset_sample_index[sample] = taken[chosen]
        taken[chosen] += 1
