"""Every token is accounted for: eos only at document ends, and each packed run traced to its document."""

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import PipelineError
from configs.schema import TokenizerConfig
from tasks import chunk, dedup, filter, normalize, pack
from tasks.artifact import Artifact
from tasks.documents import read_table
from tasks.inspection import decode_sequence
from tasks.pack.sequences import DocumentTokens, copies_by_weight, fill_sequences, place_documents, token_dtype
from tasks.pack.tokenizer import load_tokenizer, save_tokenizer, token_ids, train_tokenizer
from tests.conftest import SAMPLE, MakeConfig, build_chain

STAGES = (normalize.STAGE, dedup.STAGE, filter.STAGE, chunk.STAGE, pack.STAGE)
TEXTS = ["训练语言模型需要大量的文本，文本的质量决定模型的上限。"] * 3 + [
    "分词器把文本切成词元。Tokenizers split text."
]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(2, 12), st.integers(0, 5))
@settings(max_examples=200)
def test_placing_loses_no_token_but_the_tail(lengths: list[int], width: int, seed: int) -> None:
    """Documents are numbered streams here, so that the content of every place is known."""
    starts = np.cumsum([0, *lengths])
    stream = np.arange(starts[-1], dtype=np.uint32)
    spans = place_documents(np.array(lengths), np.ones(len(lengths), np.int64), width, seed)
    sequences = starts[-1] // width
    target = np.zeros((sequences, width), np.uint32)
    tokens = DocumentTokens((stream,), np.zeros(len(lengths), np.int64), starts[:-1])
    fill_sequences(spans, tokens, width, target)
    assert np.unique(target).size == sequences * width  # each token at most once, and exactly this many
    assert starts[-1] - sequences * width < width
    for row, column, document, document_start, count in zip(
        spans.sequence, spans.start, spans.document, spans.document_start, spans.tokens, strict=True
    ):
        first = starts[document] + document_start
        assert target[row, column : column + count].tolist() == list(range(first, first + count))


def test_placing_is_the_same_for_a_seed_and_another_for_another() -> None:
    lengths = np.arange(1, 60)
    first, again, other = (place_documents(lengths, np.ones_like(lengths), 8, seed) for seed in (1, 1, 2))
    assert first.document.tolist() == again.document.tolist()
    assert first.document.tolist() != other.document.tolist()


def test_a_document_s_runs_follow_one_another_in_the_stream() -> None:
    """No text of another document comes between the parts of one."""
    spans = place_documents(np.array([30, 3, 17]), np.ones(3, np.int64), 8, 0)
    parts = [
        (int(s), int(n)) for d, s, n in zip(spans.document, spans.document_start, spans.tokens, strict=True) if d == 0
    ]
    covered = sorted(parts)
    assert all(start + count == following for (start, count), (following, _) in pairwise(covered))


def test_ids_get_the_smallest_type_that_holds_them() -> None:
    assert token_dtype(65536) == np.uint16
    assert token_dtype(65537) == np.uint32


def test_a_trained_tokenizer_restores_any_text_and_is_the_same_every_time(tmp_path: Path) -> None:
    config = TokenizerConfig(vocab_size=600)
    first, second = train_tokenizer(TEXTS, config), train_tokenizer(TEXTS, config)
    assert first.to_str() == second.to_str()
    save_tokenizer(first, tmp_path, config.eos_token, "<|pad|>")
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    for text in ("训练 GPT-4？\n\t代码 x += 1", "生僻字𠮷与表情😀", "<|endoftext|>写在正文里"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_special_token_written_out_in_a_document_is_text(tmp_path: Path) -> None:
    save_tokenizer(train_tokenizer(TEXTS, TokenizerConfig(vocab_size=600)), tmp_path, "<|endoftext|>", None)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    eos = token_ids(tokenizer, "<|endoftext|>", None).eos
    assert eos not in tokenizer.encode("一<|endoftext|>二", add_special_tokens=False).ids


def test_an_eos_token_that_the_vocabulary_lacks_is_refused(tmp_path: Path) -> None:
    save_tokenizer(train_tokenizer(TEXTS, TokenizerConfig(vocab_size=600)), tmp_path, "<|endoftext|>", None)
    with pytest.raises(
        PipelineError, match=r"'</s>' is not in the vocabulary; its special tokens are: <\|endoftext\|>"
    ):
        token_ids(load_tokenizer(tmp_path / "tokenizer.json"), "</s>", None)


def test_transformers_loads_the_saved_folder(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=600))
    save_tokenizer(tokenizer, tmp_path, "<|endoftext|>", "<|pad|>")
    loaded = AutoTokenizer.from_pretrained(tmp_path)  # type: ignore[no-untyped-call]
    assert loaded("分词器把文本切成词元")["input_ids"] == tokenizer.encode("分词器把文本切成词元").ids
    assert (loaded.eos_token, loaded.pad_token) == ("<|endoftext|>", "<|pad|>")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> list[Artifact]:
    """The sample's troubles, packed; MindRecord written and read back by MindSpore."""
    from configs.schema import RunConfig

    config = RunConfig.model_validate(
        {
            "inputs": [{"path": str(SAMPLE / "troubles"), "source": "troubles"}],
            "workspace": str(tmp_path_factory.mktemp("packed")),
            "pack": {"seq_length": 64, "tokenizer": {"vocab_size": 1000}},
        }
    )
    return build_chain(config, *STAGES)


