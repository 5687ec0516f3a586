"""Tokenizers of every kind behind one face: Hugging Face, sentencepiece, tiktoken files, those of installed packages, and
those trained on the corpus.

Special tokens that are written out in a document are text, never control tokens. `piece` gives the bytes that a token
stands for, which is how a run of tokens is measured, coloured, and proved to hold its whole text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from configs.errors import PipelineError
from tasks.files import write_json

Kind = Literal["hugging_face", "sentencepiece", "tiktoken"]
Ids = npt.NDArray[np.uint32]
DESCRIPTION = "description.json"


class Tokenizer(Protocol):
    """Text to token ids and back."""

    vocab_size: int
    """Largest id + 1."""
    special_tokens: Mapping[str, int]
    """Control tokens by name; no text is ever encoded to one."""
    suggested: Mapping[str, str]
    """What the tokenizer's own settings name as eos, bos and pad."""
    unknown: int | None
    """The id that stands for what the vocabulary lacks, if there is one."""

    def token_id(self, token: str) -> int | None: ...

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, without bos or eos."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def piece(self, token: int) -> bytes:
        """Return the bytes of one token; of a control token, those of its name."""
        ...


@dataclass(frozen=True)
class TokenIds:
    """What packing has to know of a vocabulary. -1 where there is no such token."""

    vocab_size: int
    eos: int
    bos: int
    pad: int


class Description(BaseModel):
    """How to open the tokenizer in a folder."""

    model_config = ConfigDict(frozen=True)
    kind: Kind
    file: str
    engine: str
    """What encodes: tiktoken, tokenizers or sentencepiece."""
    reason: str
    """Why this engine."""
    pattern: str = ""
    special_tokens: tuple[str, ...] = ()
    eos_token: str
    bos_token: str | None
    pad_token: str | None
    vocab_size: int
    eos: int
    bos: int
    pad: int

    @property
    def ids(self) -> TokenIds:
        return TokenIds(self.vocab_size, self.eos, self.bos, self.pad)


def read_description(folder: Path) -> Description:
    return Description.model_validate_json((folder / DESCRIPTION).read_text(encoding="utf-8"))


def write_description(folder: Path, description: Description) -> None:
    write_json(folder / DESCRIPTION, description.model_dump())


def open_tokenizer(folder: Path) -> Tokenizer:
    """Return the tokenizer of an artifact's folder `tokenizer/`."""
    described = read_description(folder)
    source = Source(described.kind, folder / described.file, described.pattern, described.special_tokens)
    return load(source, described.engine)


@dataclass(frozen=True)
class Source:
    """A tokenizer on the disk. `pattern` and `special_tokens` are for tiktoken files, which lack them."""

    kind: Kind
    file: Path
    pattern: str = ""
    special_tokens: tuple[str, ...] = ()


@lru_cache(maxsize=4)
def load(source: Source, engine: str) -> Tokenizer:
    """Return a tokenizer that encodes with `engine`; each library is imported by those who need it."""
    match source.kind:
        case "hugging_face":
            from tasks.tokenizer.hugging_face import HuggingFaceTokenizer

            return HuggingFaceTokenizer(source.file, fast=engine == "tiktoken")
        case "sentencepiece":
            from tasks.tokenizer.sentence_piece import SentencePieceTokenizer

            return SentencePieceTokenizer(source.file)
        case "tiktoken":
            from tasks.tokenizer.tiktoken_file import TiktokenTokenizer

            return TiktokenTokenizer(source.file, source.pattern, source.special_tokens)


def token_ids(
    tokenizer: Tokenizer, eos_token: str | None, bos_token: str | None, pad_token: str | None
) -> tuple[TokenIds, dict[str, str | None]]:
    """Return the ids of eos, bos and pad and their names: the configured ones, else those the tokenizer suggests.

    bos is taken only if it is configured. A pad token that is only suggested and equals eos is left out.

    Raises:
        PipelineError: no eos, a name that is not in the vocabulary, or two that are one token.
    """
    suggested = tokenizer.suggested
    names = {"eos": eos_token or suggested.get("eos"), "bos": bos_token, "pad": pad_token or suggested.get("pad")}
    if pad_token is None and names["pad"] == names["eos"]:
        names["pad"] = None
    found: dict[str, int] = {}
    for role, name in names.items():
        token = -1 if name is None else tokenizer.token_id(name)
        if token is None or (role == "eos" and name is None):
            listed = ", ".join(list(tokenizer.special_tokens)[:20]) or "none"
            what = f"{name!r} is not in the vocabulary" if name else "the tokenizer names none"
            raise PipelineError(
                f"pack.tokenizer.{role}_token: {what}; its special tokens are: {listed}; name one of them"
            )
        found[role] = token
    for role in ("bos", "pad"):
        if found[role] == found["eos"]:
            raise PipelineError(
                f"pack.tokenizer.{role}_token: {names[role]!r} is the same token as eos, {found['eos']}; choose another"
            )
    return TokenIds(tokenizer.vocab_size, **found), names


def suggested_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the eos, bos and pad tokens that a `tokenizer_config.json` names."""
    named = {role: settings.get(f"{role}_token") for role in ("eos", "bos", "pad")}
    contents = {role: token.get("content") if isinstance(token, dict) else token for role, token in named.items()}
    return {role: token for role, token in contents.items() if isinstance(token, str)}
