"""Rows and alert state as Prometheus gauges: cheap to hand over, atomic to read.

A training loop calls `publish` once per row, which swaps one snapshot; formatting happens in the scrape, once per changed
run. A row's metrics become visible together with the alerts that it caused. A metric absent from the newest row is absent
here too, except `eval_*` and `check_*`, which are measured now and then and keep their last value. Source: DESIGN section 8.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version

from rltriage.engine.report import Alert, StepReport, Suspect
from rltriage.engine.rows import Row, Run
from rltriage.exporters import exposition
from rltriage.exporters.exposition import Sample
from rltriage.exporters.naming import Family, Labels, Names, Series, label_value, run_labels
from rltriage.rules.model import MetricInfo, Rule

RUN_STATES = ("running", "finished", "crashed", "stale")
_MAX_FACTS = 64
_MAX_SERIES = 5000
_CARRIED = ("eval_", "check_")
_OPEN = ("firing", "stale", "flapping")
_CLOSED = ("resolved", "ended", "superseded")

STEP = Family("rltriage_training_step", "gauge", "Step of the newest row")
ROWS = Family("rltriage_rows", "counter", "Rows seen")
LAST_ROW = Family("rltriage_last_row_timestamp_seconds", "gauge", "Unix time of the newest row, or of its arrival if it has none")
EVALUATED = Family("rltriage_heldout_evaluation_step", "gauge", "Step at which held-out metrics were last measured")
STATE = Family("rltriage_run_state", "gauge", "1 for the state that the run is in")
INFO = Family("rltriage_run", "info", "Config facts and profile of the run")
FIRING = Family("rltriage_alert_firing", "gauge", "1 while the rule's alert fires")
EXPLAINED = Family("rltriage_alert_explained", "gauge", "1 while another firing alert explains this one")
VIOLATIONS = Family("rltriage_rule_violations", "counter", "Rows during which the rule's alert fired")
TRANSITIONS = Family("rltriage_alert_transitions", "counter", "Alert transitions by the state that they led to")
SCORE = Family("rltriage_incident_suspect_score", "gauge", "Probability of each suspect of the open incident")
EVALUATION = Family("rltriage_evaluation_seconds", "counter", "Seconds spent evaluating rules")
RUNS = Family("rltriage_exporter_runs", "gauge", "Runs that the exporter holds")
FAILURES = Family("rltriage_exporter_failures", "counter", "Rows or scrapes that the exporter could not handle")
DROPPED = Family("rltriage_exporter_dropped", "counter", "What was refused to stay bounded, by reason")
BUILD = Family("rltriage_build", "info", "Version of rltriage")
_ORDER = (STEP, ROWS, LAST_ROW, EVALUATED, STATE, INFO)
_ALERTS = (FIRING, EXPLAINED, VIOLATIONS, TRANSITIONS, SCORE)

AlertKey = tuple[str, str, str, str]
"""rule, severity, fault, first test: with `run` the identity of an alert's series."""


@dataclass(frozen=True, slots=True)
class _Alerts:
    """Alert state after a row. `open` counts: a severity that changed leaves its old series at 0."""

    firing: Mapping[AlertKey, bool] = field(default_factory=dict)
    explained: Mapping[str, bool] = field(default_factory=dict)
    violations: Mapping[str, int] = field(default_factory=dict)
    transitions: Mapping[tuple[str, str], int] = field(default_factory=dict)
    suspects: tuple[Suspect, ...] = ()

    def active(self) -> list[str]:
        return sorted({key[0] for key, on in self.firing.items() if on})


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Everything that a scrape shows of a run; replaced as a whole."""

    metrics: Mapping[str, float]
    carried: Mapping[str, float]
    alerts: _Alerts
    step: int | None = None
    rows: int = 0
    time: float | None = None
    evaluated: int | None = None
    seconds: float = 0.0
    state: str = "running"
    ended: float | None = None


class _Entry:
    """One run: its newest snapshot, written by the run's own thread, and what the scrape has formatted of it."""

    def __init__(self, run: Run, alerts: _Alerts) -> None:
        self.run = run
        self.labels = run_labels(run.id, run.labels.items())
        self.snapshot = _Snapshot({}, {}, alerts)
        self.rendered: tuple[_Snapshot, Run, list[tuple[Family, str]]] | None = None
        self.metrics: dict[str, Series | None] = {}
        self.series: dict[tuple[str, Labels], Series] = {}


