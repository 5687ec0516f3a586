"""A token dataset of all sequences of a new one and some of older ones, in random order: what an incremental training takes.

Sequences are drawn, not tokens: no text is tokenized or packed again, and each can still be traced to its documents. The
files are those of pack; held-out sequences stay where they are.
"""

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from configs.errors import PipelineError
from configs.schema import RunConfig
from tasks.documents import write_table
from tasks.files import atomic_path, write_array, write_json
from tasks.pack.dataset import Dataset
from tasks.pack.outputs import record_work, write_mindrecord_shards
from tasks.pack.planning import TRAIN
from tasks.pack.tokens import FOLDER, document_files
from tasks.stage import Stage, StageResult, StageRun, UnitResult

Indices = npt.NDArray[np.int64]
PLAN = "work/sequences.npy"
SAME = "dtype", "tokens_a_row", "vocab_size", "eos", "bos", "pad"


@dataclass(frozen=True)
class DrawSequences:
    """The work of the first pass's one unit. `datasets`: the new one first."""

    datasets: tuple[Path, ...]
    old_share: float
    seed: int


@dataclass(frozen=True)
class WriteShard:
    """The work of a unit of the second pass: rows `first` to `first + rows` of the mix."""

    datasets: tuple[Path, ...]
    index: int
    first: int
    rows: int

    @property
    def name(self) -> str:
        return f"{TRAIN}-{self.index:05d}"


