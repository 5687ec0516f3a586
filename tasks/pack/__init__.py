"""Chunks to the token dataset: sequences of seq_length + 1 token ids, as MindRecord, with the tokenizer that made them.

Four passes, each restartable: train or copy the tokenizer, encode each shard, place the documents' tokens in sequences,
write MindRecord and read it back. `spans.parquet` says for every run of tokens which document it came from.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib.format import open_memmap

from configs.errors import PipelineError
from configs.schema import PackConfig, RunConfig, TokenizerConfig
from tasks.artifact import UnitRecord
from tasks.documents import write_table
from tasks.files import atomic_path, checksum, write_array
from tasks.pack.sequences import (
    DocumentTokens,
    Indices,
    Spans,
    copies_by_weight,
    fill_sequences,
    place_documents,
    token_dtype,
)
from tasks.pack.tokenizer import (
    PAD_TOKEN,
    SETTINGS_FILE,
    TOKENIZER_FILE,
    TokenIds,
    load_tokenizer,
    named_pad_token,
    save_tokenizer,
    token_ids,
    tokenizer_file,
    train_tokenizer,
)
from tasks.stage import Stage, StageResult, StageRun, UnitResult
from tasks.train.launch import write_mindrecord

SEQUENCES = "sequences.npy"
SPANS = "spans.parquet"
MINDRECORD = "sequences.mindrecord"
ENCODE_BATCH = 1000
# A vocabulary settles long before a corpus ends; more text than this only costs memory.
TRAINING_CHARACTERS = 200_000_000


@dataclass(frozen=True)
class MakeTokenizer:
    """The work of the first pass's one unit. `stride`: every how manieth chunk a trained tokenizer sees."""

    chunks: tuple[Path, ...]
    stride: int
    config: TokenizerConfig


@dataclass(frozen=True)
class EncodeShard:
    """The work of one unit of the second pass."""

    index: int
    chunks: Path
    ids: TokenIds


@dataclass(frozen=True)
class PlaceTokens:
    """The work of the third pass's one unit."""

    chunks: tuple[Path, ...]
    config: PackConfig
    ids: TokenIds
    weights: dict[str, float]
    """Source to how often its documents are taken."""
    seed: int


