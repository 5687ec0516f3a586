"""What a stage will write, before it begins: an upper bound, so that a disk that is too small is known in time.

Documents lie in Parquet with zstd, where Chinese text takes a third to a half of its UTF-8. The bounds take raw bytes as
they come, three times as much of compressed ones, and what goes out of a text stage as large as what came in.
"""

import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from configs.schema import ArtifactName, RunConfig
from configs.sizes import show_size
from tasks.artifact import Manifest, Workspace
from tasks.raw import RawCorpus, RawFile
from tasks.train.memory import count_parameters

logger = logging.getLogger("mindpretrain")

COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".zip", ".parquet", ".arrow", ".feather", ".docx")
UNPACKED = 3
INDEX_BYTES, WORK_BYTES = 1500, 1500
"""Of dedup, a document; configs/DEDUP.md has what was measured."""
SCORE_BYTES = 400
DATASET_BYTES = 16
"""A token: ids of documents (2 or 4), sequences (2 or 4), MindRecord (4, or 16 with training columns), spans."""
TRAINING_COLUMNS_BYTES = 14
MINDRECORD_BYTES = 64 * 2**20
"""That MindRecord sets aside for each file, however little is in it."""
CHECKPOINT_BYTES = 12
"""A parameter: weights and two moments of AdamW in float32."""


def warn_if_short(stage: ArtifactName, config: RunConfig, inputs: Sequence[RawCorpus | Manifest]) -> None:
    """Log what the stage will write, and warn where the disk has less."""
    wanted = bytes_to_write(stage, config, inputs)
    free = shutil.disk_usage(config.workspace).free
    if wanted > free:
        logger.warning(
            "%s: it may write up to %s, but %s has %s left; finished shards are kept if it fills up, so free some space now "
            "or later (`mindpretrain artifacts remove`)",
            stage, show_size(wanted), config.workspace, show_size(free),
        )  # fmt: skip
    elif wanted:
        logger.info("%s: will write up to %s; %s are free", stage, show_size(wanted), show_size(free))


def bytes_to_write(stage: ArtifactName, config: RunConfig, inputs: Sequence[RawCorpus | Manifest]) -> int:
    """Return an upper bound of what a stage writes; 0 where it is nothing that matters."""
    given = inputs[0]
    if isinstance(given, RawCorpus):
        return sum(_unpacked(file) for file in given.files)
    forecast = FORECASTS.get(stage)
    return forecast(config, given) if forecast else 0


def _unpacked(file: RawFile) -> int:
    return file.bytes * (UNPACKED if file.name.lower().endswith(COMPRESSED) else 1)


def _dataset(config: RunConfig, chunks: Manifest) -> int:
    """Return the bytes of tokens, sequences and MindRecord. `chunks`: of which the filter's characters are known."""
    filtered = Workspace(Path(config.workspace)).find("filter", chunks.inputs[0])
    characters = int(filtered.stats["characters"]) if filtered else 0
    wide = config.pack.mindrecord_columns == "training"
    tokens = characters * config.pack.epochs * max(1.0, *(place.weight for place in config.inputs))
    size = int(tokens * (DATASET_BYTES + (TRAINING_COLUMNS_BYTES if wide else 0)))
    return size + (size // config.pack.shard_bytes + 2) * MINDRECORD_BYTES


def _checkpoints(config: RunConfig, vocab_size: int) -> int:
    """Return the bytes of the checkpoints that are kept, and of the one that is being written."""
    parameters = count_parameters(config.model, config.model.vocab_size or vocab_size).total
    return parameters * CHECKPOINT_BYTES * (config.pretrain.keep_checkpoints + 1)


def _documents(manifest: Manifest) -> int:
    """Return the bytes of documents or chunks, those taken out included."""
    return sum(file.bytes for file in (*manifest.shards, *manifest.removed))


FORECASTS: dict[ArtifactName, Callable[[RunConfig, Manifest], int]] = {
    "dedup": lambda _, given: _documents(given) + given.stats["documents_kept"] * (INDEX_BYTES + WORK_BYTES),
    "filter": lambda _, given: _documents(given) + given.stats["documents_kept"] * SCORE_BYTES,
    "chunk": lambda _, given: _documents(given) * 11 // 10,
    "pack": _dataset,
    "mix": lambda _, given: sum(file.bytes for file in given.files) * 2,
    "pretrain": lambda config, given: _checkpoints(config, given.stats["vocab_size"]),
}
