"""Speed, memory and correctness of dedup: the second half of `make bench`, or `python -m tests.bench_dedup`.

Signatures and the whole stage beside datasketch, rensa and datatrove, on the same documents and core, alternated. The
peers live in an environment of their own, `.bench-peers`, made at the first call, because installed together they put
one another's versions back. Then how time and memory grow, and how right the result is against brute force.
"""

import json
import multiprocessing
import random
import shutil
import statistics
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from configs.schema import RunConfig
from tasks import dedup, normalize
from tasks.artifact import Manifest
from tasks.dedup.shingles import texts_of
from tasks.dedup.signatures import permutations_of, sign_texts
from tasks.executor import LocalExecutor, open_executor
from tasks.raw import list_raw_files
from tasks.stage import build_artifact
from tests import bench
from tests.conftest import PROJECT
from tests.dedup_quality import measure

PEERS = PROJECT / ".bench-peers"
PACKAGES = ("rensa==0.5.0", "datatrove[io,processing]==0.10.1", "spacy==3.8.18", "jieba==0.42.1", "orjson")
ROUNDS = 3
PEER_MEGABYTES, PEER_STAGE_MEGABYTES, STAGE_MEGABYTES = 2, 16, 160
SHARD_BYTES = 2_000_000  # compressed; enough shards for two workers to end together
SIZES = (30_000, 120_000, 480_000)
# In the measurement of growth: characters of a document, whose number is what matters; and how often each is repeated.
SCALE_CHARACTERS, VERSIONS = 800, 13
QUALITY_DOCUMENTS = 3000


class Cost(NamedTuple):
    """Seconds by the clock, seconds of the first process's processor, and the largest process in MB."""

    seconds: float
    processor: float
    memory: float


def main() -> None:
    everything = list(bench._texts())
    with tempfile.TemporaryDirectory() as folder:
        compare_with_peers(everything, Path(folder))
        two_workers(everything, Path(folder))
        grow(everything, Path(folder))
        judge(everything, Path(folder))


