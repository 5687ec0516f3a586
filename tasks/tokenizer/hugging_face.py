"""A `tokenizer.json`. Byte-level BPE can run on the tiktoken engine, five times as fast, where both give the same ids."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import regex
import tiktoken
import tokenizers

from configs.errors import PipelineError
from tasks.tokenizer import Ids, suggested_tokens
from tasks.tokenizer.pieces import BYTE_OF_SYMBOL, byte_piece, text_piece
from tasks.tokenizer.tiktoken_file import PATTERNS

SETTINGS_FILE = "tokenizer_config.json"
# For private use: normalize takes such characters out of documents.
CUT = "\ue000"


class HuggingFaceTokenizer:
    """A `tokenizer.json` whose added tokens, save those of blanks, are text where a document spells them out.

    Raises:
        PipelineError: the file is no tokenizer, or (`fast`) cannot run on tiktoken; the message says why.
    """

    def __init__(self, file: Path, fast: bool = False) -> None:
        described = read_json(file)
        added = described.get("added_tokens") or []
        controls = [token for token in added if not token["content"].isspace()]
        text_only = described | {"added_tokens": [token for token in added if token["content"].isspace()]}
        text_only |= {"post_processor": None, "truncation": None, "padding": None}
        try:
            vocabulary = tokenizers.Tokenizer.from_file(str(file)).get_vocab(with_added_tokens=True)
            self._engine = tokenizers.Tokenizer.from_str(json.dumps(text_only))
        except Exception as error:  # the library raises bare Exception
            raise PipelineError(f"{file}: not a tokenizer that the `tokenizers` library can read: {error}") from None
        self._vocabulary = vocabulary
        self._pieces: dict[int, bytes] | None = None
        self._byte_level = (described.get("decoder") or {}).get("type") == "ByteLevel"
        self.fast = BytePairs(described) if fast else None
        self.vocab_size = max(vocabulary.values()) + 1
        self.special_tokens: Mapping[str, int] = {token["content"]: token["id"] for token in controls}
        self.suggested: Mapping[str, str] = suggested_tokens(_settings_beside(file))
        unknown = described["model"].get("unk_token")
        number = described["model"].get("unk_id")
        self.unknown: int | None = number if unknown is None else vocabulary.get(unknown)

    def token_id(self, token: str) -> int | None:
        found = self._vocabulary.get(token)
        return None if found is None else int(found)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        if self.fast is None:
            return self._encode_slowly(texts)
        found = self.fast.encode(texts)
        # A text that the fast engine does not keep whole.
        left = [index for index, ids in enumerate(found) if ids is None]
        for index, ids in zip(left, self._encode_slowly([texts[index] for index in left]), strict=True):
            found[index] = ids
        return [ids for ids in found if ids is not None]

    def _encode_slowly(self, texts: Sequence[str]) -> list[Ids]:
        encodings = self._engine.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.uint32) for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        if self._byte_level:
            return b"".join(map(self.piece, ids)).decode(errors="replace")
        return str(self._engine.decode(list(ids), skip_special_tokens=False))

    def piece(self, token: int) -> bytes:
        if self._pieces is None:
            to_bytes = byte_piece if self._byte_level else text_piece
            controls = {number: name.encode() for name, number in self.special_tokens.items()}
            pieces = {number: to_bytes(name) for name, number in self._vocabulary.items() if number not in controls}
            self._pieces = pieces | controls
        return self._pieces.get(token, b"")


class BytePairs:
    """Byte-level BPE on the tiktoken engine.

    tiktoken cuts text once, and drops what lies between two matches. Where a tokenizer cuts several times in turn, all but
    the last cut are marked in the text by a character that is a special token here, so that nothing is merged across it.
    What lies between matches becomes a match by one more alternative; where the pattern covers most texts without, it is
    tried without first, for the look-ahead makes it slow.

    Raises:
        PipelineError: tiktoken has no counterpart to a part of the `tokenizer.json`.
    """

    def __init__(self, described: Mapping[str, Any]) -> None:
        model, vocabulary = described["model"], described["model"].get("vocab")
        if model["type"] != "BPE" or (described.get("decoder") or {}).get("type") != "ByteLevel":
            raise PipelineError("it is no byte-level BPE")
        *cuts, pattern = _patterns(described["pre_tokenizer"])
        alphabet = {byte: symbol for symbol, byte in BYTE_OF_SYMBOL.items()}
        if any(symbol not in vocabulary for symbol in BYTE_OF_SYMBOL) or model.get("ignore_merges"):
            raise PipelineError("its vocabulary lacks single bytes, or is used without merges")
        merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
        # Ranks are places in the list of merges, after the 256 bytes; ids may be in any order.
        names = list(dict.fromkeys([*(alphabet[byte] for byte in range(256)), *(one + two for one, two in merges)]))
        self._ranks = {byte_piece(name): rank for rank, name in enumerate(names)}
        self._ids: Ids = np.array([vocabulary[name] for name in names], np.uint32)
        self._bytes = np.array([len(byte_piece(name)) for name in names], np.int64)
        self._normal_form = _normal_form(described.get("normalizer"))
        self._cuts = [regex.compile(cut) for cut in cuts]
        self._whole = rf"{pattern}|(?:(?!{pattern})[\s\S])+"
        self.encoding = self._encoding(self._whole if cuts else pattern)

    def encode(self, texts: Sequence[str]) -> list[Ids | None]:
        """Return the ids of each text, None where they do not add up to all of its bytes."""
        if self._normal_form is not None:
            texts = [normalize(self._normal_form, text) for text in texts]  # type: ignore[arg-type]
        found = self._encode(self.encoding, texts)
        for index, ids in enumerate(found):
            if ids is None and not self._cuts:
                (found[index],) = self._encode(self._thorough, [texts[index]])
        return found

    def _encode(self, encoding: tiktoken.Encoding, texts: Sequence[str]) -> list[Ids | None]:
        parts = [self._ranks_of(encoding, text) for text in texts]
        ranks = np.concatenate([np.empty(0, np.uint32), *parts])
        ends = np.cumsum([part.size for part in parts])
        totals = np.concatenate([[0], np.cumsum(self._bytes.take(ranks))])
        kept = np.diff(totals[np.concatenate([[0], ends])])
        whole = kept == [len(text.encode(errors="surrogatepass")) for text in texts]
        ids = np.split(self._ids.take(ranks), ends[:-1])
        return [part if is_whole else None for part, is_whole in zip(ids, whole, strict=True)]

    def _ranks_of(self, encoding: tiktoken.Encoding, text: str) -> Ids:
        if not self._cuts:
            return encoding.encode_to_numpy(text, disallowed_special=())
        marked = text.replace(CUT, "")  # a text that has it comes out too short
        for cut in self._cuts:
            marked = cut.sub(rf"{CUT}\g<0>{CUT}", marked)
        ranks = encoding.encode_to_numpy(marked, allowed_special={CUT}, disallowed_special=())
        return ranks[ranks < self._ids.size]

    @cached_property
    def _thorough(self) -> tiktoken.Encoding:
        return self._encoding(self._whole)

    def _encoding(self, pattern: str) -> tiktoken.Encoding:
        mark = {CUT: len(self._ranks)} if self._cuts else {}
        return tiktoken.Encoding("corpus", pat_str=pattern, mergeable_ranks=self._ranks, special_tokens=mark)


def read_json(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        PipelineError: there is none.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"{file}: not a tokenizer: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise PipelineError(f"{file}: not a tokenizer: found no `model` in it")
    return content


def _settings_beside(file: Path) -> dict[str, Any]:
    try:
        settings = json.loads((file.parent / SETTINGS_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _patterns(pre_tokenizer: Mapping[str, Any] | None) -> list[str]:
    """Return the regular expressions by which a text is cut, one after another."""
    steps = (pre_tokenizer or {}).get("pretokenizers") or [pre_tokenizer or {}]
    last = steps[-1]
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        raise PipelineError("its pre-tokenizer does not end with bytes, or adds a space")
    own = [PATTERNS["gpt2"]] if last.get("use_regex", True) else []  # by which ByteLevel itself cuts
    patterns = [*(_pattern_of(step) for step in steps[:-1]), *own]
    if not patterns:
        raise PipelineError("its pre-tokenizer does not cut the text")
    return patterns


def _pattern_of(split: Mapping[str, Any]) -> str:
    pattern = (split.get("pattern") or {}).get("Regex")
    if split.get("type") != "Split" or pattern is None or split.get("behavior") != "Isolated" or split.get("invert"):
        raise PipelineError("its pre-tokenizer is more than regular expressions that isolate their matches")
    return str(pattern)


def _normal_form(normalizer: Mapping[str, Any] | None) -> str | None:
    match (normalizer or {}).get("type"):
        case None:
            return None
        case "Sequence" if not (normalizer or {}).get("normalizers"):
            return None
        case "NFC" | "NFKC" | "NFD" | "NFKD" as form:
            return str(form)
    raise PipelineError("its normalizer is more than a Unicode normal form")
