"""What the exporter knows of a run after a row: a snapshot that is replaced as a whole, never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from rltriage.engine.report import CLOSED, OPEN, Alert, Incident, StepReport
from rltriage.engine.rows import Row
from rltriage.exporters.naming import Labels, free_labels
from rltriage.rules.model import Rule

RunState = Literal["running", "finished", "crashed", "stale"]
RUN_STATES: tuple[RunState, ...] = get_args(RunState)

LASTING = ("eval_", "check_")
"""Metrics that are measured now and then: they keep their last value, every other one is absent when its row lacks it."""

AlertKey = tuple[str, str, str, str, Labels]
"""rule, severity, fault, first test, the rule's labels: with the run the identity of an alert's series."""


@dataclass(frozen=True, slots=True)
class Alerts:
    """Alert state of a run. A severity that changed leaves its old key in `firing` at False.

    `last_firing` is the unix time of the last row at which an alert fired: a scrape sees it even when the alert came and
    went between two scrapes.
    """

    firing: Mapping[AlertKey, bool] = field(default_factory=dict)
    explained: Mapping[str, bool] = field(default_factory=dict)
    violations: Mapping[str, int] = field(default_factory=dict)
    transitions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    last_firing: Mapping[AlertKey, float] = field(default_factory=dict)
    incident: Incident | None = None

    @classmethod
    def quiet(cls, rules: Iterable[Rule]) -> Alerts:
        """Every rule at 0."""
        firing: dict[AlertKey, bool] = {}
        for rule in rules:
            labels = free_labels(rule.labels.items())
            firing[rule.id, rule.severity, next(iter(rule.suspects), ""), rule.first_test, labels] = False
        return cls(firing, {}, dict.fromkeys((key[0] for key in firing), 0))

    def after(self, report: StepReport, is_row: bool, now: float) -> Alerts:
        """The state after a report; the same object when nothing changed."""
        if not report.alerts and report.incident is None and not (is_row and any(self.firing.values())):
            return self
        firing, explained, transitions = dict(self.firing), dict(self.explained), dict(self.transitions)
        for alert in report.alerts:
            transitions[alert.rule, alert.state] = transitions.get((alert.rule, alert.state), 0) + 1
            if alert.state in OPEN or alert.state in CLOSED:
                firing.update(dict.fromkeys([key for key in firing if key[0] == alert.rule], False))
                firing[_key(alert)] = alert.state in OPEN
                explained[alert.rule] = alert.state in OPEN and alert.explained_by is not None
        violations, last_firing = dict(self.violations), dict(self.last_firing)
        if is_row:
            fired = {_key(alert) for alert in report.alerts if alert.state == "firing"}
            fired |= {key for key, on in firing.items() if on}
            last_firing.update(dict.fromkeys(fired, now))
            for rule in {key[0] for key in fired}:
                violations[rule] = violations.get(rule, 0) + 1
        incident = (report.incident or self.incident) if any(firing.values()) else None
        return Alerts(firing, explained, violations, transitions, last_firing, incident)

    def closed(self) -> Alerts:
        """The state after the run's end: nothing fires, the counters stay."""
        return replace(self, firing=dict.fromkeys(self.firing, False), explained={}, incident=None)


class Health(NamedTuple):
    """How the engine fares with a run: seconds spent on it so far, rules that failed, median seconds between rows.

    `healthy` is the (low, high) of each metric that a fitting reference knows at the newest step, `lost` how many rows and
    alerts are in no file, None where none is written.
    """

    seconds: float = 0.0
    failed_rules: int = 0
    row_interval: float | None = None
    healthy: Mapping[str, tuple[float, float]] = MappingProxyType({})
    lost: int | None = None


NO_HEALTH = Health()
BANDED = (
    "reward",
    "eval_pass",
    "entropy",
    "approx_kl",
    "clip_frac",
    "ratio_max",
    "grad_norm",
    "zero_adv_frac",
    "length",
    "length_fail",
    "turns",
    "reads",
    "malformed",
)
"""Metrics without a fixed right value whose healthy range is shown: all of them would double the series of a run."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a scrape shows of a run. `lasting` names those metrics of the row that are carried on.

    `step` and `time` (unix seconds) are the newest row's, `evaluated` the step of the last held-out evaluation, `ended`
    when the run ended.
    """

    alerts: Alerts
    metrics: Mapping[str, float] = field(default_factory=dict)
    carried: Mapping[str, float] = field(default_factory=dict)
    lasting: tuple[str, ...] = ()
    step: int | None = None
    rows: int = 0
    time: float = 0.0
    evaluated: int | None = None
    state: RunState = "running"
    ended: float | None = None

    def after(self, row: Row | None, report: StepReport, now: float) -> Snapshot:
        """The snapshot after a row and its report, or after a report of the clock alone."""
        time = row.time if row is not None and row.time is not None else now
        alerts = self.alerts.after(report, row is not None, time)
        if row is None:
            return replace(self, alerts=alerts)
        metrics = dict(row.metrics)
        if row.step == self.step and self.state == "running":
            metrics = {**self.metrics, **metrics}
        same = metrics.keys() == self.metrics.keys()
        lasting = self.lasting if same else tuple(name for name in metrics if name.startswith(LASTING))
        carried, evaluated = self.carried, self.evaluated
        if lasting:
            carried = {**carried, **{name: metrics[name] for name in lasting}}
            evaluated = row.step if any(name.startswith("eval_") for name in lasting) else evaluated
        return Snapshot(alerts, metrics, carried, lasting, row.step, self.rows + 1, time, evaluated)

    def after_end(self, state: str, now: float) -> Snapshot:
        """The snapshot of a run that ended at `now`; alerts of a stale run keep their value, for nothing has recovered."""
        known = RUN_STATES[RUN_STATES.index(state)]  # ValueError for any other text
        return replace(self, state=known, ended=now, alerts=self.alerts if state == "stale" else self.alerts.closed())


def _key(alert: Alert) -> AlertKey:
    fault = alert.suspects[0].fault if alert.suspects else ""
    return alert.rule, alert.severity, fault, alert.first_test, free_labels(alert.labels.items())