def build(run: StageRun) -> StageResult:
    config, chunks = run.config.pack, tuple(run.artifact("chunk").shards)
    characters = run.artifact("chunk").manifest.stats["characters"]
    stride = max(1, -(-characters // TRAINING_CHARACTERS))
    made = run.map("tokenizer", make_tokenizer, [MakeTokenizer(chunks, stride, config.tokenizer)])
    ids = TokenIds(**{name: made[0].counts[name] for name in ("vocab_size", "eos", "pad")})
    encoded = run.map("encode", encode_shard, [EncodeShard(index, path, ids) for index, path in enumerate(chunks)])
    placed = run.map("place", place_tokens, [PlaceTokens(chunks, config, ids, _weights(run.config), run.config.seed)])
    written = run.map("mindrecord", write_dataset, [run.draft.folder])
    counts = placed[0].counts
    stats = _stats(counts, encoded, ids, characters)
    return StageResult([file for record in [*made, *placed, *written] for file in record.files], stats)


def make_tokenizer(task: MakeTokenizer, folder: Path) -> UnitResult:
    """Write `tokenizer/`, a Hugging Face folder."""
    if task.config.path is None:
        pad_token: str | None = PAD_TOKEN
        tokenizer = train_tokenizer(_sampled_texts(task), task.config)
    else:
        file = tokenizer_file(task.config.path)
        pad_token = named_pad_token(file)
        tokenizer = load_tokenizer(file)
    ids = token_ids(tokenizer, task.config.eos_token, pad_token)
    save_tokenizer(tokenizer, folder / "tokenizer", task.config.eos_token, pad_token)
    files: dict[str, int | None] = {f"tokenizer/{name}": None for name in (TOKENIZER_FILE, SETTINGS_FILE)}
    return files, Counter(vocab_size=ids.vocab_size, eos=ids.eos, pad=ids.pad)


def encode_shard(task: EncodeShard, folder: Path) -> UnitResult:
    """Write the token ids of one shard of chunks, and how many each of its documents has, eos included."""
    tokenizer = load_tokenizer(folder / "tokenizer" / TOKENIZER_FILE)
    token_file, length_file = _shard_files(folder, task.index)
    dtype = token_dtype(task.ids.vocab_size)
    lengths: list[int] = []
    open_document = chunks = 0
    with atomic_path(token_file) as temporary, temporary.open("wb") as stream:
        for batch in pq.ParquetFile(task.chunks).iter_batches(ENCODE_BATCH, columns=["text", "last"]):
            encodings = tokenizer.encode_batch_fast(batch["text"].to_pylist(), add_special_tokens=False)
            for encoding, last in zip(encodings, batch["last"].to_pylist(), strict=True):
                ids = [*encoding.ids, task.ids.eos] if last else encoding.ids
                stream.write(np.array(ids, dtype).tobytes())
                open_document += len(ids)
                chunks += 1
                if last:
                    lengths.append(open_document)
                    open_document = 0
    write_array(length_file, np.array(lengths, np.int64))
    names = [path.relative_to(folder).as_posix() for path in (token_file, length_file)]
    return dict.fromkeys(names), Counter(tokens=sum(lengths), documents=len(lengths), chunks=chunks)


def place_tokens(task: PlaceTokens, folder: Path) -> UnitResult:
    """Write `sequences.npy` and `spans.parquet`, and check that every token is accounted for.

    Raises:
        PipelineError: the corpus has not enough tokens for one sequence.
    """
    width = task.config.seq_length + 1
    lengths_by_shard = [np.load(_shard_files(folder, index)[1]) for index in range(len(task.chunks))]
    lengths = np.concatenate([np.empty(0, np.int64), *lengths_by_shard])
    sources = _sources(task.chunks)
    copies = copies_by_weight(np.array([task.weights[source] for source in sources]), task.seed)
    taken = int((lengths * copies).sum())
    if taken < width:
        raise PipelineError(
            f"pack: the corpus has {taken} tokens, less than one sequence of pack.seq_length "
            f"{task.config.seq_length} + 1; add documents or lower seq_length"
        )
    dtype = token_dtype(task.ids.vocab_size)
    tokens = DocumentTokens(
        shards=tuple(_map_tokens(_shard_files(folder, index)[0], dtype) for index in range(len(task.chunks))),
        shard_of=np.repeat(np.arange(len(lengths_by_shard)), [part.size for part in lengths_by_shard]),
        offset=np.concatenate([np.empty(0, np.int64), *(np.cumsum(part) - part for part in lengths_by_shard)]),
    )
    spans = place_documents(lengths, copies, width, task.seed)
    sequences = taken // width
    with atomic_path(folder / SEQUENCES) as temporary:
        target: npt.NDArray[Any] = open_memmap(temporary, "w+", dtype, (sequences, width))  # type: ignore[no-untyped-call]
        fill_sequences(spans, tokens, width, target)
        target.flush()  # type: ignore[attr-defined]
        _check(target, spans, lengths, task.ids)
    rows = write_table(folder / SPANS, _spans_table(spans, task.chunks))
    counts = Counter(sequences=sequences, tokens=sequences * width, documents=int(copies.sum()))
    counts["tokens_dropped"] = taken - sequences * width
    begun = spans.document_start == 0
    counts["documents_cut"] = int(np.count_nonzero(spans.tokens[begun] < lengths[spans.document[begun]]))
    for source in sorted(set(sources)):
        chosen = np.array(sources) == source
        counts[f"documents:{source}"] = int(copies[chosen].sum())
        counts[f"tokens:{source}"] = int((lengths * copies)[chosen].sum())
    return {SEQUENCES: None, SPANS: rows}, counts


def write_dataset(source: Path, folder: Path) -> UnitResult:
    """Write the sequences as MindRecord. MindSpore does it, in a process of its own, and reads them back."""
    write_mindrecord(source / SEQUENCES, folder / MINDRECORD)
    return {MINDRECORD: None, f"{MINDRECORD}.db": None}, Counter()


def settings(config: RunConfig) -> dict[str, Any]:
    """Return what decides the output: of a tokenizer file its content does, not its place."""
    section = config.pack.model_dump()
    if config.pack.tokenizer.path is not None:
        file = tokenizer_file(config.pack.tokenizer.path)
        tokenizer = {"file": checksum(file), "pad_token": named_pad_token(file)}
        section["tokenizer"] = tokenizer | {"eos_token": config.pack.tokenizer.eos_token}
    return section | {"seed": config.seed, "weights": _weights(config)}


def _stats(counts: dict[str, int], encoded: list[UnitRecord], ids: TokenIds, characters: int) -> dict[str, Any]:
    tokens_in, documents = (sum(record.counts[name] for record in encoded) for name in ("tokens", "documents"))
    return counts | {
        "tokens_in": tokens_in,
        "vocab_size": ids.vocab_size,
        "eos_id": ids.eos,
        "pad_id": ids.pad,
        "characters_per_token": round(characters / max(1, tokens_in - documents), 3),
        "tokens_a_chunk": round(tokens_in / max(1, sum(record.counts["chunks"] for record in encoded)), 1),
    }


def _sampled_texts(task: MakeTokenizer) -> Any:
    position = 0
    for path in task.chunks:
        for batch in pq.ParquetFile(path).iter_batches(ENCODE_BATCH, columns=["text"]):
            texts = batch["text"].to_pylist()
            yield from texts[-position % task.stride :: task.stride]
            position += len(texts)


def _check(sequences: npt.NDArray[Any], spans: Spans, lengths: Indices, ids: TokenIds) -> None:
    """Compare what was written with what came in; a difference is a fault of this code, not of the input."""
    ends = spans.document_start + spans.tokens == lengths[spans.document]
    places = (spans.sequence[ends], spans.start[ends] + spans.tokens[ends] - 1)
    eos = sum(
        int(np.count_nonzero(part == ids.eos)) for part in np.array_split(sequences, max(1, len(sequences) // 4096))
    )
    if int(spans.tokens.sum()) != sequences.size or eos != int(ends.sum()) or (sequences[places] != ids.eos).any():
        raise RuntimeError(
            f"pack: {spans.tokens.sum()} of {sequences.size} tokens were placed, {eos} eos for {ends.sum()} ends"
        )
    largest = int(sequences.max())
    if largest >= ids.vocab_size:
        raise RuntimeError(f"pack: token id {largest} in a vocabulary of {ids.vocab_size}")


def _weights(config: RunConfig) -> dict[str, float]:
    return {place.source: place.weight for place in config.inputs}


def _sources(chunks: tuple[Path, ...]) -> list[str]:
    """Return the source of each document, in order."""
    tables = [pq.read_table(path, columns=["source", "last"]) for path in chunks]
    return [source for table in tables for source in table["source"].filter(table["last"]).to_pylist()]


def _spans_table(spans: Spans, chunks: tuple[Path, ...]) -> pa.Table:
    names = []
    for path in chunks:
        table = pq.read_table(path, columns=["document_id", "last"])
        names += table["document_id"].filter(table["last"]).chunks
    document_ids = pa.chunked_array(names, pa.string()).take(pa.array(spans.document))
    return pa.table(
        {
            "sequence": spans.sequence,
            "start": spans.start.astype(np.int32),
            "document_id": document_ids,
            "document_start": spans.document_start,
            "tokens": spans.tokens.astype(np.int32),
        }
    )


def _map_tokens(path: Path, dtype: Any) -> Any:
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


def _shard_files(folder: Path, index: int) -> tuple[Path, Path]:
    return folder / "work" / f"tokens-{index:05d}.bin", folder / "work" / f"lengths-{index:05d}.npy"


STAGE = Stage(
    name="pack",
    version=2,
    libraries=("tokenizers", "numpy", "pyarrow", "mindspore"),
    settings=settings,
    build=build,
)
