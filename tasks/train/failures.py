"""Names the first cause of a failed training from its logs, with the mend where it is known."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.train.known_failures import FAILURES, Failure

LAST_LINES = 5
SCHEDULER_REFUSED = "MS_SCHED_PORT is occupied"
COMPILED = tuple((failure, re.compile(failure.pattern)) for failure in FAILURES)
ERROR_LINE = re.compile(r"^(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|.*\[(?:ERROR|CRITICAL)\].*)$")
TIME = re.compile(r"(\d{4}-\d\d-\d\d)[- T](\d\d:\d\d:\d\d[.,]\d+(?:\.\d+)?)")
NEVER = "9999"


@dataclass(frozen=True)
class Found:
    """A known failure in a log. `text`: cause and mend; `line`: counted from 1; `time`: as the log writes it, or 9999."""

    failure: Failure
    text: str
    log: Path
    line: int
    said: str
    time: str


@dataclass(frozen=True)
class Cause:
    """Why a training ended. `outside`: it may go on; `unknown`: the logs do not say."""

    text: str
    outside: bool = False
    unknown: bool = False


def find_failures(logs: Sequence[Path]) -> list[Found]:
    """Return the known failures in logs, the likeliest first cause first.

    What only follows from another's error comes after the rest, and what is worth a note alone at last; among equals the
    earliest comes first, by the logs' own times where all have them, else in the order of the logs and their lines. A
    failure is named once for each log.
    """
    found = [one for log in logs if log.is_file() for one in _in_log(log)]
    timed = all(one.time != NEVER for one in found)
    order = {log: place for place, log in enumerate(logs)}
    return sorted(
        found,
        key=lambda one: (
            one.failure.note,
            one.failure.follows,
            not one.failure.verdict,
            one.time if timed else "",
            order[one.log],
            one.line,
        ),
    )


def first_cause(logs: Sequence[Path], status: int | None) -> Cause:
    """Return the first known cause that a log names, else its last error, else how the process ended."""
    known = [found for found in find_failures(logs) if not found.failure.note]
    first = next((found for found in known if not found.failure.follows), None)
    if first is None and (error := _last_error(logs)):
        return Cause(error)
    first = first or next(iter(known), None)
    if first is not None:
        return Cause(f"{first.text} (log: {first.log})", first.failure.outside)
    if status is not None and (status < 0 or status > 128):
        return Cause(_ended_by(-status if status < 0 else status - 128), outside=True)
    ends = [f"{log}: {line}" for log in logs if log.is_file() for line in _read(log).strip().splitlines()[-LAST_LINES:]]
    return Cause("\n  ".join([f"status {status}, and no error in the logs; they end with", *ends]), unknown=True)


def scheduler_failed(log: Path) -> bool:
    """Return whether the workers' scheduler gave up; they would wait for it, and `msrun` for them, without end."""
    return log.is_file() and SCHEDULER_REFUSED in _read(log)


def _in_log(log: Path) -> Iterator[Found]:
    seen: set[str] = set()
    time = NEVER
    for number, line in enumerate(_read(log).splitlines(), 1):
        stamp = TIME.search(line)
        time = f"{stamp[1]} {stamp[2].replace(',', '.')}" if stamp else time
        for failure, pattern in COMPILED:
            if found := pattern.search(line):
                if failure.name not in seen:
                    seen.add(failure.name)
                    words = {name: (value or "").strip() for name, value in found.groupdict().items()}
                    text = "; ".join(part.format(**words) for part in (failure.cause, failure.mend) if part)
                    yield Found(failure, text, log, number, line.strip(), time)
                break


def _last_error(logs: Sequence[Path]) -> str | None:
    """Return the last error line of the first log that has one which no known failure explains."""
    for log in logs:
        lines = _read(log).splitlines() if log.is_file() else []
        errors = [line for line in lines if ERROR_LINE.match(line) and not _is_known(line)]
        explained = any(_is_known(line) for line in lines)
        if errors and not explained:
            return f"{errors[-1].strip()} (log: {log})"
    return None


def _is_known(line: str) -> bool:
    return any(pattern.search(line) for failure, pattern in COMPILED if not failure.note)


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _ended_by(number: int) -> str:
    hint = "; most often the system, for want of memory" if number == 9 else ""
    return f"a process was ended from outside by signal {number}{hint}"