def build(run: StageRun) -> StageResult:
    given = run.artifacts
    folders = tuple(artifact.folder for artifact in given)
    config = run.config
    header = _common_header(folders)
    (drawn,) = run.map("draw", draw_sequences, [DrawSequences(folders, config.incremental.old_share, config.seed)])
    total = drawn.counts["new"] + drawn.counts["old"]
    most = max(1, config.pack.shard_bytes // (header["tokens_a_row"] * np.dtype(header["dtype"]).itemsize))
    shards = [
        WriteShard(folders, index, first, min(most, total - first)) for index, first in enumerate(range(0, total, most))
    ]
    written = run.map("shard", write_shard, shards)
    names = [shard.name for shard in shards]
    rows = [{"name": f"{shard.name}.bin", "rows": shard.rows} for shard in shards]
    described = run.map("header", write_header, [header | {"files": rows}])
    copied = run.map("copy", copy_files, [folders])
    stats = [artifact.manifest.stats for artifact in given]
    documents_in_a_sequence = max(one["documents_in_a_sequence"] for one in stats)
    records = run.map("mindrecord", write_mindrecord_shards, record_work(run, names, documents_in_a_sequence))
    tokens = total * config.pack.seq_length
    named = {name: stats[0][name] for name in ("vocab_size", "eos_id", "bos_id", "pad_id", "characters_per_token")}
    files = [file for record in [*written, *described, *copied, *records] for file in record.files]
    return StageResult(
        files,
        named
        | {
            "sequences": total,
            "sequences_new": drawn.counts["new"],
            "sequences_old": drawn.counts["old"],
            "tokens": tokens,
            "tokens_dropped": 0,
            "old_share": round(drawn.counts["old"] / total, 4),
            "documents_in_a_sequence": documents_in_a_sequence,
            "sequences_held_out": 0,
        },
    )


def draw_sequences(task: DrawSequences, folder: Path) -> UnitResult:
    """Say which sequences make the mix, in order: numbers of dataset and sequence, int64, shape (sequences, 2)."""
    sizes = [len(Dataset(place)) for place in task.datasets]
    random = np.random.default_rng([task.seed, len(sizes)])
    wanted = min(round(sizes[0] * task.old_share / (1 - task.old_share)), sum(sizes[1:]))
    old = random.choice(sum(sizes[1:]), wanted, replace=False, shuffle=False)
    ends = np.cumsum(sizes[1:])
    dataset = np.searchsorted(ends, old, side="right")
    number = old - (ends - sizes[1:])[dataset]
    pairs = np.concatenate(
        [
            np.stack([np.zeros(sizes[0], np.int64), np.arange(sizes[0])], axis=1),
            np.stack([dataset + 1, number], axis=1).astype(np.int64),
        ]
    )
    write_array(folder / PLAN, pairs[random.permutation(len(pairs))])
    return {PLAN: None}, Counter(new=sizes[0], old=wanted)


def write_shard(task: WriteShard, folder: Path) -> UnitResult:
    """Write the ids of a shard's sequences, and of which documents they are made."""
    chosen = np.load(folder / PLAN, mmap_mode="r")[task.first : task.first + task.rows]
    first_document = [0, *accumulate(map(_count_documents, task.datasets))]
    header = Dataset(task.datasets[0]).header
    rows = np.empty((task.rows, header["tokens_a_row"]), header["dtype"])
    spans: list[pa.Table] = []
    for number, place in enumerate(task.datasets):
        dataset = Dataset(place)
        places = np.flatnonzero(chosen[:, 0] == number)
        sequences = np.asarray(chosen[places, 1])
        first = 0
        for name in dataset.names:
            source = dataset.rows(name)
            here = (sequences >= first) & (sequences < first + len(source))
            rows[places[here]] = source[sequences[here] - first]
            file = place / f"{name}.spans.parquet"
            spans.append(_spans(file, sequences[here], places[here] + task.first, first_document[number]))
            first += len(source)
    with atomic_path(folder / f"{task.name}.bin") as temporary, temporary.open("wb") as stream:
        stream.write(rows.data)
    table = pa.concat_tables(spans).sort_by([("sequence", "ascending"), ("start", "ascending")])
    count = write_table(folder / f"{task.name}.spans.parquet", table)
    return {f"{task.name}.bin": None, f"{task.name}.spans.parquet": count}, Counter()


def write_header(header: dict[str, Any], folder: Path) -> UnitResult:
    write_json(folder / f"{TRAIN}.json", header)
    return {f"{TRAIN}.json": None}, Counter()


def copy_files(datasets: tuple[Path, ...], folder: Path) -> UnitResult:
    """Take over the new dataset's tokenizer and the lists of documents of all, which are linked where they can be."""
    files: dict[str, int | None] = {}
    for path in sorted((datasets[0] / FOLDER).iterdir()):
        files[f"{FOLDER}/{path.name}"] = None
        _take_over(path, folder / FOLDER / path.name)
    lists = [path for place in datasets for path in document_files(place)]
    for number, path in enumerate(lists):
        name = f"documents-{number:05d}.parquet"
        files[name] = pq.ParquetFile(path).metadata.num_rows
        _take_over(path, folder / name)
    return files, Counter()


def _take_over(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def _common_header(datasets: Sequence[Path]) -> dict[str, Any]:
    """Return the header of the new dataset.

    Raises:
        PipelineError: an older one has another, so that its ids mean something else.
    """
    new, *older = [Dataset(place).header for place in datasets]
    for place, header in zip(datasets[1:], older, strict=True):
        for name in SAME:
            if header[name] != new[name]:
                raise PipelineError(
                    f"mix: {place}: {name} is {header[name]}, but that of the new sequences is {new[name]}; both must be "
                    "made with one tokenizer and one pack.seq_length"
                )
    return new


def _spans(file: Path, sequences: Indices, targets: Indices, first_document: int) -> pa.Table:
    """Return the spans of some sequences under their numbers in the mix."""
    table = pq.read_table(file)
    order = np.argsort(sequences)
    found = np.searchsorted(sequences, table["sequence"].to_numpy(), sorter=order)
    hit = found < sequences.size
    hit[hit] = sequences[order[found[hit]]] == table["sequence"].to_numpy()[hit]
    taken = table.filter(pa.array(hit))
    taken = taken.set_column(0, "sequence", pa.array(targets[order[found[hit]]]))
    place = taken.schema.get_field_index("document")
    return taken.set_column(place, "document", pc.add(taken["document"], first_document))


def _count_documents(place: Path) -> int:
    return sum(pq.ParquetFile(path).metadata.num_rows for path in document_files(place))


def settings(config: RunConfig) -> dict[str, Any]:
    pack = config.pack.model_dump(include={"seq_length", "shard_bytes", "mindrecord_columns", "document_boundaries"})
    return pack | {"old_share": config.incremental.old_share, "seed": config.seed}


STAGE = Stage(name="mix", version=1, libraries=("numpy", "pyarrow", "mindspore"), settings=settings, build=build)
