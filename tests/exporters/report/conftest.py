"""Runs to report on: rows through the shipped pack, collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest

from rltriage.engine.monitor import Monitor
from rltriage.engine.rows import Fact, Row, Run
from rltriage.engine.triage import Triage
from rltriage.exporters.report.build import build
from rltriage.exporters.report.collect import Collector
from rltriage.exporters.report.model import RunReport
from rltriage.rules.loader import load_rules
from rltriage.rules.model import RulePack


@pytest.fixture(scope="session")
def pack() -> RulePack:
    """The shipped rules."""
    return load_rules("triage")


@pytest.fixture
def report_of(pack: RulePack) -> Callable[..., RunReport]:
    """`report_of(rows, kl_coef=0.1)` judges the rows and builds the report; `state=""` leaves the run open."""

    def make(rows: Iterable[Mapping[str, float]], *, name: str = "r", state: str = "finished", references=(), **facts):
        run = Run(name, facts={key: Fact(value, "declared", key) for key, value in facts.items()})
        monitor = Monitor(run, pack, pack.catalogue, triage=Triage(pack.catalogue, pack))
        collector = Collector(run)
        collector.references = references
        for step, metrics in enumerate(rows):
            row = Row(step, dict(metrics))
            collector.publish(run, row, monitor.observe(row))
        if state:
            collector.publish(run, None, monitor.close())
            collector.end(name, state, 0.0)
        return build(collector, pack)

    return make


@pytest.fixture
def live_reference() -> list[dict[str, float]]:
    """A KL to the reference that stays exactly 0 while the policy moves: fault 10, if kl_coef is above 0."""
    return [
        {"reward": 0.2 + 0.01 * (s % 7), "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-3, "entropy": 0.5} for s in range(12)
    ]
