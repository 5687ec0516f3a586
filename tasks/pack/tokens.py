"""The token ids of whole documents, an artifact of their own: they depend on the tokenizer and the documents alone, so
another sequence length or strategy does not tokenize again.

    tokenizer/                the tokenizer, and description.json: which engine encodes, and why
    tokens-00000.bin          the ids of one shard's documents, each with bos (if configured) and eos
    documents-00000.parquet   id, source, tokens, characters of each document
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from configs.errors import PipelineError
from configs.schema import RunConfig, TokenizerConfig
from tasks.artifact import UnitRecord, merge_counts
from tasks.documents import write_table
from tasks.files import atomic_path, write_json
from tasks.stage import Stage, StageResult, StageRun, UnitResult
from tasks.tokenizer import (
    Description,
    Ids,
    Source,
    TokenIds,
    load,
    open_tokenizer,
    read_description,
    token_ids,
    write_description,
)
from tasks.tokenizer.hugging_face import SETTINGS_FILE
from tasks.tokenizer.round_trip import RoundTrip, round_trip
from tasks.tokenizer.sources import find_source, fingerprint
from tasks.tokenizer.training import train_tokenizer

FOLDER = "tokenizer"
ROUND_TRIP = f"{FOLDER}/round_trip.json"
ENCODE_BATCH = 256
# A vocabulary settles long before a corpus ends; more text than this only costs memory.
TRAINING_CHARACTERS = 200_000_000
# Documents, spread evenly over the corpus, on which the tokenizer's round trip and the fast engine's ids are proved.
SAMPLE_DOCUMENTS, SAMPLE_CHARACTERS = 300, 20_000


@dataclass(frozen=True)
class MakeTokenizer:
    """The work of the first pass's one unit. `stride`: every how manieth document a trained tokenizer sees."""

    documents: tuple[Path, ...]
    stride: int
    sample_stride: int
    config: TokenizerConfig


@dataclass(frozen=True)
class EncodeShard:
    """The work of one unit of the second pass."""

    index: int
    documents: Path
    ids: TokenIds


def token_file(folder: Path, shard: int) -> Path:
    return folder / f"tokens-{shard:05d}.bin"


def document_file(folder: Path, shard: int) -> Path:
    return folder / f"documents-{shard:05d}.parquet"


def document_files(folder: Path) -> list[Path]:
    """Return the lists of documents of all shards, in order; also of a dataset, which has them too."""
    return sorted(folder.glob("documents-*.parquet"))


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the type that ids of a vocabulary are kept in: the smallest that Megatron's readers know too."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.int32)


