"""A rule, and what it found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tasks.train.rules.view import View

Severity = Literal["error", "warning"]
Problem = tuple[str, str, str]
"""The YAML's key, what was found and why it is wrong, and the mend."""


@dataclass(frozen=True)
class Finding:
    """One broken rule, at a key of the YAML."""

    rule: str
    severity: Severity
    key: str
    found: str
    mend: str


@dataclass(frozen=True)
class Rule:
    """A rule: `check` yields its problems in a YAML; `reason`: what happens otherwise."""

    name: str
    severity: Severity
    reason: str
    check: Callable[[View], Iterator[Problem]]

    def findings(self, view: View) -> Iterator[Finding]:
        for key, found, mend in self.check(view):
            yield Finding(self.name, self.severity, key, f"{found}: {self.reason}", mend)
