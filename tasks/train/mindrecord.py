"""Writes token sequences as MindRecord, then reads them back: `python -m tasks.train.mindrecord SEQUENCES TARGET`.

A process of its own, because importing MindSpore costs seconds and half a gigabyte. TARGET's name is final: MindRecord
keeps it inside, and a renamed file does not open.
"""

import sys
from pathlib import Path

import numpy as np
from mindspore.dataset import MindDataset
from mindspore.mindrecord import FileWriter

BATCH = 4096


def main(source: Path, target: Path) -> None:
    sequences = np.load(source, mmap_mode="r")
    writer = FileWriter(str(target), shard_num=1, overwrite=True)
    writer.add_schema({"input_ids": {"type": "int32", "shape": [-1]}}, "token ids of one sequence")
    for start in range(0, len(sequences), BATCH):
        rows = sequences[start : start + BATCH].astype(np.int32)
        writer.write_raw_data([{"input_ids": row} for row in rows])
    writer.commit()
    _compare(sequences, target)
    for file in (target, target.with_name(f"{target.name}.db")):
        file.chmod(0o644)


def _compare(sequences: np.ndarray, target: Path) -> None:  # type: ignore[type-arg]
    """Read everything back in order.

    Raises:
        ValueError: count or content differ.
    """
    dataset = MindDataset(str(target), columns_list=["input_ids"], shuffle=False, num_parallel_workers=1)
    position = 0
    for (batch,) in dataset.batch(BATCH).create_tuple_iterator(num_epochs=1, output_numpy=True):
        expected = sequences[position : position + len(batch)]
        if not np.array_equal(batch, expected):
            raise ValueError(f"{target}: sequences from {position} on differ from {len(sequences)} written")
        position += len(batch)
    if position != len(sequences):
        raise ValueError(f"{target}: {position} sequences came back of {len(sequences)} written")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
