"""The rules for whole documents, in the order in which they decide: what each measures. Limits are in the configuration.

A rule bears the name of its key in `FilterConfig`; `min_` and `max_` say the direction, the rest names the measure. Add
one by a field in `Measures`, an entry in `RULES`, a field in `FilterConfig` and a threshold in `configs/filters.py`.
"""

from dataclasses import dataclass

from configs.schema import FilterConfig

NOISE_LINE_SHARE, CONTAMINATED = "noise_line_share", "contaminated_ngrams"


@dataclass(frozen=True)
class Rule:
    """A document goes when its measure lies beyond the limit."""

    name: str
    measures: str

    @property
    def measure(self) -> str:
        return self.name[len("min_") :]

    @property
    def is_minimum(self) -> bool:
        return self.name.startswith("min_")


RULES = (
    Rule("max_noise_line_share", "share of the lines that the line rules take out"),
    Rule("min_characters", "characters, white space and symbols left aside"),
    Rule("max_garbled_share", "share of replacement, control and private-use characters, 锟斤拷, and misread text"),
    Rule("min_han_share", "share of Han characters among Han characters and words of other scripts, outside code"),
    Rule("max_kana_share", "share of kana among the same: Japanese"),
    Rule("max_characters_without_punctuation", "longest stretch of prose with no mark, in characters and Latin words"),
    Rule("max_symbol_share", "share of symbols among the characters of prose"),
    Rule("max_digit_share", "share of digits among the characters of prose"),
    Rule("max_url_share", "share of characters in URLs"),
    Rule("max_link_share", "share of the characters of prose in links"),
    Rule("max_list_share", "share of prose lines that begin a list entry"),
    Rule("max_repeated_line_share", "share of the characters of prose in lines that stood before in the document"),
    Rule("max_repeated_ngram_share", "share of units (Han characters, words) in runs of 10 that stood before"),
    Rule("max_top_ngram_share", "share of units in the most frequent run of 4"),
    Rule("max_ellipsis_line_share", "share of prose lines that end in an ellipsis"),
    Rule("min_punctuated_line_share", "share of prose lines that end in a mark of punctuation"),
    Rule("min_stop_words", "how many of 22 frequent words occur"),
)
CONTAMINATION = Rule("max_contaminated_ngrams", "runs of 13 units that an evaluation file has")


@dataclass(frozen=True)
class Verdict:
    """The rule that a document breaks, what was measured, and the limit."""

    rule: str
    score: float
    threshold: float


def thresholds(config: FilterConfig) -> dict[Rule, float]:
    """Return the rules in order, each with its limit."""
    limits = {rule: float(getattr(config, rule.name)) for rule in RULES}
    return {CONTAMINATION: 0.0} | limits if config.evaluation_files else limits


def breaks(rule: Rule, score: float, threshold: float) -> bool:
    return score < threshold if rule.is_minimum else score > threshold