def compare_with_peers(texts: list[str], folder: Path) -> None:
    """Print rates of signing and of the whole stage, in processor time, median of alternated rounds."""
    install_peers()
    part = list(bench._up_to(PEER_MEGABYTES, iter(texts[:: max(1, len(texts) // 800)])))
    size = bench._megabytes(part)
    file = folder / "peers" / "texts.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"text": part, "id": [str(place) for place in range(len(part))]}), file)
    permutations = permutations_of(128)
    column = pa.chunked_array([part])
    signing: dict[str, Callable[[], float]] = {
        "ours, mixed-5": lambda: _seconds(lambda: sign_texts(texts_of(column), True, 5, permutations), 10),
        "ours, char-5": lambda: _seconds(lambda: sign_texts(texts_of(column), False, 5, permutations), 10),
        "datasketch update_batch": lambda: _seconds(lambda: [bench._datasketch(text) for text in part]),
        "rensa from Python tokens": lambda: _peer("rensa", file),
        "datatrove, its Chinese words": lambda: _peer("datatrove-words", file),
    }
    print(f"Signatures, one core, {size:.1f} MB in {len(part)} documents, median of {ROUNDS} alternated rounds")
    _print_rates(signing, size)
    part = list(bench._up_to(PEER_STAGE_MEGABYTES, iter(texts)))
    size = bench._megabytes(part)
    pq.write_table(pa.table({"text": part, "id": [str(place) for place in range(len(part))]}), file)
    stages: dict[str, Callable[[], float]] = {
        "ours": lambda: _stage_seconds(folder / "peers", {}),
        "ours, whole documents alone": lambda: _stage_seconds(
            folder / "peers", {"paragraph_characters": 0, "edge_characters": 0, "min_characters_left": 0}
        ),
        "datatrove, four steps": lambda: _peer("datatrove-characters", file),
    }
    print(f"\nThe whole stage, Parquet to Parquet, {size:.0f} MB: datatrove on characters, ours as it comes")
    _print_rates(stages, size)


def two_workers(texts: list[str], folder: Path) -> None:
    part = list(bench._up_to(STAGE_MEGABYTES, iter(texts)))
    size = bench._megabytes(part)
    bench._write_raw(part, folder / "two")
    print(f"\nThe whole stage on {size:.0f} MB, by the clock")
    seconds = {}
    for workers in (1, 2):
        seconds[workers], _, memory = _in_process(folder, "two", workers)
        print(
            f"  {workers} worker{'s' if workers > 1 else ' '}{size / seconds[workers]:8.1f} MB/s   "
            f"largest process {memory:.0f} MB"
        )
    print(f"  speed-up {seconds[1] / seconds[2]:.2f}x")


def grow(texts: list[str], folder: Path) -> None:
    """Print time and peak memory for ever more documents, each an edit of one before."""
    print(
        f"\nGrowth, one worker, documents of {SCALE_CHARACTERS} characters, each in {VERSIONS} versions by seeded edits"
    )
    memories = []
    for size in SIZES:
        raw = folder / f"grow{size}"
        write_edited(texts[: size // VERSIONS], raw, size)
        cost = _in_process(folder, raw.name, 1)
        memories.append(cost.memory)
        print(
            f"  {size:>9,} documents{cost.seconds:8.1f} s{cost.processor:8.1f} s of the processor, "
            f"{1e6 * cost.processor / size:.0f} µs a document{cost.memory:8.0f} MB",
            flush=True,
        )
        shutil.rmtree(raw)
        shutil.rmtree(folder / "runs", ignore_errors=True)
    added = (memories[-1] - memories[0]) * 1e6 / (SIZES[-1] - SIZES[0])
    print(f"  {added:.0f} bytes of memory for each document more")


def judge(texts: list[str], folder: Path) -> None:
    part = list(islice(texts, QUALITY_DOCUMENTS))
    print(f"\nAgainst the exact similarity of all pairs of {len(part)} documents, threshold 0.8")
    for verify in ("exact", "signatures"):
        found = measure(part, folder / f"quality-{verify}", verify)
        print(
            f"  verify: {verify:<11} {found.removed} removed, {found.removed_without_survivor} of them without a similar "
            f"document left; {found.similar_pairs_left} similar pairs left in a band; "
            f"{found.found} of {found.pairs} pairs above 0.85 found ({found.recall:.4f})"
        )


def install_peers() -> None:
    ready = PEERS / ".ready"
    if not ready.exists():
        print(f"Installing datatrove and rensa into {PEERS.name} ...", flush=True)
        venv.create(PEERS, with_pip=True, clear=True)
        subprocess.run(
            [str(PEERS / "bin" / "pip"), "install", "--quiet", *PACKAGES], check=True, stderr=subprocess.DEVNULL
        )
        ready.touch()


def write_edited(texts: list[str], folder: Path, documents: int) -> None:
    """Write documents to JSON lines: the texts over and over, each time with other small edits."""
    draw = random.Random(1)
    folder.mkdir()
    files = [(folder / f"{number}.jsonl").open("w", encoding="utf-8") for number in range(8)]
    for number in range(documents):
        text = texts[number % len(texts)][:SCALE_CHARACTERS]
        place = draw.randrange(len(text) + 1)
        edited = f"{text[:place]}第{number}处改动{text[place:]}" if number >= len(texts) else text
        files[number * len(files) // documents].write(json.dumps({"text": edited}, ensure_ascii=False) + "\n")
    for file in files:
        file.close()


def _print_rates(methods: dict[str, Callable[[], float]], size: float) -> None:
    for method in methods.values():
        method()  # compiled and loaded before the clock starts
    rounds = [{name: method() for name, method in methods.items()} for _ in range(ROUNDS)]
    first = next(iter(methods))
    for name in methods:
        rate = size / statistics.median(seconds[name] for seconds in rounds)
        ratio = statistics.median(seconds[name] / seconds[first] for seconds in rounds)
        print(f"  {name:<30}{rate:9.2f} MB/s{'' if name == first else f'   ours is {ratio:.1f}x as fast'}", flush=True)


def _seconds(function: Callable[[], object], times: int = 1) -> float:
    start = time.process_time()
    for _ in range(times):
        function()
    return (time.process_time() - start) / times


def _peer(method: str, file: Path) -> float:
    command = [str(PEERS / "bin" / "python"), str(PROJECT / "tests" / "peers.py"), method, str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def _config(
    folder: Path, raw: str, workers: int, section: dict[str, object], shard_bytes: int = SHARD_BYTES
) -> RunConfig:
    return RunConfig.model_validate(
        {
            "inputs": [{"path": str(folder / raw), "source": "bench"}],
            "workspace": str(folder / "runs"),
            "executor": {"workers": workers},
            "normalize": {"shard_bytes": shard_bytes},
            "dedup": section,
        }
    )


def _stage_seconds(folder: Path, section: dict[str, object]) -> float:
    config = _config(folder, "texts.parquet", 1, section)
    given = build_artifact(normalize.STAGE, config, [list_raw_files(config)], LocalExecutor())
    shutil.rmtree(folder / "runs" / "artifacts" / "dedup", ignore_errors=True)
    return _seconds(lambda: build_artifact(dedup.STAGE, config, [given], LocalExecutor()))


def _in_process(folder: Path, raw: str, workers: int) -> Cost:
    """Build the stage in a process of its own, so that its peak memory is its own.

    The documents are normalized before, and so are a few short ones, with which compiled code is loaded.
    """
    if not (folder / "warm").exists():
        write_edited(["预热用的几篇短文，内容无关紧要，只要够长，能切出几个片段来。" * 3], folder / "warm", 40)
    configs = _config(folder, "warm", workers, {}, shard_bytes=1), _config(folder, raw, workers, {})
    given = []
    for config in configs:
        with open_executor(config.executor) as executor:
            given.append(build_artifact(normalize.STAGE, config, [list_raw_files(config)], executor))
    shutil.rmtree(folder / "runs" / "artifacts" / "dedup", ignore_errors=True)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(_time_stage, configs, given).result()


def _time_stage(configs: Sequence[RunConfig], given: Sequence[Manifest]) -> Cost:
    with open_executor(configs[0].executor) as executor:
        build_artifact(dedup.STAGE, configs[0], given[:1], executor)
        start, processor = time.perf_counter(), time.process_time()
        build_artifact(dedup.STAGE, configs[1], given[1:], executor)
        return Cost(time.perf_counter() - start, time.process_time() - processor, bench.peak_memory())


if __name__ == "__main__":
    main()
