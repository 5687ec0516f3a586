"""Speed and memory of the data stages, as ratios in one run: `make bench`, or `python -m tests.bench [MEGABYTES]`.

Two tables. Stages: each from files to files, in a process of its own, with one worker and with two. Parts: the function
at the heart of a stage beside the plain use of the libraries under it, alternated on the same text and core, medians.

Text: the larger collection beside the project where it is there, else the sample, over and over (which dedup then
removes, so its figures and those of the stages after it say little).
"""

import io
import itertools
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ftfy
import opencc
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from datasketch import MinHash

from configs.schema import NormalizeConfig, RunConfig, TokenizerConfig
from tasks import chunk, dedup, filter, normalize, pack
from tasks.artifact import Manifest
from tasks.dedup.shingles import texts_of
from tasks.dedup.signatures import permutations_of, sign_texts
from tasks.executor import open_executor
from tasks.normalize.text import normalize_text
from tasks.raw import list_raw_files
from tasks.readers.html import is_page
from tasks.stage import Stage, build_artifact
from tasks.tokenizer import load
from tasks.tokenizer.training import train_tokenizer
from tests.conftest import BENCH, SAMPLE

MEGABYTE = 1_000_000
ROUNDS = 5
PART_MEGABYTES = 2
TRAINED_ON_MEGABYTES = 8
SHARD_BYTES = 8_000_000  # enough shards for two workers, and few enough that waiting for the disk is not what is timed
STAGES = (normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE, pack.STAGE)


