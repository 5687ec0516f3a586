"""A MindRecord holds exactly the sequences it was written from, or it is not there."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tasks.train.job import TrainingFailed
from tasks.train.msrun import environment
from tasks.train.separate import WriteMindRecord, write_mindrecord
from tests.conftest import PROJECT
from tests.tasks.train.jobs import record_job, repetitive_sequences

READ = """
import sys, numpy as np
from mindspore.dataset import MindDataset
dataset = MindDataset(sys.argv[1], columns_list=["input_ids"], shuffle=False)
np.save(sys.argv[2], np.stack([row for (row,) in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True)]))
"""
COMPARE = """
import sys, json, numpy as np
from pathlib import Path
from tasks.train.separate import WriteMindRecord
from tasks.train.mindrecord import compare
job = WriteMindRecord.model_validate_json(Path(sys.argv[2]).read_text())
compare(np.load(sys.argv[1]), json.loads(job.files[0].header.read_text()), job, job.files[0].target)
"""


def python(code: str, *arguments: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=PROJECT, env=environment(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("dtype", "largest"), [(np.uint16, 65535), (np.uint32, 151_999)])
def test_every_sequence_comes_back_in_order_as_int32(tmp_path: Path, dtype: npt.DTypeLike, largest: int) -> None:
    """5,000 sequences are more than one batch of the writer; ids beyond 32767 would turn negative as int16."""
    sequences = np.random.default_rng(2).integers(0, largest, (5000, 9)).astype(dtype)
    sequences[0, 0] = largest
    write_mindrecord(job := record_job(sequences, tmp_path, "tokens"))
    done = python(READ, job.files[0].target, tmp_path / "read.npy")
    assert done.returncode == 0, done.stderr
    read = np.load(tmp_path / "read.npy")
    assert read.dtype == np.int32
    np.testing.assert_array_equal(read, sequences)
    assert sorted(file.name for file in tmp_path.glob("*mindrecord*")) == ["tokens.mindrecord", "tokens.mindrecord.db"]


def test_a_difference_or_a_missing_sequence_is_found_when_reading_back(dataset: Path, tmp_path: Path) -> None:
    sequences = repetitive_sequences()
    job = tmp_path / "job.json"
    file = record_job(sequences, tmp_path, "sequences").files[0].model_copy(update={"target": dataset})
    job.write_text(WriteMindRecord(files=(file,)).model_dump_json(), encoding="utf-8")
    np.save(tmp_path / "longer.npy", np.concatenate([sequences, sequences[:1]]))
    sequences[-1, -1] += 1
    np.save(tmp_path / "other.npy", sequences)
    assert "128 sequences came back of 129 written" in python(COMPARE, tmp_path / "longer.npy", job).stderr
    assert "column input_ids from row 0 on differs" in python(COMPARE, tmp_path / "other.npy", job).stderr


def test_ids_that_int32_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingFailed, match=r"huge\.mindrecord: not written; ValueError: token id 2147483653 is more than"
    ):
        write_mindrecord(record_job(np.full((3, 9), 2**31 + 5, np.uint32), tmp_path, "huge"))


def test_the_same_sequences_give_the_same_file(dataset: Path, tmp_path: Path) -> None:
    write_mindrecord(record_job(repetitive_sequences(), tmp_path, dataset.stem))
    assert (tmp_path / dataset.name).read_bytes() == dataset.read_bytes()


def test_sequences_that_are_not_there_are_named(tmp_path: Path) -> None:
    job = record_job(repetitive_sequences(), tmp_path, "none")
    job.files[0].rows.unlink()
    with pytest.raises(TrainingFailed, match=r"none\.bin"):
        write_mindrecord(job)
