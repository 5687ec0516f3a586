"""What dedup did, for people to judge the threshold by: `report.json`.

Clusters by size, the most repeated paragraphs, pairs near the threshold with their true similarity and their differences.
"""

import difflib
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from configs.schema import DedupConfig
from tasks.dedup.corpus import DECISION_FILE, KEPT, Corpus, Numbers, index_file, load, load_corpus, work_files
from tasks.dedup.owners import FREQUENT
from tasks.dedup.pairs import SIMILAR, jaccard
from tasks.dedup.resolve import WholeCorpus
from tasks.dedup.shingles import shingle
from tasks.dedup.write import load_names
from tasks.documents import read_table
from tasks.files import write_json
from tasks.stage import UnitResult

logger = logging.getLogger("mindpretrain")

REPORT = "report.json"
LARGEST, SAMPLED_PAIRS, NEAR = 20, 20, 0.05
# Texts beyond this length are compared by their beginnings, and of the differences the first are shown.
DIFF_CHARACTERS, DIFFERENCES, EXCERPT = 2_000, 10, 200
# More duplicates than this are more often a fault (a wrong text field, an error page in every record) than a corpus.
ALARM_SHARE = 0.6


def write_report(task: WholeCorpus, folder: Path) -> UnitResult:
    """Write `report.json`."""
    corpus = load_corpus(folder)
    frequent, pairs = _most_frequent(folder), _near_threshold(corpus, task.config.threshold)
    shown = _read(corpus, np.unique(np.concatenate([frequent["owner"], pairs["earlier"], pairs["later"]])))
    report = {
        "clusters": _clusters(folder),
        "repeated_paragraphs": [_paragraph(row, *shown[int(row["owner"])]) for row in frequent],
        "pairs_near_threshold": [
            _pair(task.config, *shown[int(pair["earlier"])], *shown[int(pair["later"])]) for pair in pairs
        ],
    }
    write_json(folder / REPORT, report)
    return {REPORT: None}, Counter()


def warn_of_excess(removed: int, documents: int) -> None:
    """Log a warning when more duplicates were found than a healthy corpus has."""
    if documents and removed / documents > ALARM_SHARE:
        logger.warning(
            "dedup: %d of %d documents repeat another, more than %.0f%%: look at the largest clusters in %s; a wrong "
            "text field, or one error page in every record, looks like this",
            removed, documents, 100 * ALARM_SHARE, REPORT,
        )  # fmt: skip


def warn_of_unknown(asked: int, found: int) -> None:
    """Log a warning when documents that are to be taken down are not in the corpus."""
    if found < asked:
        logger.warning("dedup: %d of the %d ids in dedup.takedown_file are not in the corpus", asked - found, asked)


def _clusters(folder: Path) -> list[dict[str, Any]]:
    """Return the kept documents that the most others repeat."""
    decisions, names = load(index_file(folder, DECISION_FILE)), load_names(folder)
    gone = decisions[decisions["duplicate_of"] != KEPT]
    owners, counts = np.unique(gone["duplicate_of"], return_counts=True)
    largest = np.lexsort((owners, -counts))[:LARGEST]
    ids = names.of(owners[largest]).to_pylist()
    return [{"kept": name, "removed": int(count)} for name, count in zip(ids, counts[largest], strict=True)]


def _most_frequent(folder: Path) -> Any:
    """Return `FREQUENT` of the paragraphs of which the most copies went."""
    frequent = np.concatenate([np.empty(0, FREQUENT), *map(load, work_files(folder, "frequent"))])
    return frequent[np.lexsort((frequent["start"], frequent["owner"], -frequent["copies"].astype(np.int64)))][:LARGEST]


def _near_threshold(corpus: Corpus, threshold: float) -> Any:
    """Return `SIMILAR` of pairs near the threshold, sampled evenly by similarity."""
    sampled = [np.empty(0, SIMILAR)]
    for path in work_files(corpus.draft, "similar"):
        similar = load(path)
        sampled.append(_evenly(similar[np.abs(similar["similarity"] - threshold) <= NEAR], SAMPLED_PAIRS * 5))
    return _evenly(np.concatenate(sampled), SAMPLED_PAIRS)


def _evenly(pairs: npt.NDArray[np.void], count: int) -> Any:
    pairs = pairs[np.lexsort((pairs["earlier"], pairs["later"], pairs["similarity"]))]
    return pairs[np.unique(np.linspace(0, max(0, pairs.size - 1), min(count, pairs.size)).astype(int))]


def _read(corpus: Corpus, documents: Numbers) -> dict[int, tuple[str, str]]:
    """Return id and text of documents, by number; each shard that has one of them is read once."""
    shown: dict[int, tuple[str, str]] = {}
    places = corpus.shard_of(documents)
    for place in np.unique(places).tolist():
        shard, inside = corpus.shards[place], documents[places == place]
        rows = read_table(Path(shard.documents), ["id", "text"]).take(pa.array(inside - shard.first)).to_pylist()
        shown.update((number, (row["id"], row["text"])) for number, row in zip(inside.tolist(), rows, strict=True))
    return shown


def _paragraph(row: np.void, name: str, text: str) -> dict[str, Any]:
    paragraph = text.encode()[row["start"] : row["end"]].decode().strip()
    return {"kept_in": name, "copies_removed": int(row["copies"]), "text": excerpt(paragraph, EXCERPT)}


def _pair(config: DedupConfig, earlier: str, earlier_text: str, later: str, later_text: str) -> dict[str, Any]:
    sets = [shingle(text, config.shingle_kind, config.shingle_units) for text in (earlier_text, later_text)]
    return {
        "earlier": earlier,
        "later": later,
        "jaccard": round(float(jaccard(*sets)), 4),
        "differences": differences(earlier_text, later_text),
    }


def differences(earlier: str, later: str) -> list[dict[str, str]]:
    """Return the first differences of two texts, by characters, as what stands in each."""
    left, right = earlier[:DIFF_CHARACTERS], later[:DIFF_CHARACTERS]
    changes = difflib.SequenceMatcher(None, left, right, autojunk=True).get_opcodes()
    found = [
        {"earlier": excerpt(left[a:b], EXCERPT), "later": excerpt(right[c:d], EXCERPT)}
        for kind, a, b, c, d in changes
        if kind != "equal"
    ]
    return found[:DIFFERENCES]


def excerpt(text: str, characters: int) -> str:
    """Return a text, or its beginning and its length."""
    return text if len(text) <= characters else f"{text[:characters]} … ({len(text)} characters)"
