"""Whether texts come back from their tokens, and, where they do not, what kind of loss it is."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from unicodedata import normalize

from tasks.tokenizer import Tokenizer

Loss = Literal["exact", "blanks", "unknown", "normalized", "other"]
CHARACTERS_SHOWN = 24


@dataclass(frozen=True)
class RoundTrip:
    """How many texts fall into each class, and for each class of loss the first difference: (before, after)."""

    classes: Counter[str]
    examples: dict[str, tuple[str, str]]

    @property
    def changed_share(self) -> float:
        total = self.classes.total()
        return (total - self.classes["exact"]) / total if total else 0.0

    def stats(self) -> dict[str, object]:
        return {"classes": dict(sorted(self.classes.items())), "examples": self.examples}


def round_trip(tokenizer: Tokenizer, texts: Sequence[str]) -> RoundTrip:
    """Encode and decode texts.

    Classes: `exact`; `blanks`, only white space differs (sentencepiece's ▁ counts as such); `unknown`, characters that the
    vocabulary lacks; `normalized`, other forms of the same characters (NFKC); `other`.
    """
    classes: Counter[str] = Counter()
    examples: dict[str, tuple[str, str]] = {}
    for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
        back = tokenizer.decode(ids.tolist())
        loss = _loss(text, back, tokenizer.unknown is not None and bool((ids == tokenizer.unknown).any()))
        classes[loss] += 1
        if loss != "exact":
            examples.setdefault(loss, _first_difference(text, back))
    return RoundTrip(classes, examples)


def _loss(text: str, back: str, has_unknown: bool) -> Loss:
    if back == text:
        return "exact"
    if _without_blanks(back) == _without_blanks(text):
        return "blanks"
    if has_unknown:
        return "unknown"
    if _without_blanks(normalize("NFKC", text)) == _without_blanks(normalize("NFKC", back)):
        return "normalized"
    return "other"


def _without_blanks(text: str) -> str:
    return "".join(text.replace("▁", " ").split())


def _first_difference(text: str, back: str) -> tuple[str, str]:
    places: Iterator[int] = (place for place, pair in enumerate(zip(text, back, strict=False)) if pair[0] != pair[1])
    start = max(0, next(places, min(len(text), len(back))) - CHARACTERS_SHOWN // 3)
    return text[start : start + CHARACTERS_SHOWN], back[start : start + CHARACTERS_SHOWN]
