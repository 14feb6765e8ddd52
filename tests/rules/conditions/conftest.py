"""Runs one condition over hand-made series through the monitor, as every caller does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from rltriage.engine.monitor import Monitor
from rltriage.engine.rows import Fact, Row, Run
from rltriage.rules.conditions.base import Condition, Verdict
from rltriage.rules.model import Catalogue, Rule, RulePack

WORDS = {True: "y", False: "n", None: "?"}
Values = Sequence[float | None]


class Watched:
    """One condition of one run."""

    def __init__(self, condition: Condition, facts: Mapping[str, Any], reference: Any = None) -> None:
        rule = Rule("r", "{step}", "outcome", "warning", condition, {"mask_shift": 1.0}, "invariants")
        run = Run("run", facts={name: Fact(value, "declared") for name, value in facts.items()})
        self.monitor = Monitor(run, RulePack("p", (rule,)), Catalogue({}, {}, {}), reference=reference)

    def verdict(self, step: int, metrics: Mapping[str, float], time: float | None = None) -> Verdict:
        """The verdict after one row."""
        self.monitor.observe(Row(step, metrics, time))
        return self.monitor.explain("r")


def rows_of(series: Mapping[str, Values]) -> list[dict[str, float]]:
    """Rows from columns; None is an absent metric."""
    length = max(len(values) for values in series.values())
    return [
        {name: values[i] for name, values in series.items() if i < len(values) and values[i] is not None}  # type: ignore[misc]
        for i in range(length)
    ]


@pytest.fixture
def judge() -> Callable[..., str]:
    """`judge(condition, reward=[...], config={...})` gives one letter a row: y holds, n does not, ? unknown."""

    def judged(
        condition: Condition, config: Mapping[str, Any] | None = None, reference: Any = None, **series: Values
    ) -> str:
        watched = Watched(condition, config or {}, reference)
        return "".join(WORDS[watched.verdict(i, row).holds] for i, row in enumerate(rows_of(series)))

    return judged