def main(megabytes: float) -> None:
    texts = list(_up_to(megabytes, _texts()))
    size = _megabytes(texts)
    print(f"{len(texts):,} documents, {size:.1f} MB of text\n\nStages, Parquet to Parquet")
    with tempfile.TemporaryDirectory() as folder:
        _write_raw(texts, Path(folder) / "raw")
        _write_raw(texts[::4], Path(folder) / "quarter")
        _write_raw(texts[:: max(1, len(texts) // 100)], Path(folder) / "small")
        every = max(1, int(size / TRAINED_ON_MEGABYTES))
        source = train_tokenizer(texts[::every], TokenizerConfig(), Path(folder) / "tokenizer")
        alone = _seconds(load(source, "tiktoken").encode, texts)
        quarter, one, two = (
            _time_chain(Path(folder), raw, workers) for raw, workers in (("quarter", 1), ("raw", 1), ("raw", 2))
        )
    print(f"  {'':<12}{'1 worker':>12}{'peak memory':>14}{'of a quarter':>14}{'2 workers':>14}{'speed-up':>10}")
    for stage in STAGES:
        (seconds, memory), (seconds_two, _) = one[stage.name], two[stage.name]
        print(
            f"  {stage.name:<12}{size / seconds:>7.1f} MB/s{memory:>11.0f} MB{quarter[stage.name][1]:>11.0f} MB"
            f"{size / seconds_two:>9.1f} MB/s{seconds / seconds_two:>9.2f}x"
        )
    chain = sum(seconds for seconds, _ in one.values())
    print(
        f"  {'all':<12}{size / chain:>7.1f} MB/s: {chain / alone:.2f}x the time of tokenizing the same text alone, one core"
    )
    part = list(_up_to(PART_MEGABYTES, iter(texts[:: max(1, int(size / PART_MEGABYTES / 4))])))
    print(f"\nParts, one core, {_megabytes(part):.1f} MB, median of {ROUNDS} alternated rounds")
    for name, ours, plain_name, plain in _parts():
        _compare(part, name, ours, plain_name, plain)


Part = Callable[[list[str]], object]


def _parts() -> Iterator[tuple[str, Part, str, Part]]:
    config = NormalizeConfig()
    converter = opencc.OpenCC("t2s")
    yield (
        "normalize_text", lambda texts: [normalize_text(text, config) for text in texts],
        "ftfy.fix_text + OpenCC", lambda texts: [converter.convert(ftfy.fix_text(text)) for text in texts],
    )  # fmt: skip
    permutations = permutations_of(128)
    yield (
        "sign_texts", lambda texts: sign_texts(texts_of(pa.chunked_array([texts])), True, 5, permutations),
        "datasketch, character 5-grams", lambda texts: [_datasketch(text) for text in texts],
    )  # fmt: skip


def _datasketch(text: str) -> MinHash:
    signature = MinHash(num_perm=128)
    signature.update_batch({text[i : i + 5].encode() for i in range(len(text) - 4)})
    return signature


def _compare(texts: list[str], name: str, ours: Part, plain_name: str, plain: Part) -> None:
    size = _megabytes(texts)
    ours(texts[:1]), plain(texts[:1])  # compiled and loaded before the clock starts
    rounds = [(_seconds(ours, texts), _seconds(plain, texts)) for _ in range(ROUNDS)]
    speed, plain_speed = (size / statistics.median(column) for column in zip(*rounds, strict=True))
    ratios = sorted(theirs / own for own, theirs in rounds)
    print(f"  {name} {speed:.1f} MB/s, {plain_name} {plain_speed:.2f} MB/s: {statistics.median(ratios):.1f}x")
    print(f"    ({ratios[0]:.1f}x to {ratios[-1]:.1f}x)")


def _seconds(part: Part, texts: list[str]) -> float:
    """Return processor time: other programs on the machine disturb it less than the clock."""
    start = time.process_time()
    part(texts)
    return time.process_time() - start


def _time_chain(folder: Path, raw: str, workers: int) -> dict[str, tuple[float, float]]:
    """Return stage to seconds and peak memory of its largest process in MB."""
    config = _config(folder, raw, workers, f"{raw}-{workers}")
    small = _config(
        folder, "small", workers, f"small-{raw}-{workers}"
    )  # its own each time, or it would warm nothing up
    figures: dict[str, tuple[float, float]] = {}
    manifest = warm = None
    for stage in STAGES:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            task = process.submit(_time_stage, stage.name, (small, warm), (config, manifest))
            warm, manifest, seconds, memory = task.result()
        figures[stage.name] = (seconds, memory)
    return figures


def _config(folder: Path, raw: str, workers: int, workspace: str) -> RunConfig:
    return RunConfig.model_validate(
        {
            "inputs": [{"path": str(folder / raw), "source": "bench"}],
            "workspace": str(folder / "runs" / workspace),
            "executor": {"workers": workers},
            "normalize": {"shard_bytes": 1 if raw == "small" else SHARD_BYTES},
            "pack": {"tokenizer": {"path": str(folder / "tokenizer")}},
        }
    )


Given = tuple[RunConfig, Manifest | None]


def _time_stage(name: str, small: Given, large: Given) -> tuple[Manifest, Manifest, float, float]:
    """Build a stage's artifact from a few documents first, so that imports and compiled code are not what is timed."""
    stage: Stage = next(stage for stage in STAGES if stage.name == name)
    with open_executor(large[0].executor) as executor:
        warm = build_artifact(stage, small[0], [small[1] or list_raw_files(small[0])], executor)
        start = time.perf_counter()
        manifest = build_artifact(stage, large[0], [large[1] or list_raw_files(large[0])], executor)
        seconds = time.perf_counter() - start
        memory = peak_memory()
    return warm, manifest, seconds, memory


def peak_memory() -> float:
    """Return the largest resident size, in MB, that this process or one of its living children ever had.

    `getrusage` would not do: what it says of a new process begins with the size of the one that started it.
    """
    peaks = []
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        peaks += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    return max(peaks) * 1024 / MEGABYTE


def _texts() -> Iterator[str]:
    if BENCH.is_dir():
        streams = [_records(file) for file in sorted(BENCH.glob("*.jsonl.zst"))]
        for row in itertools.zip_longest(*streams):
            yield from (text for text in row if text is not None and not is_page(text))  # extracting is another matter
        return
    articles = [file.read_text(encoding="utf-8") for file in sorted((SAMPLE / "articles").iterdir())]
    yield from itertools.cycle(articles)


def _records(file: Path) -> Iterator[str]:
    with file.open("rb") as compressed, zstandard.ZstdDecompressor().stream_reader(compressed) as stream:
        for line in io.TextIOWrapper(stream, encoding="utf-8", newline="\n"):
            yield json.loads(line)["text"]


def _up_to(megabytes: float, texts: Iterator[str]) -> Iterator[str]:
    left = megabytes * MEGABYTE
    for text in texts:
        left -= len(text.encode())
        yield text
        if left <= 0:
            return


def _megabytes(texts: list[str]) -> float:
    return sum(len(text.encode()) for text in texts) / MEGABYTE


def _write_raw(texts: list[str], folder: Path) -> None:
    folder.mkdir()
    files = max(8, int(_megabytes(texts) * MEGABYTE / SHARD_BYTES))
    for index in range(files):
        pq.write_table(pa.table({"text": texts[index::files]}), folder / f"{index:03d}.parquet", compression="zstd")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 64)
