"""The sink behind report and page: what has happened in one run, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rltriage.engine.coverage import Coverage
from rltriage.engine.inference import INFERABLE, inferred
from rltriage.engine.reference import Reference
from rltriage.engine.report import OPEN, Alert, Incident, StepReport
from rltriage.engine.rows import Fact, Row, Run
from rltriage.exporters.report.curves import BUCKETS, Curves
from rltriage.exporters.state import RunState

MAX_TRANSITIONS = 400


class Collector:
    """Keeps one run's curves, the transitions of its alerts (the newest 400), the newest state of each, its incidents.

    Rows arrive on one thread; others read under `reading()`.
    """

    def __init__(self, run: Run, buckets: int = BUCKETS) -> None:
        self.run = run
        self.curves = Curves(buckets)
        self.references: Sequence[Reference] = ()
        self.state: RunState = "running"
        self.rows = 0
        self.first_step: int | None = None
        self.last_step: int | None = None
        self.last_time: float | None = None
        self.transitions: deque[Alert] = deque(maxlen=MAX_TRANSITIONS)
        self.transitions_total = 0
        self.alerts: dict[str, Alert] = {}
        self.incident: Incident | None = None
        self.checks: dict[str, float] = {}
        self.version = 0
        self.coverage: tuple[object, Coverage] | None = None
        self._inferred: dict[str, Fact] = {}
        self._may_infer = True
        self._names: tuple[str, ...] = ()
        self._checked: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Take a row and what it changed."""
        with self._lock:
            if run is not self.run:
                self.run, self._may_infer = run, True
            self.version += 1
            if row is not None:
                self._take(row)
            for alert in report.alerts:
                if alert.state != "pending":
                    self._note(alert)
            if report.incident is not None:
                self.incident = report.incident

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """The run is over; its alerts have ended in a report of their own."""
        self.stand(state)

    def stand(self, state: RunState) -> None:
        """How the run stands from now on, whatever its alerts do."""
        with self._lock:
            self.state = state
            self.version += 1

    @property
    def facts(self) -> dict[str, Fact]:
        """The config facts known by now, those that the rows have proven included."""
        return {**self._inferred, **self.run.facts}

    @contextmanager
    def reading(self) -> Iterator[Collector]:
        """Hold the run still while it is read."""
        with self._lock:
            yield self

    def _take(self, row: Row) -> None:
        self.curves.add(row.step, row.metrics)
        self.rows += 1
        if self.first_step is None:
            self.first_step = row.step
        self.last_step = row.step
        self.last_time = row.time if row.time is not None else self.last_time
        self.state = "running"
        if self._may_infer:
            self._inferred |= inferred(row.metrics, self.facts)
            self._may_infer = not self.facts.keys() >= INFERABLE
        if self.curves.names is not self._names:
            self._names = self.curves.names
            self._checked = tuple(name for name in self._names if name.startswith("check_"))
        for name in self._checked:
            self.checks[name] = row.metrics[name]

    def _note(self, alert: Alert) -> None:
        self.transitions.append(alert)
        self.transitions_total += 1
        self.alerts.pop(alert.id, None)
        self.alerts[alert.id] = alert
        if len(self.alerts) > MAX_TRANSITIONS:
            closed = (key for key, one in self.alerts.items() if one.state not in OPEN)
            self.alerts.pop(next(closed, next(iter(self.alerts))))


class Collectors:
    """A collector for each run of a log or service, as one sink."""

    def __init__(self, buckets: int = BUCKETS) -> None:
        self._buckets = buckets
        self._runs: dict[str, Collector] = {}

    def of(self, run: Run) -> Collector:
        """The run's collector; a new one where the run is new."""
        found = self._runs.get(run.id)
        if found is None:
            found = self._runs[run.id] = Collector(run, self._buckets)
        return found

    def compare(self, run: Run, references: Sequence[Reference]) -> None:
        """Which references a run is compared with."""
        self.of(run).references = references

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Take a row and what it changed."""
        self.of(run).publish(run, row, report)

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """A run is over."""
        if run_id in self._runs:
            self._runs[run_id].end(run_id, state, now)
