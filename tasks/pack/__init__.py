"""Documents to the token dataset: sequences of seq_length + 1 ids, in every format that is asked for.

Passes, each restartable: tokenize (an artifact of its own, `tokens`), plan where every token goes, write and check the
shards, write MindRecord and Megatron files and read them back by MindSpore's and mindformers' own readers, report.

    train.json, train-00000.bin     the sequences, and what they are; also held_out
    train-00000.spans.parquet       which run of tokens came from which document
    documents-00000.parquet         the documents: id, source, tokens, characters
    mindrecord/, megatron/          as mindformers reads them
    tokenizer/                      the tokenizer that made them
    report.html, report.json        figures, and sequences as text with document ends marked
"""

import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import PipelineError
from configs.schema import PackConfig, RunConfig
from tasks.artifact import Artifact, Manifest, UnitRecord, Workspace, merge_counts
from tasks.documents import read_table
from tasks.files import write_array, write_json
from tasks.pack import tokens as tokenized
from tasks.pack.chunks import chunk_runs
from tasks.pack.corpus import Corpus
from tasks.pack.held_out import HoldOutShard, choose_shard, compare_shard, held_out_documents
from tasks.pack.megatron import WriteMegatron, groups, write_megatron
from tasks.pack.plan import Indices, Plan, Runs, best_fit, concat, copies_by_weight, cut_documents, whole_documents
from tasks.pack.report import WriteReport, alarms, source_figures, write_report
from tasks.pack.tokens import token_dtype
from tasks.pack.write import ShardPlace, WriteShard, plan_folder, write_shard
from tasks.stage import Stage, StageResult, StageRun, UnitResult, build_artifact
from tasks.tokenizer import TokenIds
from tasks.train.launch import (
    MEGATRON_CHECKED,
    DatasetFiles,
    RecordFile,
    WriteMindRecord,
    read_megatron,
    write_mindrecord,
)

logger = logging.getLogger("mindpretrain")

TRAIN, HELD_OUT = "train", "held_out"
MINDRECORD, MEGATRON = "mindrecord", "megatron"
SHARDS_A_PROCESS = 8


@dataclass(frozen=True)
class PlanTokens:
    """The work of the planning pass's one unit."""

    tokens: Path
    """Folder of the tokens artifact."""
    chunks: tuple[Path, ...]
    holds_out: bool
    config: RunConfig


@dataclass(frozen=True)
class DescribeSplit:
    """The work of the unit that writes a split's header."""

    split: str
    places: tuple[ShardPlace, ...]
    config: PackConfig
    dtype: str
    ids: TokenIds


def build(run: StageRun) -> StageResult:
    config, workspace = run.config.pack, Workspace(Path(run.config.workspace))
    chunked = run.artifact("chunk")
    filtered = workspace.manifest("filter", chunked.manifest.inputs[0])
    made = build_artifact(tokenized.STAGE, run.config, [filtered], run.executor)
    tokens = workspace.open(made)
    ids = TokenIds(**{name: made.stats[name] for name in ("vocab_size", "eos", "bos", "pad")})
    dtype = _stored_dtype(config, ids)
    _check_ids(run.config, ids)
    documents = tuple(workspace.open(filtered).shards)
    chosen = _hold_out(run, documents, made)
    plan = PlanTokens(tokens.folder, tuple(chunked.shards), bool(chosen), run.config)
    (planned,) = run.map("plan", plan_tokens, [plan])
    places = _places(config, Counter(planned.counts), dtype)
    shard = partial(
        WriteShard, corpus=tokens.folder, stride=_stride(config), width=config.seq_length + 1, ids=ids, dtype=dtype
    )
    written = run.map("shard", write_shard, [shard(place) for place in places])
    headers = [
        DescribeSplit(split, of_split, config, dtype, ids)
        for split in (TRAIN, HELD_OUT)
        if (of_split := _of_split(places, split))
    ]
    described = run.map("header", describe_split, headers)
    copied = run.map("copy", copy_files, [tokens.folder])
    records = [*chosen, planned, *written, *described, *copied]
    if MINDRECORD in config.outputs:
        records += run.map("mindrecord", write_mindrecord_shards, _mindrecord_work(run, places, written))
    if MEGATRON in config.outputs:
        megatron = run.map("megatron", write_megatron, _megatron_work(tokens, config, Counter(planned.counts)))
        records += [*megatron, *run.map("read-megatron", check_megatron, [_expected(megatron)])]
    stats = _stats(made, planned.counts, written, config)
    names = tuple(place.name for place in _of_split(places, TRAIN))
    records += run.map("report", write_report, [WriteReport(names, tokens.folder, stats, config, ids)])
    stats["alarms"] = alarms(run.draft.folder)
    for alarm in stats["alarms"]:
        logger.warning("pack: %s", alarm)
    return StageResult(
        [file for record in records for file in record.files if not file.name.startswith("work/")], stats
    )


