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
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import PipelineError
from configs.schema import PackConfig, RunConfig
from tasks.artifact import Manifest, UnitRecord, Workspace, merge_counts
from tasks.pack import tokens as tokenized
from tasks.pack.checks import check_model
from tasks.pack.megatron import write_megatron
from tasks.pack.outputs import (
    MEGATRON,
    MINDRECORD,
    DescribeSplit,
    check_megatron,
    copy_files,
    describe_split,
    expected_of,
    megatron_work,
    mindrecord_work,
    write_mindrecord_shards,
)
from tasks.pack.planning import (
    HELD_OUT,
    TRAIN,
    PlanTokens,
    hold_out,
    of_split,
    plan_tokens,
    shard_places,
    stride_of,
)
from tasks.pack.report import WriteReport, alarms, write_report
from tasks.pack.tokens import token_dtype
from tasks.pack.write import WriteShard, write_shard
from tasks.stage import Stage, StageResult, StageRun
from tasks.tokenizer import TokenIds, read_description

logger = logging.getLogger("mindpretrain")


def build(run: StageRun) -> StageResult:
    config, workspace = run.config.pack, Workspace(Path(run.config.workspace))
    chunked = run.artifact("chunk")
    filtered = workspace.manifest("filter", chunked.manifest.inputs[0])
    tokens = run.make(tokenized.STAGE, filtered)
    made = tokens.manifest
    ids = read_description(tokens.folder / tokenized.FOLDER).ids
    dtype = _stored_dtype(config, ids)
    _check_ids(run.config, ids)
    documents = tuple(workspace.open(filtered).shards)
    chosen = hold_out(run, documents, made)
    plan = PlanTokens(tokens.folder, tuple(chunked.shards), bool(chosen), run.config)
    (planned,) = run.map("plan", plan_tokens, [plan])
    places = shard_places(config, Counter(planned.counts), dtype)
    shard = partial(
        WriteShard, corpus=tokens.folder, stride=stride_of(config), width=config.seq_length + 1, ids=ids, dtype=dtype
    )
    written = run.map("shard", write_shard, [shard(place) for place in places])
    headers = [
        DescribeSplit(split, chosen_places, config, dtype, ids)
        for split in (TRAIN, HELD_OUT)
        if (chosen_places := of_split(places, split))
    ]
    described = run.map("header", describe_split, headers)
    copied = run.map("copy", copy_files, [tokens.folder])
    records = [*chosen, planned, *written, *described, *copied]
    if MINDRECORD in config.outputs:
        records += run.map("mindrecord", write_mindrecord_shards, mindrecord_work(run, places, written))
    if MEGATRON in config.outputs:
        megatron = run.map("megatron", write_megatron, megatron_work(tokens, config, Counter(planned.counts)))
        records += [*megatron, *run.map("read-megatron", check_megatron, [expected_of(megatron)])]
    stats = _stats(made, planned.counts, written, config)
    names = tuple(place.name for place in of_split(places, TRAIN))
    records += run.map("report", write_report, [WriteReport(names, tokens.folder, stats, config, ids)])
    stats["alarms"] = alarms(run.draft.folder)
    for alarm in stats["alarms"]:
        logger.warning("pack: %s", alarm)
    return StageResult(
        [file for record in records for file in record.files if not file.name.startswith("work/")], stats
    )


def settings(config: RunConfig) -> dict[str, Any]:
    """Return what decides the output: of a tokenizer that is there its content does, not its place."""
    section = config.pack.model_dump() | {"tokenizer": tokenized.settings(config)}
    return section | {"seed": config.seed, "weights": {place.source: place.weight for place in config.inputs}}


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
    check_model(config, ids.vocab_size)


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
