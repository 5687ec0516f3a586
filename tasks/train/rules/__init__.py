"""Checks a mindformers YAML by rule before anything runs: what mindformers would refuse after minutes, ignore in silence, or
turn into another training than the one that was meant.

The rules work on the YAML that will run, whether this project wrote it or somebody else. Each has an id (P: layout,
B: batch, L: learning rate and optimizer, M: precision, C: recomputation and context, D: dataset, K: callbacks and
checkpoints), a severity, the reason, and says what to change.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from tasks.train.rules import checkpoints, data, keys, layout, learning
from tasks.train.rules.finding import Finding, Rule
from tasks.train.rules.view import View

RULES: tuple[Rule, ...] = (*layout.RULES, *learning.RULES, *data.RULES, *checkpoints.RULES)


def check_yaml(content: dict[str, Any], devices: int | None = None, servers: int = 1) -> list[Finding]:
    """Return everything that is wrong with a mindformers YAML, errors first. `devices`: that will train; what the YAML's own
    layout needs where it is left out.
    """
    unknown = list(keys.check_keys(content))
    view = View(content, devices, servers)
    broken = [finding for rule in RULES for finding in rule.findings(view)]
    return sorted([*unknown, *broken], key=lambda finding: finding.severity != "error")


def show(findings: Sequence[Finding], origins: dict[str, str]) -> Iterator[str]:
    """Yield a line for each finding; `origins`: which key of the configuration each key of the YAML came from."""
    for found in findings:
        origin = origins.get(found.key, "")
        place = f"{found.key} ({origin})" if origin else found.key
        yield f"{found.severity} {found.rule}: {place}: {found.found}; {found.mend}"
