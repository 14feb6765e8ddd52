"""Config facts as evidence: which faults a run's configuration makes impossible."""

from __future__ import annotations

from collections.abc import Mapping

from rltriage.engine.rows import Fact
from rltriage.rules.facts import judge
from rltriage.rules.model import Fault


def impossible(fault: Fault, facts: Mapping[str, Fact]) -> bool:
    """Whether known facts exclude the fault: `excluded_when` is not empty and each of its tests holds."""
    return (
        bool(fault.excluded_when)
        and judge(fault.excluded_when, {name: fact.value for name, fact in facts.items()}).holds is True
    )
