"""Speed and memory of tokenizing and writing the dataset, beside the bare engine and the usual scripts: `make bench`, or
`python -m tests.bench_pack [MEGABYTES]`.

Tokenizing: the same text and tokenizer (byte-level BPE of 32,000, trained on it) through the tiktoken engine alone, through
the tokens stage (Parquet to .bin), through Megatron's pattern (a pool that maps Hugging Face's tokenizer over JSON lines,
one process that writes), and through the plainest script (lines, eos after each, one list of all ids). Writing: synthetic
ids, 20 and 200 million. Rounds alternate; medians. The plainest script, which takes half a minute, has one round.
"""

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.schema import RunConfig, TokenizerConfig
from tasks.documents import DOCUMENTS, read_table, write_table
from tasks.executor import LocalExecutor, ProcessExecutor
from tasks.files import write_json
from tasks.pack.megatron import WriteMegatron, write_megatron
from tasks.pack.outputs import copy_files
from tasks.pack.planning import PlanTokens, plan_tokens
from tasks.pack.tokens import (
    FOLDER,
    EncodeShard,
    MakeTokenizer,
    document_file,
    encode_shard,
    make_tokenizer,
    token_file,
)
from tasks.pack.write import ShardPlace, WriteShard, write_shard
from tasks.tokenizer import Description, TokenIds, open_tokenizer, read_description, write_description
from tasks.tokenizer.hugging_face import HuggingFaceTokenizer
from tasks.train.separate import RecordFile, WriteMindRecord, write_mindrecord
from tests.bench import _megabytes, _texts, _up_to, peak_memory

ROUNDS = 3
SHARDS = 4
VOCABULARY = 32_000
TRAINED_ON_MEGABYTES = 8
SYNTHETIC_TOKENS = (20_000_000, 200_000_000)
SHARD_TOKENS = 32_000_000
SEQ_LENGTH = 2048
PLAINEST = "plainest script, 1 core"


