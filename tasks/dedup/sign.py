"""The first pass: what has to be known of each document to compare it, by shard. The documents are read once."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from configs.schema import DedupConfig
from tasks.dedup.corpus import index_file, save
from tasks.dedup.paragraphs import hash_paragraphs, hash_texts
from tasks.dedup.shingles import texts_of
from tasks.dedup.signatures import band_keys, bands_and_rows, permutations_of, sign_texts
from tasks.documents import read_table
from tasks.stage import UnitResult


@dataclass(frozen=True)
class SignShard:
    """The work of one unit."""

    index: int
    documents: Path
    config: DedupConfig


def sign_shard(task: SignShard, folder: Path) -> UnitResult:
    """Write the index of one shard: signatures, bands, hashes of ids, of whole texts and of paragraphs.

    Bands are sorted by key, and paragraphs by hash, so that the passes over all shards merge sorted runs. Documents
    shorter than one shingle are in no band: only an exact copy of them is a duplicate.
    """
    config = task.config
    table = read_table(task.documents, ["id", "source", "text"])
    texts = texts_of(table["text"])
    permutations = permutations_of(config.permutations, config.scheme)
    signatures, shingles = sign_texts(texts, config.shingle_kind == "mixed", config.shingle_units, permutations)
    comparable = np.flatnonzero(shingles).astype(np.uint32)
    bands = bands_of(config)
    keys = band_keys(signatures[comparable], *bands)
    order = np.argsort(keys, axis=1, kind="stable")
    paragraphs = hash_paragraphs(
        texts, table["source"].to_pylist(), config.paragraph_characters, config.edge_characters
    )
    arrays: dict[str, npt.NDArray[Any]] = {
        "signatures": signatures,
        "band_keys": np.take_along_axis(keys, order, axis=1),
        "band_documents": comparable[order],
        "ids": np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in table["id"].to_pylist()], np.uint64),
        "texts": hash_texts(texts),
        "paragraphs": paragraphs[np.argsort(paragraphs["hash"], kind="stable")],
    }
    files = save(folder, {index_file(folder, name, task.index): array for name, array in arrays.items()})
    return files, Counter(documents=table.num_rows, paragraphs=len(paragraphs))


def bands_of(config: DedupConfig) -> tuple[int, int]:
    """Return the number of bands and the rows of each that the configuration gives, or else datasketch's optimum."""
    if config.bands and config.rows:
        return config.bands, config.rows
    return bands_and_rows(config.threshold, config.permutations)
