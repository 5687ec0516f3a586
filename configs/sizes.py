"""Sizes and times as people write them."""

import re

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}


def parse_size(text: str) -> int:
    """Return the bytes of a size such as 200GB, 1.5 TB or 60GiB.

    Raises:
        ValueError: no number with a unit.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kKMGTP]?)(i?)B\s*", text)
    size = 0
    if found:
        power = " KMGTP".index(found[2].upper() or " ")
        size = int(float(found[1]) * (1024 if found[3] else 1000) ** power)
    if not size:
        raise ValueError(f"{text!r} is no size; write a number and a unit, such as 200GB")
    return size


def show_size(size: float) -> str:
    unit = max((unit for unit, factor in UNITS.items() if size >= factor), key=lambda unit: UNITS[unit], default="B")
    return f"{size / UNITS[unit]:.3g} {unit}"


def show_time(seconds: float) -> str:
    """Return seconds, minutes or hours, whichever gives a number that can be read."""
    name, factor = ("h", 3600) if seconds >= 3600 else ("min", 60) if seconds >= 60 else ("s", 1)
    return f"{seconds / factor:.1f} {name}"


COUNTS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


def parse_count(text: str) -> int:
    """Return a count such as 20B or 300M.

    Raises:
        ValueError: no number with one of the letters K, M, B, T or none.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMBT]?)\s*", text.upper())
    count = int(float(found[1]) * COUNTS[found[2]]) if found else 0
    if not count:
        raise ValueError(f"{text!r} is no count; write such as 20B, 300M or 5000")
    return count


def show_count(count: float) -> str:
    letter = max((letter for letter, factor in COUNTS.items() if count >= factor), key=COUNTS.__getitem__, default="")
    return f"{count / COUNTS[letter]:.4g} {letter}".rstrip()
