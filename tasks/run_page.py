"""What a running stage shows in its page of the Prefect UI: how far it is, how long it will take, and a training's curves.

A page that cannot be written (the server is away) does not disturb the stage: a thread of its own writes it, says so once,
and what comes while it waits for the server is left out.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import cast
from uuid import UUID

import httpx
from prefect.artifacts import create_markdown_artifact, create_progress_artifact, update_progress_artifact
from prefect.exceptions import PrefectException

from configs.schema import ArtifactName
from tasks.charts import as_image, training_charts
from tasks.train.metrics import StepMetrics

logger = logging.getLogger("mindpretrain")

PROGRESS_SECONDS, CURVE_SECONDS = 3.0, 15.0
CURVE_SHARE = 0.01
"""Curves are drawn anew after so much of a training, so that a long one leaves a hundred versions and not thousands."""


class RunPage:
    """Shows one stage."""

    def __init__(self, stage: ArtifactName) -> None:
        self._stage = stage
        self._shown: UUID | None = None
        self._what = ""
        self._began = self._last = time.monotonic()
        self._first = 0
        self._drawn, self._drawn_steps = time.monotonic(), 0
        self._away = False
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="run-page")
        self._writing: Future[None] | None = None

    def progress(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self._what:  # another pass: its speed is another
            self._what, self._began, self._first, self._last = what, now, done, 0.0
        if now - self._last < PROGRESS_SECONDS and done < total:
            return
        self._last = now
        self._begin(lambda: self._show_progress(done, total, now), last=done == total)

    def curves(self, read: Callable[[], Sequence[StepMetrics]], done: int, total: int) -> None:
        now = time.monotonic()
        due = now - self._drawn >= CURVE_SECONDS and done - self._drawn_steps >= CURVE_SHARE * total
        if not due and done < total:
            return
        self._drawn, self._drawn_steps = now, done
        self._begin(lambda: self._draw(read()), last=done == total)

    def _show_progress(self, done: int, total: int, now: float) -> None:
        share = 100 * done / total
        text = f"{self._what}: {done} of {total}{_speed(done - self._first, total - done, now - self._began)}"
        if self._shown is None:
            made = create_progress_artifact(share, key=f"{self._stage}-progress", description=text)
            self._shown = cast(UUID, made)  # awaited by itself outside of coroutines
        else:
            update_progress_artifact(self._shown, share, description=text)

    def _draw(self, steps: Sequence[StepMetrics]) -> None:
        images = [f"### {title}\n\n{as_image(svg, title)}" for title, svg in training_charts(steps).items()]
        last = steps[-1]
        text = f"Step {last.step}, {last.tokens:,} tokens, loss {last.loss:.4f}\n\n" + "\n\n".join(images)
        create_markdown_artifact(text, key=f"{self._stage}-curves", description="Curves of the training so far")

    def _begin(self, show: Callable[[], object], last: bool) -> None:
        """Let the thread write, unless it is still at it; what is last is written in any case."""
        if last or self._writing is None or self._writing.done():
            context = copy_context()  # by which Prefect knows the run
            self._writing = self._writer.submit(context.run, self._write, show)

    def _write(self, show: Callable[[], object]) -> None:
        try:
            show()
            self._away = False
        except (httpx.HTTPError, PrefectException, OSError) as error:
            if not self._away:
                logger.warning("%s: its page cannot be written (%s); the work goes on", self._stage, error)
            self._away = True


def _speed(done: int, left: int, seconds: float) -> str:
    """Return rate and time left, once something was done."""
    if not done or seconds <= 0:
        return ""
    rate = done / seconds
    minutes, rest = divmod(round(left / rate), 60)
    hours, minutes = divmod(minutes, 60)
    time_left = f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f", {rate:.3g}/s, {time_left} left" if left else f", {rate:.3g}/s"
