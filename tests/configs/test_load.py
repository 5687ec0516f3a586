"""Configuration errors name file, key, line and the mend."""

from pathlib import Path

import pytest

from configs.errors import ConfigError
from configs.load import load_config
from tests.conftest import PROJECT

GOOD = "inputs:\n  - {path: raw, source: raw}\n"


def problems_of(tmp_path: Path, text: str, *overrides: str) -> list[str]:
    file = tmp_path / "run.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides)
    assert str(caught.value).startswith(f"{file}: ")
    return caught.value.problems


def test_the_shipped_configuration_loads_with_its_values() -> None:
    config = load_config(PROJECT / "configs" / "demo.yaml")
    assert [place.source for place in config.inputs] == ["articles", "records", "troubles"]
    assert (config.pack.seq_length, config.pretrain.steps, config.training.learning_rate) == (128, 200, 3e-3)


def test_an_unknown_key_is_named_with_line_and_the_likely_right_one(tmp_path: Path) -> None:
    assert problems_of(tmp_path, GOOD + "pack:\n  seq_lenght: 256\n") == [
        "line 4: pack.seq_lenght: unknown key; did you mean seq_length?"
    ]


def test_a_number_that_yaml_takes_for_text_is_refused_with_the_way_to_write_it(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, GOOD + "training:\n  eps: 1e-8\n")
    assert problem.startswith("line 4: training.eps: found the text '1e-8', expected a number")
    assert problem.endswith("write 1.0e-8")


def test_a_wrong_type_is_not_converted(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, GOOD + "smoke:\n  steps: true\n")
    assert problem == "line 4: smoke.steps: found True, expected: input should be a valid integer" or (
        problem.startswith("line 4: smoke.steps: found True, expected: ") and "integer" in problem
    )


def test_a_key_written_twice_is_refused(tmp_path: Path) -> None:
    assert "line 5: filter is written twice (first on line 3)" in problems_of(
        tmp_path, GOOD + "filter:\n  min_characters: 5\nfilter: {}\n"
    )


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    found = problems_of(tmp_path, GOOD + "chunk: {sequences_per_chunk: -1}\nunknown: 1\nsmoke: {steps: 3}\n")
    assert [problem.split(":")[0] for problem in found] == ["line 3", "line 5", "line 4"]


def test_a_rule_over_two_keys_says_both(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, GOOD + "pretrain: {steps: 10, epochs: 1.0}\n")
    assert problem == "line 3: pretrain: steps 10 and epochs 1.0 both say how long to train; give one of them"


def test_broken_yaml_names_the_line(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, "inputs: [\n  {path: raw\n")
    assert problem.startswith("line 3: not valid YAML")


def test_a_missing_file_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(tmp_path / "none.yaml")


def test_an_override_changes_one_key(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(GOOD, encoding="utf-8")
    config = load_config(file, ["pack.seq_length=256", "inputs.0.source=papers"])
    assert (config.pack.seq_length, config.inputs[0].source) == (256, "papers")


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("pack.seq_length", "--set pack.seq_length: expected section.key=value, such as --set pack.seq_length=256"),
        ("pack.sequence=1", "--set pack.sequence=1: pack.sequence: unknown key"),
        ("pack.seq_length=many", "--set pack.seq_length=many: pack.seq_length: found 'many'"),
        ("inputs.7.path=x", "--set inputs.7.path=x: there is no inputs.7"),
        ("dedup.threshold=1.0", "--set dedup.threshold=1.0: dedup.threshold: found 1.0, expected: less than 1"),
        ("dedup.shingles=mixed-0", "--set dedup.shingles=mixed-0: dedup.shingles: found 'mixed-0', expected mixed-N"),
        ("dedup={bands: 10, rows: 5}", "--set dedup={bands: 10, rows: 5}: dedup: permutations 128 is no multiple of"),
        ("dedup={verify: none}", "--set dedup={verify: none}: dedup: verify: none is refused"),
        ("executor={kind: dask}", "--set executor={kind: dask}: executor: kind dask needs the scheduler's address"),
    ],
)
def test_a_bad_override_is_named(tmp_path: Path, override: str, problem: str) -> None:
    assert problems_of(tmp_path, GOOD, override)[0].startswith(problem)


def test_off_and_on_are_words_and_true_and_false_alone_are_not(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        GOOD + "normalize: {conversion: off, width: false}\nfilter: {modes: {min_characters: off}}\n", encoding="utf-8"
    )
    config = load_config(file, ["filter.modes.max_kana_share=off"])
    assert (config.normalize.conversion, config.normalize.width) == ("off", False)
    assert config.filter.modes == {"min_characters": "off", "max_kana_share": "off"}


def test_an_unknown_filter_rule_is_named_with_its_line(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, GOOD + "filter:\n  preset: web\n  modes: {min_length: off}\n")
    assert problem.startswith("line 3: filter: modes: min_length: no such rule; the rules are navigation_line, ")
