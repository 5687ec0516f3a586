"""Writes token sequences as MindRecord, then reads them back: `python -m tasks.train.mindrecord JOB_FILE`.

A process of its own, because importing MindSpore costs seconds and half a gigabyte. The target's name is final: MindRecord
keeps it inside, and a renamed file does not open.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mindspore.dataset import MindDataset
from mindspore.mindrecord import FileWriter

from tasks.train.columns import Columns, schema_of, token_columns, training_columns
from tasks.train.separate import RecordFile, WriteMindRecord

BATCH = 4096


def main(job_file: Path) -> None:
    job = WriteMindRecord.model_validate_json(job_file.read_text(encoding="utf-8"))
    for file in job.files:
        write(file, job)


def write(file: RecordFile, job: WriteMindRecord) -> None:
    """Write one file, and compare it with its rows."""
    header = json.loads(file.header.read_text(encoding="utf-8"))
    rows = np.memmap(file.rows, header["dtype"], "r").reshape(-1, header["tokens_a_row"])
    writer = FileWriter(str(file.target), shard_num=1, overwrite=True)
    for start in range(0, len(rows), BATCH):
        _check_range(rows[start : start + BATCH])
        columns = _columns(rows[start : start + BATCH], header, job)
        if not start:
            writer.add_schema(schema_of(columns), "token ids of one sequence a row")
        records = zip(*columns.values(), strict=True)
        writer.write_raw_data([dict(zip(columns, record, strict=True)) for record in records])
    writer.commit()
    compare(rows, header, job, file.target)
    for written in (file.target, file.target.with_name(f"{file.target.name}.db")):
        written.chmod(0o644)


def _check_range(rows: npt.NDArray[Any]) -> None:
    if rows.size and int(rows.max()) > np.iinfo(np.int32).max:
        raise ValueError(f"token id {rows.max()} is more than MindRecord's int32 holds")


def _columns(rows: npt.NDArray[Any], header: dict[str, Any], job: WriteMindRecord) -> Columns:
    if not job.training_columns:
        return token_columns(rows)
    return training_columns(rows, header["eos"], header["pad"], job.reset_positions, job.documents_in_a_sequence)


def compare(rows: npt.NDArray[Any], header: dict[str, Any], job: WriteMindRecord, target: Path) -> None:
    """Read everything back in order.

    Raises:
        ValueError: count or content differ.
    """
    names = list(_columns(rows[:1], header, job))
    dataset = MindDataset(str(target), columns_list=names, shuffle=False, num_parallel_workers=1)
    position = 0
    for batch in dataset.batch(BATCH).create_tuple_iterator(num_epochs=1, output_numpy=True):
        expected = _columns(rows[position : position + len(batch[0])], header, job)
        for name, column in zip(names, batch, strict=True):
            if not np.array_equal(column, expected[name]):
                raise ValueError(f"{target}: column {name} from row {position} on differs from what was written")
        position += len(batch[0])
    if position != len(rows):
        raise ValueError(f"{target}: {position} sequences came back of {len(rows)} written")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
