"""The tokenizer: one that the configuration names, or a byte-level BPE trained on the corpus.

Byte-level, because it has a token for every byte: any text decodes to itself, and rare characters are never unknown.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from tokenizers.trainers import BpeTrainer

from configs.errors import PipelineError
from configs.schema import TokenizerConfig
from tasks.files import write_json

PAD_TOKEN = "<|pad|>"
TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"


@dataclass(frozen=True)
class TokenIds:
    """What training has to know of a vocabulary. `pad` is -1 where the tokenizer has no padding token."""

    vocab_size: int
    eos: int
    pad: int


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Return a byte-level BPE of at most `config.vocab_size` tokens; the same for the same texts in the same order."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=[config.eos_token, PAD_TOKEN],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, eos_token: str, pad_token: str | None) -> None:
    """Write a folder that Hugging Face's `AutoTokenizer` loads."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": eos_token,
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / SETTINGS_FILE, settings | ({"pad_token": pad_token} if pad_token else {}))


def tokenizer_file(path: str) -> Path:
    """Return the `tokenizer.json` that a configured path means.

    Raises:
        PipelineError: there is none.
    """
    file = Path(path) / TOKENIZER_FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise PipelineError(
            f"pack.tokenizer.path: {path}: found no {file.name} there; give a Hugging Face folder that holds "
            f"{TOKENIZER_FILE}, or that file itself"
        )
    return file


def load_tokenizer(file: Path) -> Tokenizer:
    """Return a tokenizer that takes special tokens written out in a text for text, never for control tokens.

    Raises:
        PipelineError: the file is no tokenizer.
    """
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise PipelineError(f"{file}: not a tokenizer that the `tokenizers` library can read: {error}") from None
    tokenizer.encode_special_tokens = True
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def token_ids(tokenizer: Tokenizer, eos_token: str, pad_token: str | None) -> TokenIds:
    """Return the size of the vocabulary (largest id + 1) and the ids of eos and padding.

    Raises:
        PipelineError: eos is not in the vocabulary, or padding is the same token.
    """
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    eos = vocabulary.get(eos_token)
    if eos is None:
        special = ", ".join(sorted(token.content for token in tokenizer.get_added_tokens_decoder().values()))
        raise PipelineError(
            f"pack.tokenizer.eos_token: {eos_token!r} is not in the vocabulary; its special tokens are: {special or 'none'}"
        )
    pad = vocabulary.get(pad_token, -1) if pad_token else -1
    return TokenIds(max(vocabulary.values()) + 1, eos, -1 if pad == eos else pad)


def named_pad_token(file: Path) -> str | None:
    """Return the padding token that the settings beside a `tokenizer.json` name, if there are any."""
    try:
        token = json.loads((file.parent / SETTINGS_FILE).read_text(encoding="utf-8")).get("pad_token")
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None
    return str(token["content"]) if isinstance(token, dict) else token if isinstance(token, str) else None