def plan_tokens(task: PlanTokens, folder: Path) -> UnitResult:
    """Say where every token goes: one plan for each pass over the training documents, and one for the held-out ones.

    Raises:
        PipelineError: there are not enough tokens for one sequence.
    """
    config, seed, width = task.config.pack, task.config.seed, task.config.pack.seq_length + 1
    sources = [place.source for place in task.config.inputs]
    corpus = Corpus.read(task.tokens, len(task.chunks), sources)
    files = corpus.save(folder)
    held_out, moved_back = held_out_documents(folder, len(task.chunks) if task.holds_out else 0, corpus.lengths.size)
    chunks = chunk_runs(corpus, task.chunks) if config.strategy == "best_fit" or config.shuffle == "chunks" else None
    weights = np.array([place.weight for place in task.config.inputs])
    copies = copies_by_weight(weights[corpus.sources], seed)
    counts = Counter(held_out_near_duplicates=moved_back)
    for split, taken in ((TRAIN, np.where(held_out, 0, copies)), (HELD_OUT, held_out.astype(np.int64))):
        write_array(plan_folder(folder, f"copies-{split}.npy"), taken)
        tokens = int((corpus.lengths * taken).sum())
        if split == TRAIN and tokens < width:
            raise PipelineError(
                f"pack: the corpus has {tokens} tokens, less than one sequence of pack.seq_length "
                f"{config.seq_length} + 1; add documents or lower seq_length"
            )
        for epoch in range(config.epochs if split == TRAIN else 1):
            plan = _plan(config, corpus.lengths, taken, chunks, np.random.default_rng([seed, epoch, split == HELD_OUT]))
            name = f"{split}-{epoch}"
            files += plan.save(plan_folder(folder, name))
            counts[f"sequences:{name}"] = plan.order.size
            counts += Counter({f"dropped:{split}": plan.dropped, f"covered:{split}": plan.covered})
            counts[f"ends:{split}"] += plan.ended(corpus.lengths)
        counts += Counter({f"tokens:{split}": tokens, f"documents:{split}": int((taken * (corpus.lengths > 0)).sum())})
        if split == TRAIN:
            counts += Counter(
                {f"source:{name}": number for name, number in source_figures(corpus, taken, sources).items()}
            )
    files += [plan_folder(folder, f"copies-{split}.npy") for split in (TRAIN, HELD_OUT)]
    return {file.relative_to(folder).as_posix(): None for file in files}, counts


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
    for path in sorted([*tokens.glob("documents-*.parquet"), *(tokens / tokenized.FOLDER).iterdir()]):
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
    _check_model(config, stats["vocab_size"])
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
    )


def settings(config: RunConfig) -> dict[str, Any]:
    """Return what decides the output: of a tokenizer that is there its content does, not its place."""
    section = config.pack.model_dump() | {"tokenizer": tokenized.settings(config)}
    return section | {"seed": config.seed, "weights": {place.source: place.weight for place in config.inputs}}