def test_tokens_add_up(packed: list[Artifact]) -> None:
    *_, chunks, tokens = packed
    stats = tokens.manifest.stats
    assert stats["tokens_in"] == stats["tokens"] + stats["tokens_dropped"]
    assert stats["tokens"] == stats["sequences"] * 65
    assert stats["tokens_dropped"] < 65
    assert stats["documents"] == chunks.manifest.stats["documents_in"]


def test_decoded_runs_are_their_documents_and_eos_stands_at_their_ends_alone(packed: list[Artifact]) -> None:
    *_, filtered, _, tokens = packed
    documents = {row["id"]: row["text"] for path in filtered.shards for row in read_table(path).to_pylist()}
    eos = tokens.manifest.stats["eos_id"]
    ids = np.load(tokens.folder / pack.SEQUENCES)
    spans = pq.read_table(tokens.folder / pack.SPANS).to_pylist()
    ended = [span for span in spans if ids[span["sequence"], span["start"] + span["tokens"] - 1] == eos]
    assert np.count_nonzero(ids == eos) == len(ended) == len({span["document_id"] for span in ended})
    runs: dict[str, list[tuple[int, list[int]]]] = {}
    for span in spans:
        run = ids[span["sequence"], span["start"] : span["start"] + span["tokens"]].tolist()
        runs.setdefault(span["document_id"], []).append((span["document_start"], run))
    tokenizer = load_tokenizer(tokens.folder / "tokenizer" / "tokenizer.json")
    for document, parts in runs.items():
        joined = [token for _, run in sorted(parts) for token in run]
        decoded = tokenizer.decode([token for token in joined if token != eos])
        whole = joined[-1] == eos
        assert decoded == documents[document] if whole else documents[document].startswith(decoded.rstrip("\ufffd"))


def test_a_sequence_is_shown_with_its_document_ends(packed: list[Artifact]) -> None:
    tokens = packed[-1]
    ends = [
        ends for index in range(tokens.manifest.stats["sequences"]) for _, _, ends in decode_sequence(tokens, index)
    ]
    assert 0 < sum(ends) <= tokens.manifest.stats["documents"]


def test_too_few_tokens_for_one_sequence_are_an_error(make_config: MakeConfig, raw: Path) -> None:
    shutil.copy(SAMPLE / "articles" / "recompute.md", raw)
    with pytest.raises(
        PipelineError, match=r"has [1-9]\d+ tokens, less than one sequence of pack.seq_length 4096 \+ 1"
    ):
        build_chain(make_config(pack={"seq_length": 4096}), *STAGES)


def test_a_configured_tokenizer_is_used_and_enters_the_key_by_content(
    make_config: MakeConfig, raw: Path, tmp_path: Path
) -> None:
    shutil.copy(SAMPLE / "articles" / "recompute.md", raw)
    keys = []
    for name, texts in (("first", TEXTS), ("copy", TEXTS), ("other", TEXTS[-1:])):
        save_tokenizer(train_tokenizer(texts, TokenizerConfig(vocab_size=520)), tmp_path / name, "<|endoftext|>", None)
        config = make_config(pack={"seq_length": 16, "tokenizer": {"path": str(tmp_path / name)}})
        keys.append(pack.STAGE.key(config, []))
    assert keys[0] == keys[1] != keys[2]
    artifact = build_chain(config, *STAGES)[-1]
    assert artifact.manifest.stats["pad_id"] == -1
    assert (artifact.folder / "tokenizer" / "tokenizer.json").is_file()


def test_weights_take_documents_more_often_or_less(make_config: MakeConfig) -> None:
    """Twice and a half: every document twice, and every second one once more; half: every second one."""
    assert copies_by_weight(np.full(1000, 2.5), 3).sum() == pytest.approx(2500, abs=50)
    assert set(copies_by_weight(np.full(1000, 2.5), 3).tolist()) == {2, 3}
    assert copies_by_weight(np.ones(10), 3).tolist() == [1] * 10
    places = ({"articles": 1.0, "records": 1.0}, {"articles": 2.0, "records": 0.5})
    found = []
    for weights in places:
        inputs = [{"path": str(SAMPLE / name), "source": name, "weight": weight} for name, weight in weights.items()]
        config = make_config(inputs=inputs, pack={"seq_length": 64, "tokenizer": {"vocab_size": 600}})
        found.append(build_chain(config, *STAGES)[-1].manifest.stats)
    plain, weighted = found
    assert weighted["documents:articles"] == 2 * plain["documents:articles"]
    assert weighted["tokens:articles"] == 2 * plain["tokens:articles"]
    assert 0 < weighted["documents:records"] < plain["documents:records"]
    taken = weighted["tokens:articles"] + weighted["tokens:records"]
    assert weighted["tokens"] + weighted["tokens_dropped"] == taken