def map_tokens(folder: Path, shard: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a shard's ids, mapped and not loaded."""
    path = token_file(folder, shard)
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


def build(run: StageRun) -> StageResult:
    given = run.artifact("filter")
    shards, corpus = tuple(given.shards), given.manifest.stats
    if not corpus["documents_kept"]:
        raise PipelineError(
            "pack: no document is left to pack; look at what dedup and filter removed, or add documents"
        )
    stride = max(1, -(-corpus["characters"] // TRAINING_CHARACTERS))
    sample_stride = max(1, corpus["documents_kept"] // SAMPLE_DOCUMENTS)
    made = run.map(
        "tokenizer", make_tokenizer, [MakeTokenizer(shards, stride, sample_stride, run.config.pack.tokenizer)]
    )
    described = read_description(run.draft.folder / FOLDER)
    work = [EncodeShard(index, path, described.ids) for index, path in enumerate(shards)]
    encoded = run.map("encode", encode_shard, work)
    stats = {"engine": described.engine, "engine_because": described.reason} | _counts(made[0], encoded)
    return StageResult([file for record in [*made, *encoded] for file in record.files], stats)


def make_tokenizer(task: MakeTokenizer, folder: Path) -> UnitResult:
    """Write `tokenizer/`: trained or copied, with the fastest engine that gives its ids, proved on the corpus.

    Raises:
        PipelineError: a special token is missing, or the tokenizer changes more documents than may be.
    """
    target, config = folder / FOLDER, task.config
    shutil.rmtree(target, ignore_errors=True)
    found = find_source(config)
    source = _copied(found, target) if found else train_tokenizer(_every(task.documents, task.stride), config, target)
    sample = [text[:SAMPLE_CHARACTERS] for text in _every(task.documents, task.sample_stride)]
    engine, reason = _fastest(source, sample)
    tokenizer = load(source, engine)
    ids, names = token_ids(tokenizer, config.eos_token, config.bos_token, config.pad_token)
    restored = round_trip(tokenizer, sample)
    _check_round_trip(restored, config)
    write_json(folder / ROUND_TRIP, restored.stats())
    described = Description(
        kind=source.kind, file=source.file.name, engine=engine, reason=reason, pattern=source.pattern,
        special_tokens=source.special_tokens, eos_token=str(names["eos"]), bos_token=names["bos"],
        pad_token=names["pad"], vocab_size=ids.vocab_size, eos=ids.eos, bos=ids.bos, pad=ids.pad,
    )  # fmt: skip
    write_description(target, described)
    files: dict[str, int | None] = {f"{FOLDER}/{path.name}": None for path in sorted(target.iterdir())}
    counts = Counter(vocab_size=ids.vocab_size, eos=ids.eos, bos=ids.bos, pad=ids.pad)
    counts["sampled_documents"], counts["sampled_exact"] = len(sample), restored.classes["exact"]
    return files, counts


def encode_shard(task: EncodeShard, folder: Path) -> UnitResult:
    """Write the token ids of one shard's documents, and how many each has. A document without text has none.

    Raises:
        PipelineError: the tokenizer gives a control token for text.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # a process a core; threads would take other shards' cores
    tokenizer, dtype = open_tokenizer(folder / FOLDER), token_dtype(task.ids.vocab_size)
    lengths: list[int] = []
    counts: Counter[str] = Counter()
    source = pq.ParquetFile(task.documents)
    characters = []
    with atomic_path(token_file(folder, task.index)) as temporary, temporary.open("wb") as stream:
        for batch in source.iter_batches(ENCODE_BATCH, columns=["id", "text"]):
            encoded = tokenizer.encode(batch["text"].to_pylist())
            sizes = [_size_of(ids, task.ids) for ids in encoded]
            tokens = _joined(encoded, sizes, task.ids, dtype)
            if int(np.count_nonzero(tokens == task.ids.eos)) != np.count_nonzero(sizes):
                _refuse_control_tokens(batch["id"].to_pylist(), encoded, task.ids)
            stream.write(tokens.data)
            lengths += sizes
            characters.append(pc.cast(pc.utf8_length(batch["text"]), pa.int64()))
            counts["bytes"] += pc.sum(pc.binary_length(batch["text"])).as_py()
    names = source.read(["id", "source"])
    columns = {"tokens": pa.array(lengths, pa.int64()), "characters": pa.chunked_array(characters, pa.int64())}
    documents = pa.table({"id": names["id"], "source": names["source"], **columns})
    rows = write_table(document_file(folder, task.index), documents)
    files: dict[str, int | None] = {
        token_file(folder, task.index).name: None,
        document_file(folder, task.index).name: rows,
    }
    counts.update(tokens=sum(lengths), documents=rows, documents_empty=lengths.count(0))
    counts["characters"] = pc.sum(documents["characters"]).as_py() or 0
    return files, counts


def settings(config: RunConfig) -> dict[str, Any]:
    return fingerprint(config.pack.tokenizer)


def _size_of(ids: Ids, special: TokenIds) -> int:
    """Return the tokens of a document, with bos and eos; none without text."""
    return ids.size + 1 + (special.bos >= 0) if ids.size else 0


def _joined(encoded: Sequence[Ids], sizes: Sequence[int], special: TokenIds, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return documents end to end, each between bos, if there is one, and eos."""
    joined = np.full(sum(sizes), special.eos, dtype)
    place = 0
    for ids, size in zip(encoded, sizes, strict=True):
        if size:
            if special.bos >= 0:
                joined[place] = special.bos
            joined[place + size - 1 - ids.size : place + size - 1] = ids
            place += size
    return joined


def _refuse_control_tokens(names: Sequence[str], encoded: Sequence[Ids], special: TokenIds) -> None:
    index = next(i for i, ids in enumerate(encoded) if (ids == special.eos).any())
    raise PipelineError(
        f"pack.tokenizer: it gives eos (id {special.eos}) for text in document {names[index]}, so that the end of a "
        "document could not be told from it; choose an eos_token that no text is encoded to"
    )


def _fastest(source: Source, sample: Sequence[str]) -> tuple[str, str]:
    """Return the engine that is to encode, and why: tiktoken if it gives the ids of `tokenizers` for all of the sample."""
    if source.kind != "hugging_face":
        return source.kind, f"a {source.kind} file runs on its own library"
    try:
        fast = load(source, "tiktoken")
    except PipelineError as error:
        return "tokenizers", str(error)
    slow = load(source, "tokenizers")
    pairs = zip(fast.encode(sample), slow.encode(sample), strict=True)
    equal = sum(np.array_equal(ours, theirs) for ours, theirs in pairs)
    if equal < len(sample):
        return "tokenizers", f"tiktoken gives other ids for {len(sample) - equal} of {len(sample)} sampled documents"
    return "tiktoken", f"same ids as tokenizers for all of {len(sample)} sampled documents"


def _check_round_trip(restored: RoundTrip, config: TokenizerConfig) -> None:
    if restored.changed_share <= config.max_changed_share:
        return
    found = ", ".join(f"{name} {count}" for name, count in sorted(restored.classes.items()))
    examples = "; ".join(f"{name}: {before!r} becomes {after!r}" for name, (before, after) in restored.examples.items())
    raise PipelineError(
        f"pack.tokenizer: it changes {restored.changed_share:.0%} of {restored.classes.total()} sampled documents "
        f"({found}), more than max_changed_share {config.max_changed_share:.0%}. {examples}. Choose another tokenizer, or "
        "raise pack.tokenizer.max_changed_share if the model is to learn the changed text"
    )


def _copied(source: Source, folder: Path) -> Source:
    folder.mkdir(parents=True)
    settings_file = source.file.with_name(SETTINGS_FILE)
    for file in [source.file, *([settings_file] if settings_file.is_file() else [])]:
        shutil.copyfile(file, folder / file.name)
    return Source(source.kind, folder / source.file.name, source.pattern, source.special_tokens)


def _every(paths: Sequence[Path], stride: int) -> Iterator[str]:
    """Yield the text of every `stride`-th document."""
    position = 0
    for path in paths:
        for batch in pq.ParquetFile(path).iter_batches(ENCODE_BATCH, columns=["text"]):
            texts = batch["text"]
            yield from texts.take(pa.array(range(-position % stride, len(texts), stride), pa.int64())).to_pylist()
            position += len(texts)


def _counts(made: UnitRecord, encoded: Sequence[UnitRecord]) -> dict[str, Any]:
    counts = merge_counts(encoded)
    text_tokens = max(1, counts["tokens"] - counts["documents"])
    return dict(made.counts) | dict(counts) | {"characters_per_token": round(counts["characters"] / text_tokens, 3)}


STAGE = Stage(
    name="tokens",
    version=1,
    libraries=("tokenizers", "tiktoken", "sentencepiece", "numpy", "pyarrow"),
    settings=settings,
    build=build,
)
