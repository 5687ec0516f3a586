"""The columns of a training sample, made from stored rows of seq_length + 1 ids. NumPy alone, so that it can be tested
beside mindformers' own.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]
Columns = dict[str, npt.NDArray[np.int32]]
END_STEP = 128
"""actual_seq_len has a multiple of so many places, as mindformers' eod_pad_length has."""


def token_columns(rows: Rows) -> Columns:
    """Return `input_ids` of seq_length + 1: the model takes inputs and labels from it."""
    return {"input_ids": rows.astype(np.int32)}


def training_columns(rows: Rows, eos: int, pad: int, reset_positions: bool, documents: int) -> Columns:
    """Return input_ids, labels, loss_mask and position_ids of seq_length each, and actual_seq_len.

    The loss leaves out what follows padding. `actual_seq_len`: where the next document begins, counted from 1, and
    seq_length in the rest of its places; of them there are `documents`, rounded up to 128. With `reset_positions` positions
    begin anew after each eos.
    """
    inputs, labels = rows[:, :-1].astype(np.int32), rows[:, 1:].astype(np.int32)
    length = inputs.shape[1]
    # pad is only padding at the end of a row, but a tokenizer may have no pad at all.
    real = (
        np.ones_like(labels) if pad < 0 else (np.cumsum((labels != pad)[:, ::-1], axis=1)[:, ::-1] > 0).astype(np.int32)
    )
    ends = inputs == eos
    places = np.arange(length, dtype=np.int32)
    positions = np.broadcast_to(places, inputs.shape)
    if reset_positions:
        begins = np.where(np.concatenate([np.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1), places, 0)
        positions = places - np.maximum.accumulate(begins, axis=1)
    actual = np.full((len(rows), end_places(documents)), length, np.int32)
    for row, found in zip(actual, ends, strict=True):
        after = np.flatnonzero(found[:-1]) + 1
        row[: after.size] = after
    return {
        "input_ids": inputs,
        "labels": labels,
        "loss_mask": real,
        "position_ids": np.ascontiguousarray(positions, np.int32),
        "actual_seq_len": actual,
    }


def end_places(documents: int) -> int:
    """Return how many places actual_seq_len has for rows of at most so many documents."""
    return -(-max(1, documents) // END_STEP) * END_STEP


def schema_of(columns: Columns) -> dict[str, dict[str, Any]]:
    """Return MindRecord's schema of columns."""
    return {name: {"type": "int32", "shape": [-1]} for name in columns}
