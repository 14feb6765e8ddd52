"""Builds monitors and rows for the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rltriage.engine.monitor import Monitor
from rltriage.engine.report import Alert
from rltriage.engine.rows import Fact, Row, Run
from rltriage.rules.conditions.base import Condition
from rltriage.rules.conditions.terms import number
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.model import Catalogue, Rule, RulePack

HIGH = Threshold(metric="x", above=number(0.5))


def make_rule(
    id: str = "r", when: Condition = HIGH, severity: Any = "warning", summary: str = "x is {x}", **options: Any
) -> Rule:
    """A rule about a high x, unless told otherwise."""
    return Rule(id, summary, "outcome", severity, when, {"mask_shift": 1.0}, "invariants", **options)


def make_monitor(*rules: Rule, config: dict[str, Any] | None = None, **options: Any) -> Monitor:
    """A monitor of these rules."""
    facts = {name: Fact(value, "declared") for name, value in (config or {}).items()}
    return Monitor(Run("run", facts=facts), RulePack("p", rules), Catalogue({}, {}, {}), **options)


def feed(monitor: Monitor, *columns: Any, start: int = 0, **series: Any) -> list[Alert]:
    """Rows from columns of values, None for an absent one; all transitions in order."""
    alerts: list[Alert] = []
    for i in range(max(len(values) for values in series.values())):
        row = {name: values[i] for name, values in series.items() if i < len(values) and values[i] is not None}
        alerts += monitor.observe(Row(start + i, row)).alerts
    return alerts


@pytest.fixture
def rule() -> Callable[..., Rule]:
    """`rule(id, when, ...)`."""
    return make_rule


@pytest.fixture
def watch() -> Callable[..., Monitor]:
    """`watch(*rules, config={...})`."""
    return make_monitor


@pytest.fixture
def rows() -> Callable[..., list[Alert]]:
    """`rows(monitor, x=[...])` gives the transitions."""
    return feed
