"""Config facts as evidence: which faults a run's configuration makes impossible."""

from __future__ import annotations

from collections.abc import Mapping

from rltriage.engine.rows import Fact
from rltriage.rules.facts import judge
from rltriage.rules.model import Fault


def impossible(fault: Fault, facts: Mapping[str, Fact]) -> bool:
    """Whether a known fact excludes the fault: one entry of `excluded_when` whose tests all hold is enough."""
    return any(
        name in facts and judge({name: tests}, {name: facts[name].value}).holds is True
        for name, tests in fault.excluded_when.items()
    )
