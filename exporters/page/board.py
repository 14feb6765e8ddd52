"""The sink behind the page: every run in bounded memory, and who wants to hear of changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rltriage.engine.reference import Reference
from rltriage.engine.report import Alert, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.report.build import build, line_of, outlook
from rltriage.exporters.report.collect import Collector
from rltriage.exporters.report.model import Line, Outlook, RunReport
from rltriage.exporters.state import RunState
from rltriage.rules.model import SEVERITIES, RulePack

BUCKETS = 80
"""Points of a curve on the page; a run with 60 metrics then takes under half a megabyte."""
MAX_RUNS = 1000
MAX_COMPARED = 20_000
"""Runs whose own references are remembered, those that were let go included: each costs its id."""
SPARKS = ("reward", "pass_rate", "eval_pass", "loss")
"""The first of these that a run logs is its picture in the list."""
Listener = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in the list: how it stands, and the course of what it is trained for with its newest value."""

    outlook: Outlook
    spark: Line | None
    value: float | None


class Board:
    """Every run that a service watches. Rows come from its threads; the page reads and listens from its own.

    Of more than `max_runs` runs those that have been over longest are let go, then those heard of longest ago.
    """

    def __init__(self, pack: RulePack | None = None, max_runs: int = MAX_RUNS) -> None:
        self.pack = pack or RulePack("", ())
        self._max_runs = max_runs
        self._runs: dict[str, Collector] = {}
        self._references: dict[str, Sequence[Reference]] = {}
        self._listeners: set[Listener] = set()
        self._lock = threading.Lock()

    def use(self, pack: RulePack) -> Board:
        """Take the rules that alerts are explained by."""
        self.pack = pack
        return self

    def compare(self, run: Run, references: Sequence[Reference]) -> None:
        """Which references a run is compared with: told once, so they outlast the room that a run has to make."""
        with self._lock:
            self._references.pop(run.id, None)
            if references:
                self._references[run.id] = references
            if len(self._references) > MAX_COMPARED:
                del self._references[next(iter(self._references))]
        self._of(run).references = references

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Take a row and what it changed."""
        self._of(run).publish(run, row, report)
        self._tell(run.id)

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """A run is over; it stays on the page."""
        with self._lock:
            collector = self._runs.get(run_id)
        if collector is not None:
            collector.end(run_id, state, now)
            self._tell(run_id)

    def stand(self, run_id: str, state: RunState) -> None:
        """A run says that it is over, and its alerts are still open."""
        with self._lock:
            collector = self._runs.get(run_id)
        if collector is not None:
            collector.stand(state)
            self._tell(run_id)

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Call `listener` with the id of each run that changes, on the thread that changed it; it must not wait."""
        with self._lock:
            self._listeners.add(listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.discard(listener)

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._runs

    def summaries(self) -> list[Summary]:
        """Every run: the worst first, then by name."""
        with self._lock:
            runs = list(self._runs.values())
        found = [_summary(run) for run in runs]
        return sorted(found, key=lambda one: (_rank(one.outlook.severity), one.outlook.id))

    def report(self, run_id: str) -> RunReport | None:
        """Everything about one run; None for one that is not known."""
        with self._lock:
            collector = self._runs.get(run_id)
        return build(collector, self.pack) if collector is not None else None

    def alert(self, run_id: str, alert_id: str) -> tuple[Alert, ...]:
        """The transitions of one alert in their order, its newest state last; empty if it is not known."""
        with self._lock:
            collector = self._runs.get(run_id)
        if collector is None:
            return ()
        with collector.reading() as run:
            found = [alert for alert in run.transitions if alert.id == alert_id]
            newest = run.alerts.get(alert_id)
        return tuple(found) if found or newest is None else (newest,)

    def _of(self, run: Run) -> Collector:
        with self._lock:
            collector, gone = self._runs.get(run.id), ""
            if collector is None:
                gone = self._make_room()
                collector = self._runs[run.id] = Collector(run, BUCKETS)
                collector.references = self._references.get(run.id, ())
        if gone:
            self._tell(gone)
        return collector

    def _make_room(self) -> str:
        """Let a run go where there are too many; its id, or the empty text."""
        if len(self._runs) < self._max_runs:
            return ""
        over = (name for name, run in self._runs.items() if run.state != "running")
        gone = next(over, next(iter(self._runs)))
        del self._runs[gone]
        return gone

    def _tell(self, run_id: str) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(run_id)


def _summary(collector: Collector) -> Summary:
    now = outlook(collector)
    with collector.reading() as run:
        name = next((name for name in SPARKS if name in run.curves), None)
        spark = line_of(run, name) if name is not None else None
    return Summary(now, spark, spark.buckets[-1].mean if spark is not None and spark.buckets else None)


def _rank(severity: str) -> int:
    return [*reversed(SEVERITIES), ""].index(severity)