def _plan(
    config: PackConfig, lengths: Indices, copies: Indices, chunks: Runs | None, random: np.random.Generator
) -> Plan:
    width = config.seq_length + 1
    if config.strategy == "best_fit" and chunks is not None:
        pieces = cut_documents(lengths, chunks, width)
        return best_fit(_repeated(pieces, copies), width, config.max_padding_share, random)
    if config.shuffle == "chunks" and chunks is not None:
        return concat(_repeated(chunks, copies), width, random)
    return concat(whole_documents(lengths, copies), width, random)


def _repeated(runs: Runs, copies: Indices) -> Runs:
    return runs.take(np.repeat(np.arange(runs.tokens.size), copies[runs.document]))


def _stride(config: PackConfig) -> int:
    return config.seq_length + (config.strategy == "best_fit")


def _stored_dtype(config: PackConfig, ids: TokenIds) -> str:
    if config.dtype == "auto":
        return str(token_dtype(ids.vocab_size))
    if ids.vocab_size - 1 > np.iinfo(config.dtype).max:
        raise PipelineError(
            f"pack.dtype: {config.dtype} holds ids up to {np.iinfo(config.dtype).max}, but the vocabulary has "
            f"{ids.vocab_size} tokens; write auto or int32"
        )
    return config.dtype


def _check_ids(config: RunConfig, ids: TokenIds) -> None:
    if config.pack.strategy == "best_fit" and ids.pad < 0:
        raise PipelineError(
            "pack.tokenizer.pad_token: strategy best_fit leaves padding, and the tokenizer names no pad token beside eos; "
            "name one of its special tokens, or write strategy: concat"
        )
    _check_model(config, ids.vocab_size)


def _check_model(config: RunConfig, tokens: int) -> None:
    size = config.model.vocab_size
    if size is not None and size < tokens:
        raise PipelineError(
            f"model.vocab_size: {size} is less than the tokenizer's {tokens} tokens: larger ids would read memory that is "
            "not the embedding's; leave it out, or write at least that"
        )


def _hold_out(run: StageRun, documents: Sequence[Path], made: Manifest) -> list[UnitRecord]:
    """Choose the held-out documents in two passes, if there are to be any."""
    share = run.config.pack.held_out_share
    if not share:
        return []
    rows = [file.rows or 0 for file in made.files if file.name.startswith("documents-")]
    work = [
        HoldOutShard(index, path, first, share, run.config.seed)
        for index, (path, first) in enumerate(zip(documents, accumulate([0, *rows[:-1]]), strict=True))
    ]
    chosen = run.map("hold-out", choose_shard, work)
    return [*chosen, *run.map("compare", compare_shard, [(shard, len(documents)) for shard in work])]


