"""What people look at to see that a dataset is right: figures, and sequences as text with document ends marked.

`report.json` holds them, `report.html` shows them: one page without anything to load, each token in a colour of its own.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from unicodedata import east_asian_width

import numpy as np
import numpy.typing as npt

from configs.schema import PackConfig
from tasks.files import atomic_path, write_json
from tasks.pack.checks import LARGEST_DEVIATION, examine, mixing_deviation, newline_table
from tasks.pack.corpus import Corpus
from tasks.pack.dataset import Dataset
from tasks.stage import UnitResult
from tasks.tokenizer import TokenIds

REPORT, PAGE = "report.json", "report.html"
SAMPLES = 20
EXAMINED_TOKENS = 2_000_000
WRAP_COLUMNS = 40
DOCUMENT_END = "⟦end of document⟧"

STYLE = """
body { font: 15px/1.6 system-ui, "Noto Sans SC", "Noto Sans CJK SC", sans-serif; margin: 2em auto; max-width: 60em;
       padding: 0 1em; color: #222; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .15em 1em .15em 0; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.bar { background: #4a7fb5; height: .9em; display: inline-block; vertical-align: middle; }
.scroll { overflow-x: auto; }
.alarm { background: #fff1e0; border-left: 4px solid #d9822b; padding: .4em 1em; }
.sequence { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid #ddd; padding: .8em; font-size: 13px; }
.source { color: #777; font-size: 12px; } .end { color: #b3261e; font-weight: 600; }
.t0 { background: #e3f0ff; } .t1 { background: #fff3d6; } .t2 { background: #e5f6e5; } .t3 { background: #fbe4ee; }
"""


@dataclass(frozen=True)
class WriteReport:
    """The work of the last pass's one unit. `shards`: names of the training shards; `stats`: the stage's figures."""

    shards: tuple[str, ...]
    tokens: Path
    stats: dict[str, Any]
    config: PackConfig
    ids: TokenIds


def write_report(task: WriteReport, folder: Path) -> UnitResult:
    """Write `report.json` and `report.html`."""
    dataset = Dataset(folder)
    places = evenly(len(dataset), SAMPLES)
    sequences = [(number, list(dataset.decoded(number))) for number in places]
    samples = [
        {
            "sequence": number,
            "runs": [{"document": span.document, "ends": span.ends, "text": "".join(texts)} for span, texts in spans],
        }
        for number, spans in sequences
    ]
    corpus = Corpus.open(folder, task.tokens)
    copies = np.load(folder / "work" / "copies-train.npy")
    report = {
        "stats": task.stats,
        "alarms": _alarms(task, folder, dataset, corpus),
        "document_tokens": _histogram(np.repeat(corpus.lengths, copies)),
        "samples": samples,
    }
    write_json(folder / REPORT, report)
    with atomic_path(folder / PAGE) as temporary:
        temporary.write_text("".join(_page(report, sequences)), encoding="utf-8")
    return {REPORT: None, PAGE: None}, Counter()


def alarms(folder: Path) -> list[str]:
    """Return what the report warns of."""
    return list(json.loads((folder / REPORT).read_text(encoding="utf-8"))["alarms"])


def sample_texts(folder: Path) -> Iterator[str]:
    """Yield sampled sequences as text, document ends marked."""
    for sample in json.loads((folder / REPORT).read_text(encoding="utf-8"))["samples"]:
        yield "".join(f"{run['text']}{DOCUMENT_END if run['ends'] else ''}" for run in sample["runs"])


def wrapped(text: str) -> str:
    """Return text in lines that fit a telephone; a Chinese character takes two columns."""
    lines = []
    for line in text.split("\n"):
        begin = width = 0
        for place, character in enumerate(line):
            columns = 2 if east_asian_width(character) in "WF" else 1
            if width + columns > WRAP_COLUMNS:
                lines.append(line[begin:place])
                begin, width = place, 0
            width += columns
        lines.append(line[begin:])
    return "\n".join(lines)


def source_figures(corpus: Corpus, copies: npt.NDArray[np.int64], names: Sequence[str]) -> dict[str, int]:
    """Return documents and tokens of each source, as often as they are taken."""
    documents = np.bincount(corpus.sources, copies, len(names)).astype(int)
    tokens = np.bincount(corpus.sources, copies * corpus.lengths, len(names)).astype(int)
    figures = {f"documents:{name}": int(count) for name, count in zip(names, documents, strict=True)}
    return figures | {f"tokens:{name}": int(count) for name, count in zip(names, tokens, strict=True)}


def _alarms(task: WriteReport, folder: Path, dataset: Dataset, corpus: Corpus) -> list[str]:
    pieces = [dataset.tokenizer.piece(token) for token in range(task.ids.vocab_size)]
    findings = examine(corpus.tokens(0)[:EXAMINED_TOKENS], task.ids, newline_table(pieces))
    found = findings.problems(task.ids, task.config.max_eos_share)
    sources = np.concatenate([np.load(folder / "work" / f"{name}.sources.npy") for name in task.shards])
    deviation = mixing_deviation(sources)
    if deviation > LARGEST_DEVIATION:
        found.append(
            f"sources are not well mixed: in some window of sequences one is {deviation:.1f} standard deviations from its "
            "share; this should not happen after shuffling"
        )
    return found


def _histogram(tokens: npt.NDArray[np.int64]) -> list[dict[str, int]]:
    """Return how many documents have from `from` to below `to` tokens, by powers of two."""
    powers = np.bincount(np.log2(np.maximum(tokens, 1)).astype(np.int64))
    return [
        {"from": 2**power, "to": 2 ** (power + 1), "documents": int(count)}
        for power, count in enumerate(powers)
        if count
    ]


def _page(report: dict[str, Any], sequences: Sequence[tuple[int, Any]]) -> Iterator[str]:
    yield f'<!doctype html><html lang="zh-CN"><meta charset="utf-8"><title>Token dataset</title><style>{STYLE}</style>'
    yield '<meta name="viewport" content="width=device-width"><h1>Token dataset</h1>'
    yield from (f'<p class="alarm">{escape(alarm)}</p>' for alarm in report["alarms"])
    yield '<h2>Figures</h2><div class="scroll"><table>'
    yield from (
        f'<tr><td>{escape(name)}</td><td class="n">{escape(_shown(value))}</td></tr>'
        for name, value in report["stats"].items()
    )
    yield "</table></div><h2>Tokens a document</h2><table>"
    most = max((row["documents"] for row in report["document_tokens"]), default=1)
    for row in report["document_tokens"]:
        bar = f'<span class="bar" style="width:{20 * row["documents"] / most:.2f}em"></span>'
        yield f'<tr><td class="n">{row["from"]:,} to {row["to"] - 1:,}</td><td class="n">{row["documents"]:,}</td>'
        yield f"<td>{bar}</td></tr>"
    yield f"</table><h2>{len(sequences)} sequences, evenly taken</h2>"
    for number, spans in sequences:
        yield f'<h3>Sequence {number}</h3><div class="sequence">'
        for span, texts in spans:
            yield f'<span class="source">[{escape(span.document)}]</span> '
            yield from (f'<span class="t{place % 4}">{escape(text)}</span>' for place, text in enumerate(texts) if text)
            yield f'<span class="end">{DOCUMENT_END}</span>' if span.ends else ""
        yield "</div>"
    yield "</html>\n"


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def evenly(total: int, samples: int) -> list[int]:
    """Return up to `samples` indices, first and last included."""
    count = min(total, samples)
    return sorted({round(index * (total - 1) / max(1, count - 1)) for index in range(count)})
