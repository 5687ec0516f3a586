"""Names the first cause of a failed training from its logs, with the mend where it is known."""

import re
from collections.abc import Sequence
from pathlib import Path

LAST_LINES = 5
SCHEDULER_REFUSED = "MS_SCHED_PORT is occupied"
WORKER_KILLED = re.compile(r"Worker process \d+ exit with exception\. Error code: -(?P<signal>\d+)")
KNOWN = (
    (r"TrainingStopped: (?P<said>.*)", "{said}"),
    (
        r"out of memory|OutOfMemory|bad_alloc|Cannot allocate memory",
        "out of memory; lower training.batch_size or the model",
    ),
    (r"No space left on device", "no space left; free some and run the same command again"),
    (r"Address already in use|address in use", "the port for the workers is taken; run the same command again"),
    (
        SCHEDULER_REFUSED,
        "the workers did not find each other, most often because another program took their port; "
        "run the same command again",
    ),
    (
        r"(?P<said>Unsupported op \[\w+\] on \w+)",
        "{said}: no such kernel; change training.precision or the model",
    ),
    (
        r"(?P<said>MindDataset: .*|.*mindrecord file.*)",
        "the token dataset cannot be read: {said}",
    ),
)
ERROR_LINE = re.compile(r"^(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|.*\[(?:ERROR|CRITICAL)\].*)$", re.MULTILINE)


def first_cause(logs: Sequence[Path], status: int | None) -> str:
    """Return the first known cause that a log names, else its last error, else how the process ended."""
    texts = [(log, log.read_text(encoding="utf-8", errors="replace")) for log in logs if log.is_file()]
    for log, text in texts:
        for pattern, explanation in KNOWN:
            found = re.search(pattern, text)
            if found:
                return f"{explanation.format(**found.groupdict())} (log: {log})"
    for log, text in texts:
        if killed := WORKER_KILLED.search(text):
            return f"{_ended_by(int(killed['signal']))} (log: {log})"
        errors = ERROR_LINE.findall(text)
        if errors:
            return f"{errors[-1].strip()} (log: {log})"
    if status is not None and (status < 0 or status > 128):
        return _ended_by(-status if status < 0 else status - 128)
    ends = [f"{log}: {line}" for log, text in texts for line in text.strip().splitlines()[-LAST_LINES:]]
    return "\n  ".join([f"status {status}, and no error in the logs; they end with", *ends])


def scheduler_failed(log: Path) -> bool:
    """Return whether the workers' scheduler gave up; they would wait for it, and `msrun` for them, without end."""
    return log.is_file() and SCHEDULER_REFUSED in log.read_text(encoding="utf-8", errors="replace")


def _ended_by(number: int) -> str:
    hint = "; most often the system, for want of memory" if number == 9 else ""
    return f"a process was ended from outside by signal {number}{hint}"
