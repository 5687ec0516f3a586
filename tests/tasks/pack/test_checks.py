"""The article's mistake is caught, sources are seen to be mixed, held-out documents are not known to the model."""

import json
from pathlib import Path

import numpy as np

from tasks.artifact import Artifact
from tasks.pack.checks import EosFindings, examine, mixing_deviation, newline_table
from tasks.pack.dataset import Dataset
from tasks.pack.report import wrapped
from tasks.tokenizer import TokenIds
from tests.conftest import SAMPLE, BenchRecords, MakeConfig, build_chain
from tests.tasks.pack.conftest import STAGES, Pack

IDS = TokenIds(vocab_size=100, eos=0, bos=-1, pad=1)
NEWLINE = 9
LINES = newline_table([b"\n" if token == NEWLINE else b"x" for token in range(100)])


def stream(documents: int, lines: int, line_tokens: int, eos_after: str) -> np.ndarray:  # type: ignore[type-arg]
    """Return ids of equal documents, with eos after each document or each line."""
    line = [*[50] * (line_tokens - 1), NEWLINE]
    document = [*line, 0] * lines if eos_after == "line" else [*line * lines, 0]
    return np.array(document * documents)


def test_eos_after_every_line_is_caught_and_after_every_document_is_right() -> None:
    """20 tokens a line: eos is 4.8% of the tokens, instead of 0.2%."""
    right = examine(stream(30, 20, 20, "document"), IDS, LINES)
    assert (right.tokens, right.eos, right.documents) == (30 * 401, 30, 29)
    assert right.problems(IDS, 0.02) == []
    (wrong,) = examine(stream(30, 20, 20, "line"), IDS, LINES).problems(IDS, 0.02)
    assert wrong.startswith("4.8% of the tokens are eos, one in 21, more than 2.0%: most often lines were taken for")


def test_longer_lines_are_caught_by_their_missing_newlines() -> None:
    """80 tokens a line hide from the share; but documents without newlines, that short, are lines (newline stripped)."""
    line = [*[50] * 80, 0]
    (found,) = examine(np.array(line * 50), IDS, LINES).problems(IDS, 0.02)
    assert found == (
        "100% of 49 documents have no newline and 81 tokens on average: are they lines of documents? Write eos after each "
        "document alone"
    )


def test_no_eos_and_foreign_ids_are_caught() -> None:
    found = EosFindings(1000, 0, 0, 0.0, 512).problems(IDS, 0.02)
    assert [problem.split(":")[0] for problem in found] == [
        "no eos (id 0) among 1000 tokens",
        "token id 512 is not in the vocabulary of 100",
    ]


