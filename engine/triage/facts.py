"""Config facts as evidence: which faults a run's configuration makes impossible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltriage.engine.rows import Fact
from rltriage.rules.model import Fault


def impossible(fault: Fault, facts: Mapping[str, Fact]) -> bool:
    """Whether a known fact excludes the fault: one entry of `excluded_when` whose tests all hold is enough."""
    return any(
        name in facts and all(_holds(test, limit, facts[name].value) for test, limit in tests.items())
        for name, tests in fault.excluded_when.items()
    )


def _holds(test: str, limit: Any, value: Any) -> bool:
    """One test of a fact (`above`, `below`, `equals`, `not`, `in`, `known`); a value of the wrong type does not hold."""
    if test == "known":
        return bool(limit)
    if test in ("above", "below"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return bool(value > limit if test == "above" else value < limit)
    if test == "in":
        return value in limit
    return bool(value == limit) == (test == "equals")
