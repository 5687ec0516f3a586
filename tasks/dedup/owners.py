"""Which paragraphs repeat those of earlier documents that stay."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from configs.schema import DedupConfig
from tasks.compiled import compiled
from tasks.dedup.corpus import load, load_corpus, save, work_file
from tasks.dedup.pairs import in_range
from tasks.dedup.paragraphs import PARAGRAPHS, Paragraphs
from tasks.stage import UnitResult

REPEATED = np.dtype([("document", "u4"), ("start", "u4"), ("end", "u4"), ("owner", "u4"), ("edge", "u1")])
"""A paragraph that goes: document, first and last byte in it, the first document that has it, 1 for a short edge."""
FREQUENT = np.dtype([("copies", "u4"), ("owner", "u4"), ("start", "u4"), ("end", "u4")])
"""A paragraph that many documents have: how many copies go, and where it stands in the first document."""
MOST_FREQUENT = 20


@dataclass(frozen=True)
class ParagraphRange:
    """The work of one unit: which part of the range of hashes."""

    part: int
    parts: int
    config: DedupConfig


def find_repeated(task: ParagraphRange, folder: Path) -> UnitResult:
    """Write `REPEATED` of the new documents for paragraphs whose hashes lie in one range, and the most frequent ones."""
    corpus = load_corpus(folder)
    present = load(work_file(folder, "present"))
    found = [np.empty(0, PARAGRAPHS)]
    for shard in corpus.shards:
        run = shard.array(folder, "paragraphs")
        part = np.array(run[in_range(run["hash"], task.part, task.parts)])
        part["document"] += np.uint32(shard.first)
        found.append(part[present[part["document"]]])
    paragraphs = np.concatenate(found)
    paragraphs = paragraphs[np.argsort(paragraphs["hash"], kind="stable")]
    repeated, frequent = repeated_of(paragraphs, task.config.paragraph_copies, task.config.edge_copies)
    repeated = repeated[repeated["document"] >= corpus.first_new]
    arrays = {
        work_file(folder, "repeated", task.part): repeated[np.lexsort((repeated["start"], repeated["document"]))],
        work_file(folder, "frequent", task.part): np.sort(frequent)[::-1][:MOST_FREQUENT],
    }
    return save(folder, arrays), Counter()


@compiled
def repeated_of(
    paragraphs: Paragraphs, copies: int, edge_copies: int
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Return `REPEATED` and `FREQUENT` of paragraphs that are sorted by hash, then document and place."""
    repeated, frequent = np.empty(paragraphs.size, REPEATED), np.empty(paragraphs.size, FREQUENT)
    count = groups = documents = begin = 0
    for index in range(paragraphs.size):
        here = paragraphs[index]
        owner = paragraphs[begin]
        if here.hash != owner.hash or index == 0:
            begin, documents = index, 1
            continue
        documents += here.document != paragraphs[index - 1].document
        edge = here.hash & np.uint64(1)
        if documents <= (edge_copies if edge else copies):
            continue
        goes = repeated[count]
        goes.document, goes.start, goes.end = here.document, here.start, here.end
        goes.owner, goes.edge = owner.document, edge
        count += 1
        if groups == 0 or frequent[groups - 1].owner != owner.document or frequent[groups - 1].start != owner.start:
            often = frequent[groups]
            often.copies, often.owner, often.start, often.end = 0, owner.document, owner.start, owner.end
            groups += 1
        frequent[groups - 1].copies += 1
    return repeated[:count], frequent[:groups]
