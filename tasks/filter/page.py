"""Writes configs/FILTERS.md, the page that lists every rule: `python -m tasks.filter.page` (a test compares)."""

from collections.abc import Iterator
from pathlib import Path

from configs.filters import LINE_RULES, PRESETS
from tasks.filter.rules import CONTAMINATION, RULES

PAGE = Path(__file__).resolve().parents[2] / "configs" / "FILTERS.md"

INTRODUCTION = """# The filter's rules

Written by `python -m tasks.filter.page` from the code; change it there.

A text is first freed of noise lines, then measured, then judged by the document rules in this order; the first that it
breaks is the reason. Scores are recorded, so other thresholds decide anew without measuring again. Every rule can be
`on` (the default), `warn` (only counted) or `off`:

```yaml
filter:
  preset: technical            # or web, fineweb2-zh
  min_characters: 80           # one threshold changed
  modes: {repeated_line: warn, max_kana_share: off}
```

Prose is headings, paragraphs and list entries; code, tables and formulas are set aside. English documents stay with
`keep_english: true`. Personal data are masked with `mask_personal_data: true`: mobile and identity numbers, bank cards,
e-mail and IP addresses. Documents that share 13 consecutive units with one of `evaluation_files` go
(`max_contaminated_ngrams`).
"""


def page() -> str:
    return "\n".join([INTRODUCTION, *_line_rules(), *_document_rules(), *_sources()]) + "\n"


def _line_rules() -> Iterator[str]:
    yield "## Line rules\n\n| Rule | Takes out |\n| --- | --- |"
    yield from (f"| `{rule}` | {what} |" for rule, what in LINE_RULES.items())


def _document_rules() -> Iterator[str]:
    yield f"\n## Document rules\n\n| Rule | Measures | {' | '.join(PRESETS)} |\n| --- | --- |{' ---: |' * len(PRESETS)}"
    for rule in RULES:
        limits = " | ".join(f"{preset[rule.name].value:g}" for preset in PRESETS.values())
        yield f"| `{rule.name}` | {rule.measures} | {limits} |"
    yield f"| `{CONTAMINATION.name}` | {CONTAMINATION.measures} |{' 0 |' * len(PRESETS)}"


def _sources() -> Iterator[str]:
    yield "\n## Where the numbers come from\n\n| Rule | Preset | Threshold | Source |\n| --- | --- | ---: | --- |"
    for rule in RULES:
        for name, preset in PRESETS.items():
            threshold = preset[rule.name]
            if name == "technical" or threshold != PRESETS["technical"][rule.name]:
                yield f"| `{rule.name}` | {name} | {threshold.value:g} | {threshold.source} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
