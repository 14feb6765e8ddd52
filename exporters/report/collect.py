"""The sink behind report and page: what has happened in one run, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rltriage.engine.report import Alert, Incident, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.report.curves import BUCKETS, Curves
from rltriage.exporters.state import RunState

MAX_TRANSITIONS = 400
OPEN = ("firing", "flapping", "stale")


class Collector:
    """Keeps one run's curves, the transitions of its alerts (all newest 400), the newest state of each, its incidents.

    Rows arrive on one thread; others read under `reading()`.
    """

    def __init__(self, run: Run, buckets: int = BUCKETS) -> None:
        self.run = run
        self.curves = Curves(buckets)
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
        self._lock = threading.Lock()

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Take a row and what it changed."""
        with self._lock:
            self.run = run
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
        with self._lock:
            self.state = state
            self.version += 1

    @contextmanager
    def reading(self) -> Iterator[Collector]:
        """Hold the run still while it is read."""
        with self._lock:
            yield self

    def explained(self, alerts: Iterator[Alert]) -> None:
        """Open alerts as the monitor has them now: what explains them may have changed without a transition."""
        with self._lock:
            for alert in alerts:
                if alert.id in self.alerts:
                    self.alerts[alert.id] = alert

    def _take(self, row: Row) -> None:
        self.curves.add(row.step, row.metrics)
        self.rows += 1
        if self.first_step is None:
            self.first_step = row.step
        self.last_step = row.step
        self.last_time = row.time if row.time is not None else self.last_time
        self.state = "running"
        for name, value in row.metrics.items():
            if name.startswith("check_"):
                self.checks[name] = value

    def _note(self, alert: Alert) -> None:
        self.transitions.append(alert)
        self.transitions_total += 1
        self.alerts.pop(alert.id, None)
        self.alerts[alert.id] = alert
        if len(self.alerts) > MAX_TRANSITIONS:
            closed = (key for key, one in self.alerts.items() if one.state not in OPEN)
            self.alerts.pop(next(closed, next(iter(self.alerts))))
