"""The filter's thresholds by preset, each with its source.

`technical` is calibrated on some 10,000 Chinese documents about software and research. `web` adds limits for pages of the
open web. `fineweb2-zh` has the numbers of FineWeb-2's configuration for Chinese, which counts words where these rules
count characters and Latin words; it removes more than half of technical documents, so it is no default.

A threshold that cannot be crossed (0 for `min_`, 1 for a `max_` share) leaves its rule without effect.
"""

from typing import Literal, NamedTuple

PresetName = Literal["technical", "web", "fineweb2-zh"]


class Threshold(NamedTuple):
    """A rule's limit, and where the number comes from."""

    value: float
    source: str


TECHNICAL = {
    "max_noise_line_share": Threshold(0.5, "when most lines are furniture, the rest is too"),
    "min_characters": Threshold(40, "calibrated: the shortest good abstracts have some 45"),
    "max_garbled_share": Threshold(0.02, "calibrated: one spoiled character in fifty"),
    "min_han_share": Threshold(0.2, "ChineseWebText has 0.3; API pages name much in English"),
    "max_kana_share": Threshold(0.1, "calibrated: a Chinese document that quotes Japanese stays below"),
    "max_characters_without_punctuation": Threshold(350, "calibrated: menus and word lists exceed it"),
    "max_symbol_share": Threshold(0.35, "Gopher has 0.1 a word; formulas in prose need more"),
    "max_digit_share": Threshold(0.4, "NeMo-Curator has 0.15; version lists need more"),
    "max_url_share": Threshold(0.8, "NeMo-Curator has 0.2; short pages with long links need more"),
    "max_link_share": Threshold(0.8, "calibrated: tables of contents exceed it"),
    "max_list_share": Threshold(1.0, "Gopher has 0.9 of lines; glossaries and change logs are lists"),
    "max_repeated_line_share": Threshold(0.6, "Gopher has 0.2 to 0.3; API references repeat their sub-titles"),
    "max_repeated_ngram_share": Threshold(0.7, "Gopher has 0.1 of words in 10-grams; API references need more"),
    "max_top_ngram_share": Threshold(0.4, "Gopher has 0.16 for 4-grams of words"),
    "max_ellipsis_line_share": Threshold(0.5, "Gopher has 0.3; an abstract may be two lines"),
    "min_punctuated_line_share": Threshold(0, "without effect: code, tables and API lists end lines as they like"),
    "min_stop_words": Threshold(0, "without effect: FineWeb-2 has 2"),
}
WEB = TECHNICAL | {
    "min_characters": Threshold(200, "CCNet has 300"),
    "min_han_share": Threshold(0.5, "between ChineseWebText's 0.3 and MNBVC's 0.7"),
    "max_symbol_share": Threshold(0.2, "twice Gopher's, counted in characters"),
    "max_digit_share": Threshold(0.25, "NeMo-Curator has 0.15 of characters, spaces included"),
    "max_url_share": Threshold(0.2, "NeMo-Curator"),
    "max_link_share": Threshold(0.4, "calibrated on pages with menus"),
    "max_list_share": Threshold(0.9, "Gopher"),
    "max_repeated_line_share": Threshold(0.3, "Gopher"),
    "max_repeated_ngram_share": Threshold(0.3, "three times Gopher's, counted in characters"),
    "max_top_ngram_share": Threshold(0.18, "Gopher's for 3-grams of words"),
    "min_punctuated_line_share": Threshold(0.106, "FineWeb-2"),
    "min_stop_words": Threshold(2, "FineWeb-2"),
}
FINEWEB2 = TECHNICAL | {
    "max_symbol_share": Threshold(0.1, "Gopher, as FineWeb-2 takes it"),
    "max_list_share": Threshold(0.9, "Gopher, as FineWeb-2 takes it"),
    "max_repeated_line_share": Threshold(0.287, "FineWeb-2"),
    "max_repeated_ngram_share": Threshold(0.127, "FineWeb-2, for 10-grams"),
    "max_top_ngram_share": Threshold(0.171, "FineWeb-2, for 4-grams"),
    "min_punctuated_line_share": Threshold(0.106, "FineWeb-2"),
    "min_stop_words": Threshold(2, "FineWeb-2"),
}
PRESETS: dict[PresetName, dict[str, Threshold]] = {"technical": TECHNICAL, "web": WEB, "fineweb2-zh": FINEWEB2}

LINE_RULES = {
    "navigation_line": "entries of menus, paths, pagers, links to neighbouring pages",
    "contents_line": "entries of a table of contents (`toctree`); they do not count as noise of a page",
    "furniture_line": "footers, copyright and registration numbers, cookie and login notices, counters of readers",
    "advertisement_line": "promotion: two-dimensional codes to scan, courses, discounts, calls to follow",
    "repeated_line": "a line of 20 characters, half of them Han, that stands in the document for the fourth time or later",
    "garbled_line": "a line of which a third or more failed decoding",
}
