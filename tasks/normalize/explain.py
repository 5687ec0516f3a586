"""What each step of normalization does to one text."""

from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice

from configs.schema import NormalizeConfig
from tasks.normalize.text import normalize_text

STEPS = ("mojibake", "newlines", "invisible", "radicals", "width", "conversion", "blanks")
OFF = NormalizeConfig.model_validate(dict.fromkeys(STEPS, False) | {"conversion": "off"})


def explain(text: str, config: NormalizeConfig) -> Iterator[tuple[str, list[str]]]:
    """Yield each step and the lines that it takes (`-`) and gives (`+`), as Python literals that show the invisible.

    Steps are switched on one after another, so a line is the work of the step that it stands under.
    """
    settings = OFF.model_copy(update={"protected_words": config.protected_words})
    before = normalize_text(text, settings)
    for step in STEPS:
        settings = settings.model_copy(update={step: getattr(config, step)})
        after = normalize_text(text, settings)
        difference = unified_diff(_literal_lines(before), _literal_lines(after), lineterm="", n=0)
        yield step, [line for line in islice(difference, 2, None) if not line.startswith("@@")]
        before = after


def _literal_lines(text: str) -> list[str]:
    """Return the lines of a text, split at LF alone, with what does not print as escapes."""
    return [repr(line)[1:-1] for line in text.split("\n")]
