"""Trains a tokenizer on the corpus, and saves it as a folder that Hugging Face's `AutoTokenizer` loads.

Byte-level BPE (by `tokenizers`) has a token for every byte: any text decodes to itself. Unigram (by sentencepiece, since
that of `tokenizers` is another one at each run) falls back on bytes; only its own blank, ▁, written in a text is lost.
Both are the same every time for the same texts in the same order.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import sentencepiece
from tokenizers import Regex
from tokenizers import Tokenizer as Engine
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

from configs.errors import PipelineError
from configs.schema import TokenizerConfig
from tasks.files import atomic_path, write_json
from tasks.tokenizer import Source
from tasks.tokenizer.hugging_face import SETTINGS_FILE
from tasks.tokenizer.sources import SENTENCEPIECE_FILE, TOKENIZER_FILE

EOS_TOKEN, PAD_TOKEN = "<|endoftext|>", "<|pad|>"
# The result depends on it, so it is the same on every machine.
THREADS = 4
# Qwen's pattern without English contractions and without the look-ahead that leaves a blank to the word after it: as many
# tokens, and a third faster on tiktoken. Each digit is a token of its own.
PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"
LONGEST_LINE = 2**16  # bytes; sentencepiece leaves longer ones out


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig, folder: Path) -> Source:
    """Write a trained tokenizer into a folder.

    Raises:
        PipelineError: the texts are too few for the vocabulary.
    """
    folder.mkdir(parents=True, exist_ok=True)
    named = [config.eos_token or EOS_TOKEN, config.pad_token or PAD_TOKEN]
    special_tokens = list(dict.fromkeys([*named, *filter(None, [config.bos_token]), *config.special_tokens]))
    settings = {
        "eos_token": named[0],
        "pad_token": named[1],
        "bos_token": config.bos_token,
        "clean_up_tokenization_spaces": False,
    }
    if config.algorithm == "bpe":
        train_bpe(texts, config.vocab_size, special_tokens).save(str(folder / TOKENIZER_FILE))
        write_json(folder / SETTINGS_FILE, settings | {"tokenizer_class": "PreTrainedTokenizerFast"})
        return Source("hugging_face", folder / TOKENIZER_FILE)
    _train_unigram(texts, config.vocab_size, special_tokens, folder / SENTENCEPIECE_FILE)
    llama = {
        "tokenizer_class": "LlamaTokenizer",
        "legacy": False,
        "add_bos_token": False,
        "add_eos_token": False,
        "add_prefix_space": False,
        "unk_token": "<unk>",
    }
    write_json(folder / SETTINGS_FILE, settings | llama)
    return Source("sentencepiece", folder / SENTENCEPIECE_FILE)


def train_bpe(texts: Iterable[str], vocab_size: int, special_tokens: list[str]) -> Engine:
    """Return a byte-level BPE of at most `vocab_size` tokens."""
    tokenizer = Engine(BPE())
    cut = Split(Regex(PATTERN), "isolated")
    tokenizer.pre_tokenizer = Sequence([cut, ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _train_unigram(texts: Iterable[str], vocab_size: int, special_tokens: list[str], target: Path) -> None:
    eos, pad, *others = special_tokens
    with atomic_path(target) as temporary, temporary.open("wb") as stream:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_lines(texts),
                model_writer=stream,
                model_type="unigram",
                vocab_size=vocab_size,
                byte_fallback=True,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                split_digits=True,
                unk_id=0,
                eos_id=1,
                pad_id=2,
                bos_id=-1,
                eos_piece=eos,
                pad_piece=pad,
                control_symbols=others,
                num_threads=THREADS,
                max_sentence_length=LONGEST_LINE,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise PipelineError(
                f"pack.tokenizer.vocab_size: {vocab_size}: sentencepiece cannot train it on this corpus: {error}; "
                "choose the size that it asks for"
            ) from None


def _lines(texts: Iterable[str]) -> Iterator[str]:
    return (line for text in texts for line in text.split("\n") if line)
