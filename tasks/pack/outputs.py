"""The formats that a dataset is written in, and what a training reads of them."""

import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.schema import PackConfig, RunConfig
from tasks.artifact import Artifact, UnitRecord
from tasks.documents import read_table
from tasks.files import write_json
from tasks.pack import tokens as tokenized
from tasks.pack.checks import check_model
from tasks.pack.megatron import WriteMegatron, groups
from tasks.pack.planning import HELD_OUT, TRAIN, split_of
from tasks.pack.tokens import document_files
from tasks.pack.write import ShardPlace
from tasks.stage import StageRun, UnitResult
from tasks.tokenizer import TokenIds
from tasks.train.job import DatasetFiles
from tasks.train.separate import MEGATRON_CHECKED, RecordFile, WriteMindRecord, read_megatron, write_mindrecord

logger = logging.getLogger("mindpretrain")

MINDRECORD, MEGATRON = "mindrecord", "megatron"
SHARDS_A_PROCESS = 8


@dataclass(frozen=True)
class DescribeSplit:
    """The work of the unit that writes a split's header."""

    split: str
    places: tuple[ShardPlace, ...]
    config: PackConfig
    dtype: str
    ids: TokenIds


def describe_split(task: DescribeSplit, folder: Path) -> UnitResult:
    """Write the JSON header of a split's .bin files."""
    header = {
        "format": "token ids, row after row, without a header; rows overlap by one token where they go on",
        "dtype": task.dtype,
        "byte_order": "little",
        "seq_length": task.config.seq_length,
        "tokens_a_row": task.config.seq_length + 1,
        "vocab_size": task.ids.vocab_size,
        "eos": task.ids.eos,
        "bos": task.ids.bos,
        "pad": task.ids.pad,
        "files": [{"name": f"{place.name}.bin", "rows": place.sequences} for place in task.places],
    }
    write_json(folder / f"{task.split}.json", header)
    return {f"{task.split}.json": None}, Counter()


def copy_files(tokens: Path, folder: Path) -> UnitResult:
    """Copy the tokenizer and the list of documents, so that the dataset can be read without the artifacts before it."""
    files: dict[str, int | None] = {}
    for path in sorted([*document_files(tokens), *(tokens / tokenized.FOLDER).iterdir()]):
        name = path.relative_to(tokens).as_posix()
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / name)
        files[name] = read_table(path, []).num_rows if path.suffix == ".parquet" else None
    return files, Counter()


def write_mindrecord_shards(task: WriteMindRecord, folder: Path) -> UnitResult:
    """Write shards as MindRecord. MindSpore does it, in a process of its own, and reads them back."""
    write_mindrecord(task)
    names = [file.target.relative_to(folder).as_posix() for file in task.files]
    return {f"{name}{suffix}": None for name in names for suffix in ("", ".db")}, Counter()


def check_megatron(expected: dict[str, tuple[int, int]], folder: Path) -> UnitResult:
    """Read the Megatron files by mindformers' own reader; count and checksum must be those that were written."""
    read_megatron(folder / MEGATRON, expected)
    return {f"{MEGATRON}/{MEGATRON_CHECKED}": None}, Counter()


def dataset_files(dataset: Artifact, config: RunConfig) -> DatasetFiles:
    """Return what a training on a pack artifact reads.

    Raises:
        PipelineError: the model's vocabulary is too small for it.
    """
    stats, kind = dataset.manifest.stats, config.training.dataset
    check_model(config, stats["vocab_size"])
    if (rows := config.model.vocab_size or 0) > stats["vocab_size"]:
        logger.info("model.vocab_size %d: %d rows stand for no token", rows, rows - stats["vocab_size"])
    suffix = {MINDRECORD: ".mindrecord", MEGATRON: ".idx"}[kind]
    found = [file.name for file in dataset.manifest.files if file.name.startswith(f"{kind}/{TRAIN}-")]
    paths = [dataset.folder / name for name in found if name.endswith(suffix)]
    if kind == MEGATRON:
        sizes = [path.with_suffix(".bin").stat().st_size for path in paths]
        paths = [path.with_suffix("") for path in paths]
        shares = tuple(size / sum(sizes) for size in sizes)
    return DatasetFiles(
        kind=kind,
        files=tuple(paths),
        shares=shares if kind == MEGATRON else (),
        training_columns=config.pack.mindrecord_columns == "training",
        reset=config.pack.document_boundaries == "reset",
        documents_in_a_sequence=stats["documents_in_a_sequence"],
        held_out=tuple(
            dataset.folder / file.name
            for file in dataset.manifest.files
            if file.name.startswith(f"{MINDRECORD}/{HELD_OUT}-") and file.name.endswith(".mindrecord")
        ),
    )


def mindrecord_work(
    run: StageRun, places: Sequence[ShardPlace], written: Sequence[UnitRecord]
) -> list[WriteMindRecord]:
    """Return the work for the shards that were written."""
    most = max(record.counts["documents_in_a_sequence"] for record in written)
    return record_work(run, [place.name for place in places], most)


def record_work(run: StageRun, shards: Sequence[str], documents_in_a_sequence: int) -> list[WriteMindRecord]:
    """Return the work, some shards to each process: importing MindSpore takes as long as writing one.

    `shards`: names such as train-00000; `documents_in_a_sequence`: the most that any has.
    """
    config, folder = run.config.pack, run.draft.folder
    files = [
        RecordFile(
            rows=folder / f"{name}.bin",
            header=folder / f"{split_of(name)}.json",
            target=folder / MINDRECORD / f"{name}.mindrecord",
        )
        for name in shards
    ]
    return [
        WriteMindRecord(
            files=tuple(files[first : first + SHARDS_A_PROCESS]),
            training_columns=config.mindrecord_columns == "training",
            reset_positions=config.document_boundaries == "reset",
            documents_in_a_sequence=documents_in_a_sequence,
        )
        for first in range(0, len(files), SHARDS_A_PROCESS)
    ]


def megatron_work(tokens: Artifact, config: PackConfig, counts: Counter[str]) -> list[WriteMegatron]:
    sizes = [file.bytes for file in tokens.manifest.files if file.name.startswith("tokens-")]
    return [
        WriteMegatron(f"{split}-{number:05d}", tokens.folder, first, last, f"copies-{split}")
        for split in (TRAIN, HELD_OUT)
        if counts[f"documents:{split}"]
        for number, (first, last) in enumerate(groups(sizes, config.shard_bytes))
    ]


def expected_of(megatron: Sequence[UnitRecord]) -> dict[str, tuple[int, int]]:
    return {
        Path(record.files[0].name).stem: (record.counts["documents"], record.counts["checksum"]) for record in megatron
    }
