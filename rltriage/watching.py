"""One watched run: a monitor and where its reports go. Every command and `rltriage.watch` compose a run here alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

from rltriage.engine.monitor import Monitor
from rltriage.engine.reference import Fitted, Reference
from rltriage.engine.report import EMPTY, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.engine.triage import Triage
from rltriage.exporters.state import BANDED, Health, RunState
from rltriage.journal import Journal
from rltriage.rules.facts import Tell, by_option
from rltriage.rules.model import RulePack
from rltriage.saying import Once, warn

STALE_AFTER = 3600.0
"""Seconds without a row after which a run is stale, at the least: the rule about overdue rows speaks after ten minutes, and
receivers that collect before they tell have a quarter of an hour (`following.ALERTS_OUTLIVE`)."""
STALE_INTERVALS = 20.0
"""The same in the run's own intervals, twice what that rule waits: a run of hours a step is not stale between two."""
STALE_UNPACED = 86400.0
"""The same of a run of which nobody knows how fast it goes: it has one row, or rows without times."""


class Sink(Protocol):
    """Where rows and reports go: gauges, the run's directory, a terminal, receivers of alerts."""

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """A row and what it changed; `row` is None for a report that no row caused (the run ended, a row is overdue)."""
        ...

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """The run is over: `finished`, `crashed` or `stale`, at `now` (unix seconds)."""
        ...


@runtime_checkable
class Meter(Protocol):
    """A sink that also shows what watching costs, and what of it failed."""

    def measured(self, run: Run, health: Health) -> None:
        """How the engine fares with a run, before its row is published."""
        ...


@runtime_checkable
class Ruled(Protocol):
    """A sink that speaks of rules, faults and tests, and is told when they are others."""

    def use(self, pack: RulePack) -> object:
        """From now on these hold."""


@runtime_checkable
class Compared(Protocol):
    """A sink that draws healthy ranges: a page, a report."""

    def compare(self, run: Run, references: Sequence[Reference]) -> None:
        """The references that a run is compared with where they fit, before its first row; none are the shipped ones."""


@runtime_checkable
class Standing(Protocol):
    """A sink that shows how a run stands beside its alerts, which may stay open for a while after it is over: a page."""

    def stand(self, run_id: str, state: RunState) -> None:
        """The run is over by its own account."""
        ...


def use_rules(sinks: Iterable[Sink], pack: RulePack) -> None:
    """Tell those sinks that speak of rules of others; before the runs take them, whose alerts then close or fire."""
    for sink in sinks:
        if isinstance(sink, Ruled):
            sink.use(pack)


class WatchedRun:
    """Evaluates one run's rows and hands each report to every sink, in their order.

    A sink that fails is skipped for that row, counted, and said once for each sink: watching goes on. `references` are the
    healthy references that may fit; without any, the shipped ones. `tell` says in questions how somebody answers them.
    """

    def __init__(
        self,
        run: Run,
        pack: RulePack,
        sinks: Iterable[Sink] = (),
        references: Sequence[Reference] = (),
        tell: Tell = by_option,
    ) -> None:
        self.run = run
        self._fitted = Fitted(references)
        triage = Triage(pack.catalogue, pack, compared=self._fitted)
        self.monitor = Monitor(run, pack, pack.catalogue, triage=triage, reference=self._fitted, tell=tell)
        self.sinks = tuple(sinks)
        self._failures = 0
        self._said = Once()
        self._journals = [sink for sink in self.sinks if isinstance(sink, Journal)]
        self._meters = [sink for sink in self.sinks if isinstance(sink, Meter)]
        self._seconds = 0.0
        self._phase: tuple[int, int] | None = None
        self._healthy: Mapping[str, tuple[float, float]] = {}
        self._ended: RunState | None = None
        self._standing: RunState | None = None
        for sink in self.sinks:
            if isinstance(sink, Compared):
                self._call(sink.compare, run, references)

    @property
    def failures(self) -> int:
        """How often a sink failed, and how many rows and alerts are in no file."""
        return self._failures + (self._lost() or 0)

    def emit(self, row: Row, run: Run | None = None) -> StepReport:
        """Evaluate a row and publish the report. `run` replaces the run where its facts have grown since the last row."""
        if run is not None and run is not self.run:
            self.run = run
            self.monitor.learn(run.facts)
        self._ended = self._standing = None
        started = perf_counter()
        report = self.monitor.observe(row)
        self._seconds += perf_counter() - started
        if self._meters:
            self._measure()
        self._publish(row, report)
        return report

    def recall(self, row: Row, sinks: Iterable[Sink]) -> None:
        """Evaluate a row of before a restart; only `sinks` (gauges) hear of it, people have heard."""
        report = self.monitor.observe(row)
        for sink in sinks:
            self._call(sink.publish, self.run, row, report)

    def tick(self, now: float) -> StepReport:
        """Let the clock speak: at `now` (unix seconds) a row may be overdue."""
        report = self.monitor.tick(now)
        if report.alerts or report.incident:
            self._publish(None, report)
        return report

    def reload(self, pack: RulePack) -> StepReport:
        """Take other rules and publish what closes by it: alerts of rules that are gone or changed."""
        report = self.monitor.reload(pack)
        self._phase = None
        if report.alerts or report.incident:
            self._publish(None, report)
        return report

    def is_stale(self, silent: float) -> bool:
        """Whether a run that does not say that it is over has, `silent` seconds after its newest row, stopped."""
        pace = self.monitor.pace
        return silent > (STALE_UNPACED if pace is None else max(STALE_AFTER, STALE_INTERVALS * pace))

    def end(self, state: RunState, now: float) -> StepReport:
        """Close the run: open alerts end, or are stale with it, and sinks are told. A later row opens it again.

        Ending twice does nothing, except that a stale run may still finish or crash.
        """
        if self._ended not in (None, "stale") or self._ended == state:
            return EMPTY
        report = self.monitor.close("stale" if state == "stale" else "ended")
        self._publish(None, report)
        for sink in self.sinks:
            self._call(sink.end, self.run.id, state, now)
        self._ended = state  # not before: an end that Ctrl-C interrupts is to be done again
        return report

    def say_over(self, state: RunState) -> None:
        """Show that the run is over while its alerts stay open; `end` comes later. Said once, until a row comes."""
        if self._ended is not None or self._standing == state:
            return
        for sink in self.sinks:
            if isinstance(sink, Standing):
                self._call(sink.stand, self.run.id, state)
        self._standing = state

    def leave(self) -> StepReport:
        """Nobody looks at the run any more: what is still open ends, and how the run stands is not said anew."""
        report = self.monitor.close()
        self._publish(None, report)
        return report

    def _measure(self) -> None:
        monitor = self.monitor
        phase = self._fitted.phase(monitor.age)
        if phase is None or phase != self._phase:  # ranges change with the phase alone
            self._phase, self._healthy = phase, monitor.healthy(BANDED)
        health = Health(self._seconds, len(monitor.failed_rules), monitor.row_interval, self._healthy, self._lost())
        for meter in self._meters:
            self._call(meter.measured, self.run, health)

    def _lost(self) -> int | None:
        return sum(journal.lost for journal in self._journals) if self._journals else None

    def _publish(self, row: Row | None, report: StepReport) -> None:
        for sink in self.sinks:
            self._call(sink.publish, self.run, row, report)

    def _call(self, method: Callable[..., None], *arguments: Any) -> None:
        try:
            method(*arguments)
        except Exception:
            self._failures += 1
            sink = type(getattr(method, "__self__", method)).__name__
            if self._said.first(sink):
                warn("run=%s: the sink %s failed (said once)", self.run.id, sink, exc_info=True)
