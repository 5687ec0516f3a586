"""Which documents go, in one pass in order.

A document goes if and only if an earlier document that was kept is similar enough (a star, not a connected component):
deleting whole components removes documents that have no similar survivor. What is decided about a document depends on
those before it alone, so documents that are added later change nothing.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from configs.errors import PipelineError
from configs.schema import DedupConfig
from tasks.compiled import compiled
from tasks.dedup.corpus import (
    DECISION_FILE,
    DECISIONS,
    KEPT,
    SAME_TEXT,
    STAYS,
    Corpus,
    Numbers,
    index_file,
    load,
    load_corpus,
    save,
    work_file,
)
from tasks.dedup.pairs import REPORTED_BESIDE, comparisons
from tasks.documents import read_table
from tasks.stage import UnitResult

Decisions = npt.NDArray[np.void]


@dataclass(frozen=True)
class WholeCorpus:
    """The one unit of a pass over the whole corpus. `takedown`: hashes of ids."""

    config: DedupConfig
    takedown: tuple[int, ...] = ()


def find_copies(_: WholeCorpus, folder: Path) -> UnitResult:
    """Write for each document the number of the first one with the same text, and check that no id stands for two.

    Raises:
        PipelineError: two documents have one id.
    """
    corpus = load_corpus(folder)
    _check_ids(corpus)
    hashes = np.concatenate([np.empty((0, 2), np.uint64), *(s.array(folder, "texts") for s in corpus.shards)])
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    begins = np.ones(order.size, np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first_copy = np.empty(order.size, np.uint32)
    first_copy[order] = order[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    return save(folder, {work_file(folder, "first_copy"): first_copy}), Counter()


def resolve_corpus(task: WholeCorpus, folder: Path) -> UnitResult:
    """Write `DECISIONS` of the new documents; and which of all are taken down, and which are present in the end.

    Counts also how many would go at a threshold lower and higher by 0.1.
    """
    corpus, config = load_corpus(folder), task.config
    first_copy = load(work_file(folder, "first_copy"))
    decided = corpus.earlier_decisions()
    decisions = np.zeros(corpus.count, DECISIONS)
    counts: Counter[str] = Counter()
    others = (config.threshold - REPORTED_BESIDE, config.threshold + REPORTED_BESIDE)
    for threshold in (*(other for other in others if 0 < other < 1), config.threshold):
        decisions[: decided.size] = decided
        decisions["duplicate_of"][decided.size :] = KEPT
        decisions["similarity"][decided.size :] = 0
        decisions["step"][decided.size :] = STAYS
        for unit in comparisons(corpus, config):
            first, last = corpus.shards[unit.shards[0]], corpus.shards[unit.shards[-1]]
            similar = np.array(load(work_file(folder, "similar", unit.number)))
            decide(decisions, first_copy, (first.first, last.end), similar, threshold)
        removed = decisions["duplicate_of"][decided.size :] != KEPT
        counts[f"removed_at_threshold:{threshold:.2f}"] = int(np.count_nonzero(removed))
    known = np.array(task.takedown, np.uint64)
    taken = [np.isin(shard.array(folder, "ids"), known) for shard in corpus.shards]
    taken_down = np.concatenate([np.empty(0, np.bool_), *taken])
    arrays = {
        index_file(folder, DECISION_FILE): decisions[decided.size :],
        work_file(folder, "taken_down"): taken_down,
        work_file(folder, "present"): (decisions["duplicate_of"] == KEPT) & ~taken_down,
    }
    counts["takedown_ids_found"] = int(np.count_nonzero(taken_down))
    return save(folder, arrays), counts


@compiled
def decide(
    decisions: Decisions,
    first_copy: Numbers,
    documents: tuple[int, int],
    similar: npt.NDArray[np.void],
    threshold: float,
) -> None:
    """Decide about some documents, from first to last, those before being decided.

    `similar`: `SIMILAR` of these documents, sorted by later and then earlier one.
    """
    place = 0
    for document in range(documents[0], documents[1]):
        first = first_copy[document]
        if first != document:
            gone = decisions[first].duplicate_of != KEPT
            decisions[document].duplicate_of = decisions[first].duplicate_of if gone else first
            decisions[document].similarity = decisions[first].similarity if gone else np.float32(1)
            decisions[document].step = SAME_TEXT
            continue
        while place < similar.size and similar[place].later < document:
            place += 1
        while place < similar.size and similar[place].later == document:
            pair = similar[place]
            place += 1
            if pair.similarity >= threshold and decisions[pair.earlier].duplicate_of == KEPT:
                decisions[document].duplicate_of = pair.earlier
                decisions[document].similarity = pair.similarity
                decisions[document].step = pair.step
                break


def _check_ids(corpus: Corpus) -> None:
    hashes = np.concatenate([np.empty(0, np.uint64), *(s.array(corpus.draft, "ids") for s in corpus.shards)])
    order = np.argsort(hashes, kind="stable")
    again = order[1:][hashes[order[1:]] == hashes[order[:-1]]]
    if again.size:
        place = int(corpus.shard_of(again.min()))
        shard = corpus.shards[place]
        name = read_table(Path(shard.documents), ["id"])["id"][int(again.min()) - shard.first].as_py()
        raise PipelineError(
            f"dedup: the document id {name!r} is given twice; each input needs a source name of its own, and a file that "
            "an index knows must not be given again"
        )