def _places(config: PackConfig, counts: Counter[str], dtype: str) -> list[ShardPlace]:
    """Return the shards of all plans, numbered through each split."""
    most = max(1, config.shard_bytes // ((config.seq_length + 1) * np.dtype(dtype).itemsize))
    places: list[ShardPlace] = []
    for split in (TRAIN, HELD_OUT):
        shard = number = 0
        for epoch in range(config.epochs if split == TRAIN else 1):
            plan = f"{split}-{epoch}"
            for first in range(0, counts[f"sequences:{plan}"], most):
                sequences = min(most, counts[f"sequences:{plan}"] - first)
                places.append(ShardPlace(f"{split}-{shard:05d}", plan, first, sequences, number))
                shard, number = shard + 1, number + sequences
    return places


def _split_of(place: ShardPlace) -> str:
    return place.name.rpartition("-")[0]


def _of_split(places: Sequence[ShardPlace], split: str) -> tuple[ShardPlace, ...]:
    return tuple(place for place in places if _split_of(place) == split)


def _mindrecord_work(
    run: StageRun, places: Sequence[ShardPlace], written: Sequence[UnitRecord]
) -> list[WriteMindRecord]:
    """Return the work, some shards to each process: importing MindSpore takes as long as writing one."""
    config, folder = run.config.pack, run.draft.folder
    files = [
        RecordFile(
            rows=folder / f"{place.name}.bin",
            header=folder / f"{_split_of(place)}.json",
            target=folder / MINDRECORD / f"{place.name}.mindrecord",
        )
        for place in places
    ]
    return [
        WriteMindRecord(
            files=tuple(files[first : first + SHARDS_A_PROCESS]),
            training_columns=config.mindrecord_columns == "training",
            reset_positions=config.document_boundaries == "reset",
            documents_in_a_sequence=max(record.counts["documents_in_a_sequence"] for record in written),
        )
        for first in range(0, len(files), SHARDS_A_PROCESS)
    ]


def _megatron_work(tokens: Artifact, config: PackConfig, counts: Counter[str]) -> list[WriteMegatron]:
    sizes = [file.bytes for file in tokens.manifest.files if file.name.startswith("tokens-")]
    return [
        WriteMegatron(f"{split}-{number:05d}", tokens.folder, first, last, f"copies-{split}")
        for split in (TRAIN, HELD_OUT)
        if counts[f"documents:{split}"]
        for number, (first, last) in enumerate(groups(sizes, config.shard_bytes))
    ]


def _expected(megatron: Sequence[UnitRecord]) -> dict[str, tuple[int, int]]:
    return {
        Path(record.files[0].name).stem: (record.counts["documents"], record.counts["checksum"]) for record in megatron
    }


def _stats(
    made: Manifest, planned: dict[str, int], written: Sequence[UnitRecord], config: PackConfig
) -> dict[str, Any]:
    """Return the stage's figures, once they add up.

    Raises:
        RuntimeError: they do not, which is a fault of this code.
    """
    counts, plan = merge_counts(written), Counter(planned)
    trained = merge_counts(record for record in written if record.files[0].name.startswith(TRAIN))
    passes = {TRAIN: config.epochs, HELD_OUT: 1}
    tokens_in = sum(plan[f"tokens:{split}"] * times for split, times in passes.items())
    covered, dropped = (sum(plan[f"{name}:{split}"] for split in passes) for name in ("covered", "dropped"))
    ends = sum(plan[f"ends:{split}"] for split in passes)
    repeated = covered - counts["padding"] + dropped - tokens_in
    if counts["eos_labels"] != ends or (repeated if config.strategy == "concat" else min(0, repeated)):
        raise RuntimeError(
            f"pack: {tokens_in} tokens came in, {covered} were laid, {counts['padding']} of them padding, and {dropped} "
            f"dropped; {counts['eos_labels']} eos for {ends} ends of documents"
        )
    sequences = {
        split: sum(n for name, n in planned.items() if name.startswith(f"sequences:{split}-")) for split in passes
    }
    stats: dict[str, Any] = {
        "sequences": sequences[TRAIN],
        "tokens_a_pass": plan[f"tokens:{TRAIN}"],
        "tokens_in": tokens_in,
        "tokens": tokens_in - dropped,
        "tokens_dropped": dropped,
        "tokens_repeated": repeated,
        "padding_share": round(counts["padding"] / max(1, covered), 5),
        "documents": plan[f"documents:{TRAIN}"] * config.epochs,
        "documents_cut": trained["documents_cut"],
        "eos": trained["eos_labels"],
        "eos_share": round(counts["eos_labels"] / max(1, covered), 5),
        "sequences_held_out": sequences[HELD_OUT],
        "tokens_held_out": plan[f"tokens:{HELD_OUT}"],
        "documents_held_out": plan[f"documents:{HELD_OUT}"],
        "held_out_near_duplicates": plan["held_out_near_duplicates"],
        "documents_in_a_sequence": max(record.counts["documents_in_a_sequence"] for record in written),
    }
    stats |= {f"{name}_id": made.stats[name] for name in ("eos", "bos", "pad")}
    named = ("vocab_size", "engine", "characters_per_token", "documents_empty", "sampled_documents", "sampled_exact")
    stats |= {name: made.stats[name] for name in named}
    return stats | {name.removeprefix("source:"): n for name, n in planned.items() if name.startswith("source:")}


STAGE = Stage(
    name="pack",
    version=3,
    libraries=("tokenizers", "tiktoken", "sentencepiece", "numpy", "pyarrow", "mindspore", "mindformers"),
    settings=settings,
    build=build,
)
