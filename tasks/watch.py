"""How a stage says how far it is, without knowing who looks."""

from collections.abc import Callable, Sequence
from typing import Protocol

from tasks.train.metrics import StepMetrics


class Watcher(Protocol):
    """Is told of progress. It may be called often, and must neither take long nor fail."""

    def progress(self, what: str, done: int, total: int) -> None:
        """So many of `what` (shards, steps) are done."""

    def curves(self, read: Callable[[], Sequence[StepMetrics]], done: int, total: int) -> None:
        """A training has made so many steps, which `read` returns."""


class Nobody:
    """Does not look."""

    def progress(self, what: str, done: int, total: int) -> None:
        pass

    def curves(self, read: Callable[[], Sequence[StepMetrics]], done: int, total: int) -> None:
        pass
