"""Which documents are trained on and how often, where their tokens go, and which sequences make which file."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from configs.errors import PipelineError
from configs.schema import PackConfig, RunConfig
from tasks.artifact import Manifest, UnitRecord
from tasks.files import write_array
from tasks.pack.chunks import chunk_runs
from tasks.pack.corpus import Corpus
from tasks.pack.held_out import HoldOutShard, choose_shard, compare_shard, held_out_documents
from tasks.pack.plan import Indices, Plan, Runs, best_fit, concat, copies_by_weight, cut_documents, whole_documents
from tasks.pack.report import source_figures
from tasks.pack.write import ShardPlace, plan_folder
from tasks.stage import StageRun, UnitResult

TRAIN, HELD_OUT = "train", "held_out"


@dataclass(frozen=True)
class PlanTokens:
    """The work of the planning pass's one unit."""

    tokens: Path
    """Folder of the tokens artifact."""
    chunks: tuple[Path, ...]
    holds_out: bool
    config: RunConfig


def hold_out(run: StageRun, documents: Sequence[Path], made: Manifest) -> list[UnitRecord]:
    """Choose the held-out documents in two passes, if there are to be any."""
    share = run.config.pack.held_out_share
    if not share:
        return []
    rows = [file.rows or 0 for file in made.files if file.name.startswith("documents-")]
    work = [
        HoldOutShard(index, path, first, share, run.config.seed)
        for index, (path, first) in enumerate(zip(documents, accumulate([0, *rows[:-1]]), strict=True))
    ]
    chosen = run.map("hold-out", choose_shard, work)
    return [*chosen, *run.map("compare", compare_shard, [(shard, len(documents)) for shard in work])]


def plan_tokens(task: PlanTokens, folder: Path) -> UnitResult:
    """Say where every token goes: one plan for each pass over the training documents, and one for the held-out ones.

    Raises:
        PipelineError: there are not enough tokens for one sequence.
    """
    config, seed, width = task.config.pack, task.config.seed, task.config.pack.seq_length + 1
    sources = [place.source for place in task.config.inputs]
    corpus = Corpus.read(task.tokens, len(task.chunks), sources)
    files = corpus.save(folder)
    held_out, moved_back = held_out_documents(folder, len(task.chunks) if task.holds_out else 0, corpus.lengths.size)
    if corpus.lengths[held_out].sum() < width:  # not one sequence to evaluate
        held_out[:] = False
    units = _units(config, corpus, task.chunks)
    weights = np.array([place.weight for place in task.config.inputs])
    copies = copies_by_weight(weights[corpus.sources], seed)
    counts = Counter(held_out_near_duplicates=moved_back)
    for split, taken in ((TRAIN, np.where(held_out, 0, copies)), (HELD_OUT, held_out.astype(np.int64))):
        write_array(plan_folder(folder, f"copies-{split}.npy"), taken)
        tokens = int((corpus.lengths * taken).sum())
        if split == TRAIN and tokens < width:
            raise PipelineError(
                f"pack: the corpus has {tokens} tokens, less than one sequence of pack.seq_length "
                f"{config.seq_length} + 1; add documents or lower seq_length"
            )
        for epoch in range(config.epochs if split == TRAIN else 1):
            plan = _plan(config, _repeated(units, taken), np.random.default_rng([seed, epoch, split == HELD_OUT]))
            name = f"{split}-{epoch}"
            files += plan.save(plan_folder(folder, name))
            counts[f"sequences:{name}"] = plan.order.size
            counts.update({f"dropped:{split}": plan.dropped, f"covered:{split}": plan.covered})
            counts[f"ends:{split}"] += plan.ended(corpus.lengths)
        counts.update({f"tokens:{split}": tokens, f"documents:{split}": int((taken * (corpus.lengths > 0)).sum())})
        if split == TRAIN:
            counts.update({f"source:{name}": number for name, number in source_figures(corpus, taken, sources).items()})
    files += [plan_folder(folder, f"copies-{split}.npy") for split in (TRAIN, HELD_OUT)]
    return {file.relative_to(folder).as_posix(): None for file in files}, counts


def shard_places(config: PackConfig, counts: Counter[str], dtype: str) -> list[ShardPlace]:
    """Return the shards of all plans, numbered through each split."""
    most = max(1, config.shard_bytes // ((config.seq_length + 1) * np.dtype(dtype).itemsize))
    places: list[ShardPlace] = []
    for split in (TRAIN, HELD_OUT):
        shard = number = 0
        for epoch in range(config.epochs if split == TRAIN else 1):
            plan = f"{split}-{epoch}"
            for first in range(0, counts[f"sequences:{plan}"], most):
                sequences = min(most, counts[f"sequences:{plan}"] - first)
                places.append(ShardPlace(f"{split}-{shard:05d}", plan, first, sequences, number))
                shard, number = shard + 1, number + sequences
    return places


def split_of(shard: str) -> str:
    """Return the split that a shard's name says, such as train of train-00000."""
    return shard.rpartition("-")[0]


def of_split(places: Sequence[ShardPlace], split: str) -> tuple[ShardPlace, ...]:
    return tuple(place for place in places if split_of(place.name) == split)


def stride_of(config: PackConfig) -> int:
    return config.seq_length + (config.strategy == "best_fit")


def _units(config: PackConfig, corpus: Corpus, chunks: tuple[Path, ...]) -> Runs:
    """Return what is laid whole, of each document once: the document, its chunks, or pieces that fit a sequence."""
    if config.strategy == "best_fit":
        return cut_documents(corpus.lengths, chunk_runs(corpus, chunks), config.seq_length + 1)
    if config.shuffle == "chunks":
        return chunk_runs(corpus, chunks)
    return whole_documents(corpus.lengths, np.ones_like(corpus.lengths))


def _plan(config: PackConfig, units: Runs, random: np.random.Generator) -> Plan:
    width = config.seq_length + 1
    if config.strategy == "best_fit":
        return best_fit(units, width, config.max_padding_share, random)
    return concat(units, width, random)


def _repeated(runs: Runs, copies: Indices) -> Runs:
    return runs.take(np.repeat(np.arange(runs.tokens.size), copies[runs.document]))
