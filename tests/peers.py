"""Other tools' way to sign or to deduplicate documents, for the bench: run in an environment of their own.

    python tests/peers.py METHOD TEXTS.parquet

prints the processor time in seconds that METHOD takes for the column `text`, imports and reading aside. This file imports
nothing of the project, whose environment the tools would change.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

PERMUTATIONS, SHINGLE = 128, 5


def main(method: str, file: Path) -> None:
    texts = pq.read_table(file, columns=["text"])["text"].to_pylist()
    methods = {"rensa": rensa, "datatrove-words": datatrove_words, "datatrove-characters": datatrove_characters}
    with tempfile.TemporaryDirectory() as folder:
        print(methods[method](texts, file, Path(folder)))


def rensa(texts: list[str], _: Path, __: Path) -> float:
    """Signatures from Python strings, one a shingle."""
    from rensa import RMinHash

    start = time.process_time()
    for text in texts:
        RMinHash(num_perm=PERMUTATIONS, seed=1).update([text[i : i + SHINGLE] for i in range(len(text) - SHINGLE + 1)])
    return time.process_time() - start


def datatrove_words(texts: list[str], _: Path, folder: Path) -> float:
    """datatrove's first step alone with its own word splitter for Chinese."""
    from datatrove.data import Document
    from datatrove.pipeline.dedup.minhash import MinhashDedupSignature

    step = MinhashDedupSignature(str(folder), language="cmn_Hani")
    step.word_tokenizer.word_tokenize("先让它把词典读进来")
    documents = [Document(text=text, id=str(place)) for place, text in enumerate(texts)]
    start = time.process_time()
    step.run(iter(documents), 0, 1)
    return time.process_time() - start


def datatrove_characters(_: list[str], file: Path, folder: Path) -> float:
    """datatrove's four steps, Parquet to Parquet, with single characters for words."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter
    from loguru import logger

    logger.remove()
    config = MinhashConfig()
    signature = MinhashDedupSignature(str(folder / "signatures"), config)
    signature.word_tokenizer = Characters()
    signatures, buckets, removed = (str(folder / name) for name in ("signatures", "buckets", "removed"))
    pipelines: list[tuple[list[Any], int]] = [
        ([ParquetReader(str(file.parent), glob_pattern=file.name), signature], 1),
        ([MinhashDedupBuckets(signatures, buckets, config=config)], config.num_buckets),
        ([MinhashDedupCluster(buckets, removed, config=config)], 1),
        (
            [
                ParquetReader(str(file.parent), glob_pattern=file.name),
                MinhashDedupFilter(removed),
                ParquetWriter(str(folder / "kept")),
            ],
            1,
        ),
    ]
    start = time.process_time()
    for place, (pipeline, tasks) in enumerate(pipelines):
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=1, logging_dir=str(folder / f"log{place}")).run()
    return time.process_time() - start


class Characters:
    """A word splitter after datatrove's interface: each character is a word."""

    def word_tokenize(self, text: str) -> list[str]:
        return list(text.replace(" ", ""))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
