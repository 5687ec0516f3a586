"""A `.tiktoken` file: a token in base64 and its rank a line. How text is cut and the special tokens it does not hold."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tiktoken

from configs.errors import PipelineError
from tasks.tokenizer import Ids

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}",
    "qwen": rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}",
    "qwen3": (
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{BLANKS}"
    ),
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"
    ),
}
# By file name: pattern, and the special tokens in the order of their ids.
KNOWN = {
    "qwen.tiktoken": ("qwen", ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{n}|>" for n in range(205)))),
    "qwen3_6.tiktoken": ("qwen3", ("<|endoftext|>", "<|im_start|>", "<|im_end|>")),
    "cl100k_base.tiktoken": ("cl100k", ()),
    "o200k_base.tiktoken": ("o200k", ()),
}
DEFAULT_SPECIAL_TOKENS = ("<|endoftext|>", "<|pad|>")


class TiktokenTokenizer:
    """Ranks from a file; special tokens take the ids after the last rank, in order.

    Raises:
        PipelineError: a line that is no token with its rank, or a pattern that is no regular expression.
    """

    def __init__(self, file: Path, pattern: str, special_tokens: Sequence[str]) -> None:
        ranks = _read_ranks(file)
        first = max(ranks.values()) + 1
        self.special_tokens: Mapping[str, int] = {name: first + place for place, name in enumerate(special_tokens)}
        try:
            self._encoding = tiktoken.Encoding(
                file.stem,
                pat_str=PATTERNS.get(pattern, pattern),
                mergeable_ranks=ranks,
                special_tokens=dict(self.special_tokens),
            )
        except (ValueError, TypeError) as error:
            raise PipelineError(f"pack.tokenizer.pattern: {pattern}: not a regular expression: {error}") from None
        self._pieces = {rank: token for token, rank in ranks.items()}
        self._pieces |= {number: name.encode() for name, number in self.special_tokens.items()}
        self._lengths: npt.NDArray[np.int64] = np.zeros(first, np.int64)
        for token, rank in ranks.items():
            self._lengths[rank] = len(token)
        self.vocab_size = first + len(special_tokens)
        named = {"eos": "<|endoftext|>", "pad": "<|pad|>"}
        self.suggested: Mapping[str, str] = {role: name for role, name in named.items() if name in self.special_tokens}
        self.unknown: int | None = None

    def token_id(self, token: str) -> int | None:
        return self.special_tokens.get(token)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text.

        Raises:
            PipelineError: the pattern leaves out a part of a text.
        """
        found = [self._encoding.encode_to_numpy(text, disallowed_special=()) for text in texts]
        for text, ids in zip(texts, found, strict=True):
            if int(self._lengths[ids].sum()) != len(text.encode(errors="surrogatepass")):
                raise PipelineError(
                    f"pack.tokenizer.pattern: it matches not every part of the text {text[:40]!r}, so that some would be "
                    "lost; add an alternative that matches the rest, such as |[\\s\\S]"
                )
        return found

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.piece, ids)).decode(errors="replace")

    def piece(self, token: int) -> bytes:
        return self._pieces.get(int(token), b"")


def _read_ranks(file: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise PipelineError(
                f"{file}: line {number}: found {line[:40]!r}, expected a token in base64, a space and its rank"
            ) from None
    if not all(bytes([byte]) in ranks for byte in range(256)):
        raise PipelineError(f"{file}: {len(ranks)} tokens, but not every single byte among them; not a tiktoken file")
    return ranks