def test_lines_given_as_documents_raise_the_alarm(make_config: MakeConfig, raw: Path) -> None:
    """Somebody has cut articles into lines before, and gives each line as a record."""
    lines = [
        line
        for file in sorted((SAMPLE / "articles").glob("*.md"))
        for line in file.read_text(encoding="utf-8").split("\n")
        if len(line) > 12
    ]
    (raw / "lines.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), encoding="utf-8")
    config = make_config(filter={"min_characters": 5}, pack={"seq_length": 64, "tokenizer": {"vocab_size": 1500}})
    artifact = build_chain(config, *STAGES)[-1]
    (alarm,) = artifact.manifest.stats["alarms"]
    assert "are eos" in alarm or "have no newline" in alarm


def test_the_sample_raises_none(concat: list[Artifact], best_fit: list[Artifact]) -> None:
    assert concat[-1].manifest.stats["alarms"] == best_fit[-1].manifest.stats["alarms"] == []


def test_sources_in_random_order_are_mixed_and_one_after_the_other_are_not() -> None:
    sources = np.repeat(np.array([0, 1, 2], np.uint16), [6000, 3000, 1000])
    assert mixing_deviation(np.random.default_rng(1).permutation(sources)) < 4
    assert mixing_deviation(sources) > 20
    assert mixing_deviation(sources[:1500]) == 0.0  # less than two windows show nothing
    assert mixing_deviation(np.zeros(5000, np.uint16)) == 0.0


def test_held_out_documents_are_in_no_training_sequence(best_fit: list[Artifact]) -> None:
    artifact = best_fit[-1]
    names = {
        split: {span.document for number in range(len(dataset)) for span in dataset.spans(number)}
        for split in ("train", "held_out")
        for dataset in [Dataset(artifact.folder, split)]
    }
    assert names["held_out"]
    assert not names["train"] & names["held_out"]
    assert len(names["held_out"]) == artifact.manifest.stats["documents_held_out"]


def test_held_out_documents_stay_the_same_when_the_corpus_grows(packed_in: Pack) -> None:
    chosen = []
    for sources in (("articles",), ("articles", "troubles")):
        inputs = [{"path": str(SAMPLE / name), "source": name} for name in sources]
        dataset = Dataset(packed_in(inputs=inputs, held_out_share=0.2)[-1].folder, "held_out")
        names = {span.document for number in range(len(dataset)) for span in dataset.spans(number)}
        chosen.append({name for name in names if name.startswith("articles/")})
    assert chosen[0]
    assert chosen[0] == chosen[1]


def test_a_near_duplicate_of_a_training_document_goes_back_to_training(make_config: MakeConfig, raw: Path) -> None:
    """40 documents in pairs that share 89% of their text, with deduplication set to let them pass: of a pair either both are
    held out or none is, since a chosen one whose twin is trained on goes back.
    """
    articles = [file.read_text(encoding="utf-8") for file in sorted((SAMPLE / "articles").glob("*.md"))]
    text = "\n\n".join(articles)
    size = len(text) // 21
    for pair in range(20):
        body = text[pair * size : (pair + 1) * size]
        for twin in ("a", "b"):
            other = text[20 * size :][: size // 9] if twin == "b" else ""
            (raw / f"{pair:02d}{twin}.txt").write_text(f"{body}\n\n{other}", encoding="utf-8")
    config = make_config(
        dedup={"threshold": 0.99, "paragraph_characters": 0, "min_characters_left": 0, "edge_characters": 0},
        pack={"seq_length": 64, "tokenizer": {"vocab_size": 1500}, "held_out_share": 0.3},
    )
    artifact = build_chain(config, *STAGES)[-1]
    stats = artifact.manifest.stats
    assert stats["held_out_near_duplicates"] >= 3
    assert stats["sequences_held_out"]
    dataset = Dataset(artifact.folder, "held_out")
    held_out = {span.document for number in range(len(dataset)) for span in dataset.spans(number)}
    assert held_out == {f"raw/{pair:02d}{twin}.txt" for pair in _pairs(held_out) for twin in "ab"}


def _pairs(documents: set[str]) -> set[int]:
    return {int(name.removeprefix("raw/")[:2]) for name in documents}


def test_a_real_mixture_is_mixed_in_every_window(
    bench_records: BenchRecords, make_config: MakeConfig, raw: Path
) -> None:
    """Four sources of different kinds; each of 1,000 sequences in a row has them in their shares."""
    inputs = []
    for source in ("mindspore_zh", "papers_zh", "paddle_zh", "rocketmq_md"):
        records = bench_records(source, 250)
        folder = raw / source
        folder.mkdir()
        lines = "".join(json.dumps({"text": record["text"]}) + "\n" for record in records)
        (folder / "a.jsonl").write_text(lines, encoding="utf-8")
        inputs.append({"path": str(folder), "source": source})
    config = make_config(inputs=inputs, pack={"seq_length": 128, "tokenizer": {"vocab_size": 2000}})
    artifact = build_chain(config, *STAGES)[-1]
    assert artifact.manifest.stats["sequences"] > 3000
    assert artifact.manifest.stats["alarms"] == []


def test_sample_text_is_wrapped_to_a_telephone_s_width() -> None:
    text = f"{'词' * 41}\n{'a' * 40}\n\nb"
    assert wrapped(text) == f"{'词' * 20}\n{'词' * 20}\n词\n{'a' * 40}\n\nb"