def main(megabytes: float) -> None:
    texts = list(_up_to(megabytes, _texts()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(texts, folder)
        _bench_tokenizing(folder, _megabytes(texts))
        _bench_writing(folder)


def _prepare(texts: Sequence[str], folder: Path) -> None:
    """Write the text as shards of documents, as JSON lines and as plain lines, and train the tokenizer."""
    for shard in range(SHARDS):
        part = texts[shard::SHARDS]
        columns = [[f"bench/{shard}#{n}" for n in range(len(part))], ["bench"] * len(part), part, ["{}"] * len(part)]
        write_table(_documents(folder, shard), pa.table(columns, schema=DOCUMENTS))
    few = pa.table([["few"], ["bench"], texts[:1], ["{}"]], schema=DOCUMENTS)
    write_table(folder / "few.parquet", few)
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    (folder / "text.txt").write_text("\n".join(texts), encoding="utf-8")
    every = max(1, int(_megabytes(list(texts)) / TRAINED_ON_MEGABYTES))
    made = MakeTokenizer(
        tuple(_documents(folder, n) for n in range(SHARDS)), every, 10, TokenizerConfig(vocab_size=VOCABULARY)
    )
    make_tokenizer(made, folder)


def _bench_tokenizing(folder: Path, size: float) -> None:
    engine = read_description(folder / FOLDER).engine
    print(f"Tokenizing, {size:.1f} MB, engine {engine}, median of {ROUNDS} alternated rounds\n")
    ways: dict[str, Callable[[], Timed]] = {
        "bare engine, 1 core": partial(bare_engine, folder, 1),
        "tokens stage, 1 core": partial(tokens_stage, folder, 1),
        "bare engine, 2 cores": partial(bare_engine, folder, 2),
        "tokens stage, 2 cores": partial(tokens_stage, folder, 2),
        "Megatron's pattern, 2 processes": partial(megatron_pattern, folder, 2),
        PLAINEST: partial(plain_script, folder),
    }
    rounds = [
        {name: _in_process(way) for name, way in ways.items() if number == 0 or name != PLAINEST}
        for number in range(ROUNDS)
    ]
    for name in ways:
        found = [one[name] for one in rounds if name in one]
        seconds, tokens = statistics.median(each[0] for each in found), found[0][2]
        memory = max(each[1] for each in found)
        print(
            f"  {name:<34}{size / seconds:>7.1f} MB/s{tokens / seconds / 1e6:>7.2f} Mtoken/s{memory:>8.0f} MB of memory"
        )
    _ratio(rounds, "bare engine, 1 core", "tokens stage, 1 core")
    _ratio(rounds, "bare engine, 2 cores", "tokens stage, 2 cores")
    _ratio(rounds, "Megatron's pattern, 2 processes", "tokens stage, 2 cores")
    _ratio(rounds[:1], PLAINEST, "tokens stage, 1 core")


Timed = tuple[float, int]
"""Seconds, once everything is loaded and its processes run, and tokens."""


def bare_engine(folder: Path, processes: int) -> Timed:
    """Encode texts that are in memory, and throw the ids away."""
    shards = [(_documents(folder, shard), False) for shard in range(SHARDS)]
    if processes == 1:
        for shard in shards:
            _encode_alone(folder, (shard[0], True))
        return _timed(lambda: [_encode_alone(folder, shard) for shard in shards])
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("forkserver")) as pool:
        list(pool.map(partial(_encode_alone, folder), [(shard[0], True) for shard in shards]))
        return _timed(lambda: list(pool.map(partial(_encode_alone, folder), shards)))


@cache
def _texts_of(path: Path) -> list[str]:
    texts: list[str] = read_table(path, ["text"])["text"].to_pylist()
    return texts


def _encode_alone(folder: Path, work: tuple[Path, bool]) -> int:
    """Encode one shard; or (`first`) only load it and the tokenizer."""
    path, first = work
    tokenizer = open_tokenizer(folder / FOLDER)
    texts = _texts_of(path)
    if first:
        texts = texts[:1]
    fast = tokenizer.fast if isinstance(tokenizer, HuggingFaceTokenizer) else None
    if fast is None:
        return sum(ids.size for ids in tokenizer.encode(texts))
    return sum(fast.encoding.encode_to_numpy(text, disallowed_special=()).size for text in texts)


def tokens_stage(folder: Path, workers: int) -> Timed:
    described = read_description(folder / FOLDER)
    work = [EncodeShard(shard, _documents(folder, shard), described.ids) for shard in range(SHARDS)]
    executor = LocalExecutor() if workers == 1 else ProcessExecutor(workers)
    executor.map(partial(_warm, folder), range(8 * workers), lambda _: None)
    timed = _timed(lambda: executor.map(partial(_encode, folder), work, lambda _: None))
    if isinstance(executor, ProcessExecutor):
        executor.close()
    return timed


def _warm(folder: Path, _: int) -> None:
    """Load all that encoding takes, by encoding a little."""
    encode_shard(EncodeShard(SHARDS, folder / "few.parquet", read_description(folder / FOLDER).ids), folder)


def _encode(folder: Path, work: EncodeShard) -> int:
    return encode_shard(work, folder)[1]["tokens"]


def megatron_pattern(folder: Path, processes: int) -> Timed:
    """Workers tokenize JSON lines, one process appends what they return: tools/preprocess_data.py in a few lines."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    context = multiprocessing.get_context("forkserver")
    with context.Pool(processes, _load_transformers, (str(folder / FOLDER),)) as pool:
        pool.map(_encode_line, ['{"text": "先"}'] * 64, 8)

        def run() -> list[int]:
            tokens = 0
            with (
                (folder / "text.jsonl").open(encoding="utf-8") as lines,
                (folder / "megatron.bin").open("wb") as target,
            ):
                for ids in pool.imap(_encode_line, lines, 32):
                    target.write(np.array(ids, np.int32).tobytes())
                    tokens += len(ids)
            return [tokens]

        return _timed(run)


def _load_transformers(folder: str) -> None:
    from transformers import AutoTokenizer

    globals()["TOKENIZER"] = AutoTokenizer.from_pretrained(folder)  # type: ignore[no-untyped-call]


def _encode_line(line: str) -> list[int]:
    tokenizer: Any = globals()["TOKENIZER"]
    return [*tokenizer(json.loads(line)["text"])["input_ids"], tokenizer.eos_token_id]


def plain_script(folder: Path) -> Timed:
    """What tutorials show: a list of all ids, and eos after every line. It is slow, large, and wrong."""
    _load_transformers(str(folder / FOLDER))
    tokenizer: Any = globals()["TOKENIZER"]

    def run() -> list[int]:
        everything: list[int] = []
        with (folder / "text.txt").open(encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    everything.extend(tokenizer.encode(line.strip(), add_special_tokens=False))
                    everything.append(tokenizer.eos_token_id)
        with (folder / "plain.bin").open("wb") as target:
            for start in range(0, len(everything) // SEQ_LENGTH * SEQ_LENGTH, SEQ_LENGTH):
                target.write(np.array(everything[start : start + SEQ_LENGTH], np.int32).tobytes())
        return [len(everything)]

    return _timed(run)


def _timed(run: Callable[[], list[int]]) -> Timed:
    start = time.perf_counter()
    tokens = run()
    return time.perf_counter() - start, sum(tokens)


def _bench_writing(folder: Path) -> None:
    print(
        "\nWriting synthetic ids, one core: plan, gather, check, write .bin, beside the same bytes alone; then the same as"
    )
    print("Megatron and MindRecord (MindSpore's import left out; it takes seconds)\n")
    print(f"  {'tokens':>12}{'.bin':>18}{'peak memory':>14}{'bytes alone':>18}{'Megatron':>18}{'MindRecord':>18}")
    for tokens in SYNTHETIC_TOKENS:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            memory, *seconds = process.submit(_write, folder / str(tokens), tokens).result()
        rates = [tokens / second for second in seconds] + [SHARD_TOKENS / _mindrecord(folder / str(tokens))]
        first, *others = (f"{rate / 1e6:>9.0f} Mtoken/s" for rate in rates)
        print(f"  {tokens:>12,}{first}{memory:>11.0f} MB{''.join(others)}")


def _write(folder: Path, tokens: int) -> tuple[float, float, float, float]:
    """Return peak memory in MB, and the seconds of planning and writing, of writing as many bytes, and of Megatron files."""
    small = folder / "small"
    for place, count in ((small, SYNTHETIC_TOKENS[0] // 100), (folder, tokens)):
        _synthetic(place / "tokens", count)
        start = time.perf_counter()
        _plan_and_write(place)  # first the small one, which compiles
        seconds = time.perf_counter() - start
    memory = peak_memory()
    start = time.perf_counter()
    _write_bytes(folder / "bytes", tokens)
    alone = time.perf_counter() - start
    start = time.perf_counter()
    write_megatron(WriteMegatron("all", folder / "tokens", 0, SHARDS, "copies-train"), folder)
    return memory, seconds, alone, time.perf_counter() - start


def _write_bytes(file: Path, tokens: int) -> None:
    """Write as many bytes as so many ids take, shard by shard, down to the disk."""
    block = np.ones(SHARD_TOKENS, np.uint16)
    for start in range(0, tokens, SHARD_TOKENS):
        with file.open("wb") as stream:
            stream.write(block[: tokens - start].data)
            os.fsync(stream.fileno())


def _plan_and_write(folder: Path) -> None:
    tokens = folder / "tokens"
    given = {"inputs": [{"path": "x", "source": "bench"}], "pack": {"seq_length": SEQ_LENGTH}}
    plan = PlanTokens(tokens, (Path(),) * SHARDS, False, RunConfig.model_validate(given))
    _, counts = plan_tokens(plan, folder)
    copy_files(tokens, folder)
    sequences, most = counts["sequences:train-0"], SHARD_TOKENS // (SEQ_LENGTH + 1)
    for shard, first in enumerate(range(0, sequences, most)):
        place = ShardPlace(f"train-{shard:05d}", "train-0", first, min(most, sequences - first), first)
        ids = TokenIds(VOCABULARY, 0, -1, 1)
        write_shard(WriteShard(place, tokens, SEQ_LENGTH, SEQ_LENGTH + 1, ids, "uint16"), folder)


def _synthetic(folder: Path, tokens: int) -> None:
    """Write a tokens artifact: documents of some 700 tokens, half of them shorter than 350."""
    random = np.random.default_rng(1)
    (folder / FOLDER).mkdir(parents=True)
    for shard in range(SHARDS):
        lengths = 2 + random.lognormal(5.85, 1.2, int(tokens / SHARDS / 700)).astype(np.int64)
        ids = random.integers(2, VOCABULARY, int(lengths.sum()), np.uint16)
        ids[np.cumsum(lengths) - 1] = 0
        ids.tofile(token_file(folder, shard))
        names = [f"bench/{shard}#{number}" for number in range(lengths.size)]
        table = {"id": names, "source": ["bench"] * lengths.size, "tokens": lengths, "characters": lengths}
        write_table(document_file(folder, shard), pa.table(table))
    described = Description(
        kind="hugging_face", file="none", engine="none", reason="", eos_token="0", bos_token=None, pad_token=None,
        vocab_size=VOCABULARY, eos=0, bos=-1, pad=1,
    )  # fmt: skip
    write_description(folder / FOLDER, described)


def _mindrecord(folder: Path) -> float:
    """Return the seconds of writing a shard and reading it back, MindSpore's import left out."""
    header = {"dtype": "uint16", "tokens_a_row": SEQ_LENGTH + 1, "eos": 0, "pad": 1}
    write_json(folder / "train.json", header)
    seconds = []
    rows = np.fromfile(folder / "train-00000.bin", np.uint16).reshape(-1, SEQ_LENGTH + 1)
    rows[:8].tofile(folder / "few.bin")
    for name in ("few", "train-00000"):
        target = folder / "m" / f"{name}.mindrecord"
        file = RecordFile(rows=folder / f"{name}.bin", header=folder / "train.json", target=target)
        start = time.perf_counter()
        write_mindrecord(WriteMindRecord(files=(file,)))
        seconds.append(time.perf_counter() - start)
    return (seconds[1] - seconds[0]) * SHARD_TOKENS / rows.size


def _in_process(way: Callable[[], Timed]) -> tuple[float, float, int]:
    """Return seconds, peak memory in MB of the largest process, and tokens, measured in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_with_memory, way).result()


def _with_memory(way: Callable[[], Timed]) -> tuple[float, float, int]:
    seconds, tokens = way()
    return seconds, peak_memory(), tokens


def _ratio(rounds: list[dict[str, tuple[float, float, int]]], other: str, ours: str) -> None:
    ratios = sorted(found[other][0] / found[ours][0] for found in rounds)
    print(f"  {ours}: {statistics.median(ratios):.2f}x {other} ({ratios[0]:.2f}x to {ratios[-1]:.2f}x)")


def _documents(folder: Path, shard: int) -> Path:
    return folder / f"text-{shard}.parquet"


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 32)
