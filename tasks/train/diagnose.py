"""Reads training, msrun and scheduler logs and names what is known in them, the likeliest first cause first."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from configs.errors import PipelineError
from tasks.train.failures import Found, find_failures

LOG_ENDINGS = (".log", ".txt", ".out", ".err")
QUOTED = 160


def find_logs(places: Sequence[Path]) -> list[Path]:
    """Return the logs that are named, or lie in folders that are named.

    Raises:
        PipelineError: there is none.
    """
    logs: list[Path] = []
    for place in places:
        if place.is_dir():
            logs += sorted(file for file in place.rglob("*") if file.is_file() and file.suffix in LOG_ENDINGS)
        elif place.is_file():
            logs.append(place)
        else:
            raise PipelineError(f"{place}: not there; name a log, or a folder of logs")
    if not logs:
        raise PipelineError(f"{places[0]}: no logs ({', '.join(LOG_ENDINGS)}) in it")
    return logs


def diagnose(logs: Sequence[Path]) -> Iterator[str]:
    """Yield the lines that say what the logs show."""
    found = find_failures(logs)
    if not found:
        yield f"nothing known in {len(logs)} log{'s' if len(logs) > 1 else ''}; the first line with ERROR is where to begin"
        return
    yield "first cause"
    yield from _show(found[0])
    if found[1:]:
        yield ""
        yield "also found, which most often follows from it"
        for one in found[1:]:
            yield from _show(one)


def _show(found: Found) -> Iterator[str]:
    yield f"  {found.failure.name}: {found.text}"
    yield f"    {found.log}:{found.line}: {found.said[:QUOTED]}"