class Gauges:
    """Holds the newest row and the alert state of every run and renders them for Prometheus.

    `metrics` is the catalogue's; rules given in `rules` are shown at 0 before they first fire. Series of an ended run stay for
    `linger` seconds. At most `max_runs` runs and `max_extra` unmapped names are held; what is refused is counted. `publish`
    and `end` never raise. `clock` gives the arrival time of rows that carry none, and the age of ended runs.
    """

    def __init__(
        self,
        metrics: Mapping[str, MetricInfo],
        rules: Iterable[Rule] = (),
        *,
        linger: float = 300.0,
        max_runs: int = 2000,
        max_extra: int = 500,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._names = Names(metrics, max_extra)
        self._quiet = _quiet(rules)
        self._linger = linger
        self._max_runs = max_runs
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._admission = threading.Lock()
        self._rendering = threading.Lock()
        self._changes = itertools.count(1)
        self._change = 0
        self._cache: dict[tuple[bool, bool], bytes] = {}
        self._cached_change = -1
        self._failures = 0
        self._runs_refused = 0

    def publish(self, run: Run, row: Row | None, report: StepReport, seconds: float = 0.0) -> None:
        """Take a row and what it changed; `row` is None for a report of the clock alone (overdue, ended).

        `seconds` is what evaluating the rules took. Costs a few microseconds and never raises.
        """
        try:
            entry = self._entries.get(run.id) or self._admit(run)
            if entry is None:
                return
            if run is not entry.run and run != entry.run:
                self._entries[run.id] = entry = _moved(entry, run)
            entry.snapshot = self._after(entry.snapshot, row, report, seconds)
            self._change = next(self._changes)
        except Exception:
            self._failures += 1

    def end(self, run_id: str, state: str, now: float) -> None:
        """Mark a run as `finished`, `crashed` or `stale` at `now` (unix seconds); a later row makes it running again.

        Alerts of a stale run keep their value: nothing has recovered. Otherwise they go to 0.
        """
        try:
            entry = self._entries.get(run_id)
            if entry is None:
                return
            old = entry.snapshot
            alerts = old.alerts
            if state != "stale":
                alerts = replace(alerts, firing=dict.fromkeys(alerts.firing, False), explained={}, suspects=())
            entry.snapshot = replace(old, state=label_value(state), ended=now, alerts=alerts)
            self._change = next(self._changes)
        except Exception:
            self._failures += 1

    def render(self, openmetrics: bool = False, gzipped: bool = False) -> bytes:
        """The exposition: text 0.0.4 or OpenMetrics 1.0.0, plain or gzip level 1; cached until something changes."""
        with self._rendering:
            self._forget_ended()
            change = self._change
            if change != self._cached_change:
                self._cache.clear()
                self._cached_change = change
            body = self._cache.get((openmetrics, False))
            if body is None:
                body = self._cache[openmetrics, False] = exposition.document(self._blocks(), openmetrics)
            if not gzipped:
                return body
            if (openmetrics, True) not in self._cache:
                self._cache[openmetrics, True] = gzip.compress(body, 1, mtime=0)
            return self._cache[openmetrics, True]

    def samples(self) -> list[Sample]:
        """Every sample, for a collector: the same that `render` writes, in no particular order."""
        with self._rendering:
            self._forget_ended()
            found = [sample for entry in list(self._entries.values()) for sample in self._samples(entry, entry.snapshot)]
            return found + self._own()

    def _admit(self, run: Run) -> _Entry | None:
        with self._admission:
            if len(self._entries) >= self._max_runs:
                ended = [e for e in self._entries.values() if e.snapshot.ended is not None]
                if not ended:
                    self._runs_refused += 1
                    return None
                oldest = min(ended, key=lambda entry: entry.snapshot.ended or 0.0)
                del self._entries[oldest.run.id]
            return self._entries.setdefault(run.id, _Entry(run, self._quiet))

    def _after(self, old: _Snapshot, row: Row | None, report: StepReport, seconds: float) -> _Snapshot:
        alerts = _alerts_after(old.alerts, report, row is not None)
        if row is None:
            return replace(old, alerts=alerts, seconds=old.seconds + seconds)
        metrics = dict(row.metrics)
        if row.step == old.step and old.state == "running":
            metrics = {**old.metrics, **metrics}
        carried, evaluated = old.carried, old.evaluated
        fresh = {name: value for name, value in metrics.items() if name.startswith(_CARRIED)}
        if fresh:
            carried = {**carried, **fresh}
            evaluated = row.step if any(name.startswith("eval_") for name in fresh) else evaluated
        at = row.time if row.time is not None else self._clock()
        return _Snapshot(metrics, carried, alerts, row.step, old.rows + 1, at, evaluated, old.seconds + seconds)

    def _forget_ended(self) -> None:
        limit = self._clock() - self._linger
        gone = [e for e in list(self._entries.values()) if e.snapshot.ended is not None and e.snapshot.ended < limit]
        for entry in gone:
            self._entries.pop(entry.run.id, None)
        if gone:
            self._change = next(self._changes)

    def _blocks(self) -> dict[Family, list[str]]:
        blocks: dict[Family, list[str]] = {family: [] for family in _ORDER}
        late: dict[Family, list[str]] = {family: [] for family in _ALERTS}
        for entry in list(self._entries.values()):
            for family, line in self._formatted(entry):
                block = late.get(family)
                if block is None:
                    block = blocks.get(family)
                    if block is None:
                        block = blocks[family] = []
                block.append(line)
        for family, line in exposition.lines(self._own()):
            late.setdefault(family, []).append(line)
        return {family: block for family, block in (blocks | late).items() if block}

    def _formatted(self, entry: _Entry) -> list[tuple[Family, str]]:
        snapshot, run = entry.snapshot, entry.run
        done = entry.rendered
        if done is not None and done[0] is snapshot and done[1] is run:
            return done[2]
        try:
            text = exposition.lines(self._samples(entry, snapshot))
        except Exception:
            self._failures += 1
            text = []
        entry.rendered = (snapshot, run, text)
        return text

    def _samples(self, entry: _Entry, snapshot: _Snapshot) -> list[Sample]:
        found = self._metric_samples(entry, {**snapshot.carried, **snapshot.metrics})
        add = _Adder(entry, found)
        add(ROWS, snapshot.rows)
        add(INFO, 1, *_info(entry))
        for state in dict.fromkeys((*RUN_STATES, snapshot.state)):
            add(STATE, float(state == snapshot.state), ("state", state))
        if snapshot.step is not None and snapshot.time is not None:
            add(STEP, snapshot.step)
            add(LAST_ROW, snapshot.time)
        if snapshot.evaluated is not None:
            add(EVALUATED, snapshot.evaluated)
        if snapshot.seconds:
            add(EVALUATION, snapshot.seconds)
        _alert_samples(add, snapshot.alerts)
        return found

    def _metric_samples(self, entry: _Entry, metrics: Mapping[str, float]) -> list[Sample]:
        known = entry.metrics
        found: list[Sample] = []
        for name, value in metrics.items():
            try:
                series = known[name]
            except KeyError:
                place = self._names.find(str(name))
                series = Series(place[0], entry.labels + place[1]) if place else None
                if len(known) < _MAX_SERIES:
                    known[name] = series
            if series is not None:
                try:
                    found.append((series, float(value)))
                except (TypeError, ValueError, OverflowError):
                    self._failures += 1
        return found

    def _own(self) -> list[Sample]:
        dropped = {"collision": len(self._names.collisions), "extra": self._names.over_limit, "run": self._runs_refused}
        found = [(Series(DROPPED, (("reason", reason),)), float(count)) for reason, count in dropped.items()]
        found.append((Series(RUNS, ()), float(len(self._entries))))
        found.append((Series(FAILURES, ()), float(self._failures)))
        found.append((Series(BUILD, (("version", _version()),)), 1.0))
        return found


class _Adder:
    """Appends samples of one run to a list, keeping each series that was formatted once."""

    def __init__(self, entry: _Entry, found: list[Sample]) -> None:
        self._entry = entry
        self._found = found

    def __call__(self, family: Family, value: float, *labels: tuple[str, str]) -> None:
        key = (family.name, labels)
        series = self._entry.series.get(key)
        if series is None:
            own: Labels = tuple((name, label_value(text)) for name, text in labels)
            series = self._entry.series[key] = Series(family, self._entry.labels + own)
        self._found.append((series, value))


def _alerts_after(old: _Alerts, report: StepReport, is_row: bool) -> _Alerts:
    changed = bool(report.alerts)
    if not changed and report.incident is None and not (is_row and any(old.firing.values())):
        return old
    firing, explained, transitions = dict(old.firing), dict(old.explained), dict(old.transitions)
    touched = set()
    for alert in report.alerts:
        transitions[alert.rule, alert.state] = transitions.get((alert.rule, alert.state), 0) + 1
        if alert.state in _OPEN or alert.state in _CLOSED:
            for key in firing:
                if key[0] == alert.rule:
                    firing[key] = False
            firing[_key(alert)] = alert.state in _OPEN
            explained[alert.rule] = alert.state in _OPEN and alert.explained_by is not None
        if alert.state == "firing":
            touched.add(alert.rule)
    violations = dict(old.violations)
    if is_row:
        for rule in touched | {key[0] for key, on in firing.items() if on}:
            violations[rule] = violations.get(rule, 0) + 1
    suspects = report.incident.suspects if report.incident is not None else old.suspects
    return _Alerts(firing, explained, violations, transitions, suspects if any(firing.values()) else ())


def _alert_samples(add: _Adder, alerts: _Alerts) -> None:
    for (rule, severity, fault, first_test), on in alerts.firing.items():
        identity = (("rule", rule), ("severity", severity), ("fault", fault), ("first_test", first_test))
        add(FIRING, float(on), *identity)
    for rule, on in alerts.explained.items():
        add(EXPLAINED, float(on), ("rule", rule))
    for rule, count in alerts.violations.items():
        add(VIOLATIONS, count, ("rule", rule))
    for (rule, state), count in alerts.transitions.items():
        add(TRANSITIONS, count, ("rule", rule), ("to", state))
    for suspect in alerts.suspects:
        add(SCORE, suspect.score, ("fault", suspect.fault))


def _key(alert: Alert) -> AlertKey:
    return alert.rule, alert.severity, alert.suspects[0].fault if alert.suspects else "", alert.first_test


def _quiet(rules: Iterable[Rule]) -> _Alerts:
    firing: dict[AlertKey, bool] = {}
    for rule in rules:
        firing[rule.id, rule.severity, next(iter(rule.suspects), ""), rule.first_test] = False
    return _Alerts(firing, {}, dict.fromkeys((key[0] for key in firing), 0))


def _info(entry: _Entry) -> Labels:
    taken = {name for name, _ in entry.labels}
    facts = {"profile": entry.run.profile, **{name: fact.value for name, fact in entry.run.facts.items()}}
    plain = run_labels("", [(name, value) for name, value in facts.items() if name not in taken], _MAX_FACTS)
    return plain[1:]


def _moved(entry: _Entry, run: Run) -> _Entry:
    """The same run with other labels or facts: its series are named anew."""
    moved = _Entry(run, entry.snapshot.alerts)
    moved.snapshot = entry.snapshot
    return moved


@functools.cache
def _version() -> str:
    try:
        return version("rltriage")
    except PackageNotFoundError:
        return "unknown"
