"""A run's snapshot as samples of Prometheus families, with every label string built once per run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rltriage.engine.report import Incident
from rltriage.engine.rows import Run
from rltriage.exporters.naming import Family, Labels, Names, Series, label_value, run_labels
from rltriage.exporters.state import NO_HEALTH, RUN_STATES, Alerts, Health, Snapshot

Lines = tuple[tuple[Family, ...], list[str]]
Sample = tuple[Series, float]

STEP = Family("rltriage_training_step", "gauge", "Step of the newest row")
ROWS = Family("rltriage_rows", "counter", "Rows seen")
LAST_ROW = Family("rltriage_last_row_timestamp_seconds", "gauge", "Unix time of the newest row, or of its arrival")
EVALUATED = Family("rltriage_heldout_evaluation_step", "gauge", "Step at which held-out metrics were last measured")
STATE = Family("rltriage_run_state", "gauge", "1 for the state that the run is in")
INFO = Family("rltriage_run", "info", "Config facts and profile of the run")
EVALUATION = Family("rltriage_evaluation_seconds", "counter", "Seconds spent evaluating rules")
FAILED_RULES = Family("rltriage_rules_failed", "gauge", "Rules that failed on this run and are switched off for it")
INTERVAL = Family("rltriage_row_interval_seconds", "gauge", "Median seconds between the last rows")
LOST = Family(
    "rltriage_journal_lost", "counter", "Rows and alerts that could not be written into the run's directory: the disk"
)
FIRING = Family("rltriage_alert_firing", "gauge", "1 while the rule's alert fires")
EXPLAINED = Family("rltriage_alert_explained", "gauge", "1 while another firing alert explains this one")
LAST_FIRING = Family(
    "rltriage_alert_last_firing_timestamp_seconds", "gauge", "Unix time of the last row with the alert firing"
)
VIOLATIONS = Family("rltriage_rule_violations", "counter", "Rows during which the rule's alert fired")
TRANSITIONS = Family("rltriage_alert_transitions", "counter", "Alert transitions by the state that they led to")
INCIDENT = Family(
    "rltriage_incident", "info", "The open incident: first suspect, cheapest and best test, what to do meanwhile"
)
SCORE = Family("rltriage_incident_suspect_score", "gauge", "Probability of each suspect of the open incident")
FIRST = (STEP, ROWS, LAST_ROW, EVALUATED, STATE, INFO)
LAST = (EVALUATION, FAILED_RULES, INTERVAL, LOST, FIRING, LAST_FIRING, EXPLAINED, VIOLATIONS, TRANSITIONS, INCIDENT, SCORE)

_IDENTITY = ("rule", "severity", "fault", "first_test")
_MAX_FACTS = 64
_MAX_SERIES = 5000
_NOT_A_NUMBER = (TypeError, ValueError, OverflowError)


class Columns(NamedTuple):
    """Samples as two lists of one length: thousands of pairs would keep the garbage collector busy."""

    series: list[Series]
    values: list[float]


class Entry:
    """One run: its newest snapshot, written by the run's own thread, and what scrapes have built of it."""

    def __init__(self, run: Run, snapshot: Snapshot, health: Health = NO_HEALTH) -> None:
        self.run = run
        self.snapshot = snapshot
        self.health = health
        self.rendered: tuple[Snapshot, Lines] | None = None
        self._labels = run_labels(run.id, run.labels.items())
        self._metrics: dict[str, Series | None] = {}
        self._others: dict[tuple[str, Labels], Series] = {}
        self._always: list[Series] = []
        self._names: list[str] = []
        self._series: list[Series] = []

    def columns(self, snapshot: Snapshot, names: Names) -> Columns:
        """Every sample of a snapshot: its metrics, the run's state, its alerts."""
        series, values = self._metric_columns({**snapshot.carried, **snapshot.metrics}, names)
        self._always = self._always or self._always_shown()
        values += (float(snapshot.rows), 1.0, *[float(state == snapshot.state) for state in RUN_STATES])
        series = series + self._always
        if snapshot.step is not None:
            values += (float(snapshot.step), float(snapshot.time))
        else:
            del series[len(values) :]
        found = Columns(series, values)
        if snapshot.evaluated is not None:
            self._add(found, EVALUATED, snapshot.evaluated)
        health = self.health
        self._add(found, EVALUATION, health.seconds)
        self._add(found, FAILED_RULES, health.failed_rules)
        if health.row_interval is not None:
            self._add(found, INTERVAL, health.row_interval)
        if health.lost is not None:
            self._add(found, LOST, health.lost)
        for metric, bounds in health.healthy.items():
            place = names.healthy(metric)
            if place is not None:
                for bound, value in zip(("low", "high"), bounds, strict=True):
                    self._add(found, place[0], value, *place[1], ("bound", bound))
        self._add_alerts(found, snapshot.alerts)
        return found

    def _metric_columns(self, metrics: Mapping[str, float], names: Names) -> tuple[list[Series], list[float]]:
        keys = list(metrics)
        if keys == self._names:
            try:
                return self._series, list(map(float, metrics.values()))
            except _NOT_A_NUMBER:
                pass  # Below, the others are still shown.
        found = Columns([], [])
        for key, value in metrics.items():
            series = self._metric_series(key, names)
            if series is not None:
                try:
                    found.values.append(float(value))
                    found.series.append(series)
                except _NOT_A_NUMBER:
                    names.not_numbers += 1
        if len(found.series) == len(keys):
            self._names, self._series = keys, found.series
        return found

    def _metric_series(self, metric: str, names: Names) -> Series | None:
        try:
            return self._metrics[metric]
        except KeyError:
            place = names.find(str(metric))
            # Where the run has a label of the same name, it gives way: two would make the whole scrape unreadable.
            series = Series(place[0], tuple({**dict(self._labels), **dict(place[1])}.items())) if place else None
            if len(self._metrics) < _MAX_SERIES:
                self._metrics[metric] = series
            return series

    def _always_shown(self) -> list[Series]:
        states = [Series(STATE, (*self._labels, ("state", state))) for state in RUN_STATES]
        info = Series(INFO, self._labels + _info(self.run, self._labels))
        return [Series(ROWS, self._labels), info, *states, Series(STEP, self._labels), Series(LAST_ROW, self._labels)]

    def _add(self, found: Columns, family: Family, value: float, *labels: tuple[str, str]) -> None:
        key = (family.name, labels)
        series = self._others.get(key)
        if series is None:
            own = {name: label_value(text) for name, text in labels}
            series = self._others[key] = Series(family, tuple({**dict(self._labels), **own}.items()))
        found.series.append(series)
        found.values.append(float(value))

    def _add_alerts(self, found: Columns, alerts: Alerts) -> None:
        for key, on in alerts.firing.items():
            self._add(found, FIRING, on, *zip(_IDENTITY, key[:-1], strict=True), *key[-1])
        for key, at in alerts.last_firing.items():
            self._add(found, LAST_FIRING, at, *zip(_IDENTITY, key[:-1], strict=True), *key[-1])
        for rule, on in alerts.explained.items():
            self._add(found, EXPLAINED, on, ("rule", rule))
        for rule, count in alerts.violations.items():
            self._add(found, VIOLATIONS, count, ("rule", rule))
        for (rule, state), count in alerts.transitions.items():
            self._add(found, TRANSITIONS, count, ("rule", rule), ("to", state))
        if alerts.incident is not None:
            self._add(found, INCIDENT, 1, *_identity(alerts.incident))
            for suspect in alerts.incident.suspects:
                self._add(found, SCORE, suspect.score, ("fault", suspect.fault))


def _identity(incident: Incident) -> Labels:
    """What the incident says to do; it changes only with its first two suspects."""
    first = incident.suspects[0].fault if incident.suspects else ""
    return (
        ("severity", incident.severity),
        ("fault", first),
        ("first_test", incident.first_test),
        ("best_test", incident.best_test),
        ("action", incident.action),
    )


def _info(run: Run, labels: Labels) -> Labels:
    """Profile and config facts as labels of `rltriage_run_info`, without the names that the run's own labels take."""
    taken = {name for name, _ in labels}
    facts = {"profile": run.profile, **{name: fact.value for name, fact in run.facts.items()}}
    plain = run_labels("", [(name, value) for name, value in facts.items() if name not in taken], _MAX_FACTS)
    return plain[1:]
