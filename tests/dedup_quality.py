"""How right dedup is, measured against the exact Jaccard similarity of all pairs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from configs.schema import DedupConfig, RunConfig
from tasks import dedup, normalize
from tasks.compiled import compiled
from tasks.dedup.pairs import jaccard, shingles_of
from tasks.dedup.shingles import texts_of
from tasks.dedup.sign import bands_of
from tasks.dedup.signatures import band_keys, permutations_of, sign_texts
from tests.conftest import build_chain

Pairs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Quality:
    """Figures of one run of dedup without its paragraph rules.

    removed_without_survivor: removed documents to which no earlier kept one is similar.
    similar_pairs_left: pairs of kept documents that agree in a band and are similar all the same.
    pairs, found: pairs at least 0.05 above the threshold, and how many of them agree in a band.
    """

    documents: int
    removed: int
    removed_without_survivor: int
    similar_pairs_left: int
    pairs: int
    found: int

    @property
    def recall(self) -> float:
        return self.found / self.pairs


def measure(texts: list[str], folder: Path, verify: str) -> Quality:
    """Run normalize and dedup over texts, and compare every pair of documents."""
    (folder / "raw").mkdir(parents=True)
    pq.write_table(pa.table({"text": texts}), folder / "raw" / "texts.parquet")
    settings = {"verify": verify, "paragraph_characters": 0, "edge_characters": 0, "min_characters_left": 0}
    config = RunConfig.model_validate(
        {
            "inputs": [{"path": str(folder / "raw"), "source": "raw"}],
            "workspace": str(folder / "runs"),
            "dedup": settings,
        }
    )
    given, artifact = build_chain(config, normalize.STAGE, dedup.STAGE)
    table = pa.concat_tables([pq.read_table(path, columns=["id", "text"]) for path in given.shards])
    kept_ids = {name for path in artifact.shards for name in pq.read_table(path, columns=["id"])["id"].to_pylist()}
    kept = np.array([name in kept_ids for name in table["id"].to_pylist()])
    similar, bands = _similar_pairs(table["text"], config.dedup)
    certain = similar[:, 2] == 1
    survivors = similar[kept[similar[:, 0]], 1]
    return Quality(
        documents=kept.size,
        removed=int(np.count_nonzero(~kept)),
        removed_without_survivor=int(np.count_nonzero(~kept & ~np.isin(np.arange(kept.size), survivors))),
        similar_pairs_left=int(np.count_nonzero(bands & kept[similar[:, 0]] & kept[similar[:, 1]])),
        pairs=int(np.count_nonzero(certain)),
        found=int(np.count_nonzero(certain & bands)),
    )


def _similar_pairs(column: pa.ChunkedArray, config: DedupConfig) -> tuple[Pairs, npt.NDArray[np.bool_]]:
    """Return pairs at or above the threshold as earlier, later, and 1 where they are 0.05 above it; and whether they agree
    in a band. Equal texts count as agreeing: they are found without bands."""
    texts = texts_of(column)
    hashes, sizes = shingles_of(texts, config.shingle_kind == "mixed", config.shingle_units)
    pairs = _compare_all(hashes, np.cumsum(sizes) - sizes, sizes, config.threshold)
    signatures, _ = sign_texts(texts, config.shingle_kind == "mixed", config.shingle_units, permutations_of(128))
    keys = band_keys(signatures, *bands_of(config))
    return pairs, (keys[:, pairs[:, 0]] == keys[:, pairs[:, 1]]).any(axis=0)


@compiled
def _compare_all(hashes: npt.NDArray[np.uint64], starts: Pairs, sizes: Pairs, threshold: float) -> Pairs:
    pairs = np.empty((starts.size * 100, 3), np.int64)
    count = 0
    for later in range(starts.size):
        right = hashes[starts[later] : starts[later] + sizes[later]]
        for earlier in range(later):
            if min(sizes[earlier], sizes[later]) < threshold * max(sizes[earlier], sizes[later]) or not sizes[later]:
                continue
            similarity = jaccard(hashes[starts[earlier] : starts[earlier] + sizes[earlier]], right)
            if similarity >= threshold:
                pairs[count, 0], pairs[count, 1] = earlier, later
                pairs[count, 2] = 1 if similarity >= threshold + 0.05 else 0
                count += 1
    return pairs[:count]
