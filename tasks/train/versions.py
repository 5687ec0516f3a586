"""Which versions belong together. pip does not stop a pair that does not: mindformers up to 1.3.2 pins no MindSpore at all.

Rows: mindformers' own VERSION_MAP.json, and for older ones the README of each release.
"""

import re
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Row:
    """One release of mindformers, and what it was released for."""

    mindformers: str
    mindspore: tuple[str, ...]
    cann: str
    driver: str
    python: tuple[str, ...]


MATRIX = (
    Row("0.3.0", ("1.8.1",), "", "", ("3.7",)),
    Row("0.6.0", ("2.0.0", "1.10.0"), "", "", ("3.7", "3.9")),
    Row("0.7.0", ("2.1.1",), "6.3.RC2.alpha005", "", ("3.9",)),
    Row("0.8.0", ("2.2.0", "2.2.1"), "7.0.RC1", "", ("3.9",)),
    Row("1.0.2", ("2.2.13",), "7.0.0", "", ("3.9",)),
    Row("1.1.0", ("2.3.0rc2",), "8.0.RC1", "", ("3.9",)),
    Row("1.2.0", ("2.3.0",), "8.0.RC2", "24.1.RC2", ("3.9", "3.10")),
    Row("1.3.0", ("2.4.0",), "8.0.RC3", "24.1.RC3", ("3.9", "3.10")),
    Row("1.3.2", ("2.4.10",), "8.0.0", "24.1.0", ("3.9", "3.10")),
    Row("1.5.0", ("2.6.0",), "8.1.RC1", "25.0.RC1", ("3.9", "3.10", "3.11")),
    Row("1.6.0", ("2.7.0",), "8.2.RC1", "25.2.0", ("3.9", "3.10", "3.11")),
    Row("1.7.0", ("2.7.1",), "8.3.RC1", "25.3.RC1", ("3.9", "3.10", "3.11")),
    Row("1.8.0", ("2.7.2",), "8.5.0", "25.5.0", ("3.9", "3.10", "3.11")),
    Row("1.9.0", ("2.9.0",), "9.0.0", "26.0.RC1", ("3.9", "3.10", "3.11")),
)
COMPATIBLE_WITH_THE_ONE_BEFORE = (1, 7)
"""From this release on, mindformers also works with the MindSpore of the release before."""
FIRST_OF_ANOTHER_KIND = (2, 0)
"""mindformers 2 has another configuration, needs HyperParallel, and lists no dense Llama or Qwen."""


@dataclass(frozen=True)
class Verdict:
    """Whether versions belong together, and why."""

    status: Status
    text: str


def check_versions(mindspore: str, mindformers: str, python: str, cann: str = "") -> Verdict:
    """Judge a set of versions. Pre-release suffixes of one release count as that release (2.6.0rc1, 8.0.RC3.beta1)."""
    if _numbers(mindformers) >= FIRST_OF_ANOTHER_KIND:
        return Verdict(
            "fail", f"mindformers {mindformers} is another product (its YAML differs); use 1.9.0 with mindspore 2.9.0"
        )
    row = next((row for row in MATRIX if _release(row.mindformers) == _release(mindformers)), None)
    same = [row for row in MATRIX if _release(mindspore) in map(_release, row.mindspore)]
    fit = next((row for row in same if mindspore in row.mindspore), same[0] if same else None)
    advice = f"; for mindspore {mindspore} use {_pair(fit)}" if fit else "; use mindformers 1.9.0 with mindspore 2.9.0"
    if row is None:
        return Verdict("fail", f"mindformers {mindformers} is not in the version matrix{advice}")
    if _release(mindspore) not in map(_release, row.mindspore):
        return _other_mindspore(row, mindspore, advice)
    if ".".join(python.split(".")[:2]) not in row.python:
        return Verdict("fail", f"mindformers {mindformers} runs on Python {' or '.join(row.python)}, found {python}")
    if cann and row.cann and _cann(cann) != _cann(row.cann):
        return Verdict("fail", f"mindspore {mindspore} was built for CANN {row.cann}, found {cann}; install that")
    return Verdict("ok", f"mindformers {mindformers}, mindspore {mindspore}, Python {python} belong together")


def _other_mindspore(row: Row, mindspore: str, advice: str) -> Verdict:
    place = MATRIX.index(row)
    before = map(_release, MATRIX[place - 1].mindspore if place else ())
    said = f"mindformers {row.mindformers} was released for mindspore {' or '.join(row.mindspore)}, found {mindspore}"
    if _numbers(row.mindformers) >= COMPATIBLE_WITH_THE_ONE_BEFORE and _release(mindspore) in before:
        return Verdict("warn", f"{said}: the one before, with which its basic functions work")
    return Verdict("fail", f"{said}{advice}")


def _pair(row: Row) -> str:
    return f"mindformers {row.mindformers}" + (f" with CANN {row.cann}" if row.cann else "")


def _release(version: str) -> str:
    """Return a version without its pre-release, in three parts."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    parts = (numbers[0].split(".") if numbers else [version]) + ["0", "0"]
    return ".".join(parts[:3])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _release(version).split(".") if part.isdigit())


def _cann(version: str) -> str:
    return re.sub(r"\.(?:beta|alpha)\d*$", "", version, flags=re.IGNORECASE).upper()
