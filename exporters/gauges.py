"""Rows and alert state as Prometheus gauges: cheap to hand over, atomic to read.

A training loop calls `publish` once per row, which swaps one snapshot; formatting happens in the scrape, once per changed
run. A row's metrics become visible together with the alerts that it caused. A metric absent from the newest row is absent
here too, except `eval_*` and `check_*`, which are measured now and then and keep their last value.
Source: DESIGN section 8.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from rltriage.engine.report import StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters import exposition
from rltriage.exporters.naming import Family, Names, Series
from rltriage.exporters.samples import FIRST, LAST, Columns, Entry, Lines, Sample
from rltriage.exporters.state import Alerts, Health, Snapshot
from rltriage.rules.model import MetricInfo, Rule, RulePack

RUNS = Family("rltriage_exporter_runs", "gauge", "Runs that the exporter holds")
FAILURES = Family("rltriage_exporter_failures", "counter", "Rows or values that the exporter could not handle")
DROPPED = Family("rltriage_exporter_dropped", "counter", "What was refused to stay bounded, by reason")
BUILD = Family("rltriage_build", "info", "Version of rltriage")

QUIET_RUNS = 20
"""Runs that show rules which have never fired: for 1,000 runs of the shipped pack they would be 28 MB a scrape."""


class Gauges:
    """Holds the newest row and the alert state of every run and renders them for Prometheus.

    `metrics` is the catalogue's. Rules given in `rules` are shown at 0 before they first fire, for the first QUIET_RUNS
    runs. Series of an ended run stay for `linger` seconds. At most `max_runs` runs and `max_extra` unmapped names are held;
    what is refused is counted. `publish`, `measured` and `end` never raise. `clock` gives the arrival time of rows that
    carry none, and the age of ended runs. `more` gives samples of whoever embeds the gauges; it is asked at every scrape.
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
        more: Callable[[], list[Sample]] = list,
    ) -> None:
        self._names = Names(metrics, max_extra)
        self._quiet = Snapshot(Alerts.quiet(rules))
        self._shows_quiet = bool(self._quiet.alerts.firing)
        self._linger = linger
        self._max_runs = max_runs
        self._clock = clock
        self._more = more
        self._entries: dict[str, Entry] = {}
        self._admission = threading.Lock()
        self._rendering = threading.Lock()
        # A number that no two changes share: a plain += of two threads could bring back one that the cache was made for.
        self._changes = itertools.count(1)
        self._change = 0
        self._cache: dict[tuple[bool, bool], bytes] = {}
        self._cached_change = -1
        self._cached_more: list[Sample] = []
        self._failures = 0
        self._runs_refused = 0

    def use(self, pack: RulePack) -> None:
        """Show other rules at 0, of runs that begin from now on; those that run show a rule once it fires."""
        if self._shows_quiet:
            self._quiet = Snapshot(Alerts.quiet(pack.rules))

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Take a row and what it changed; `row` is None for a report of the clock alone (overdue, ended).

        Costs a few microseconds and never raises.
        """
        try:
            entry = self._entries.get(run.id) or self._admit(run)
            if entry is None:
                return
            if run is not entry.run and run != entry.run:  # Other labels or facts: its series are named anew.
                self._entries[run.id] = entry = Entry(run, entry.snapshot, entry.health)
            entry.snapshot = entry.snapshot.after(row, report, self._clock())
            self._change = next(self._changes)
        except Exception:
            self._failures += 1

    def measured(self, run: Run, health: Health) -> None:
        """Take how the engine fares with a run; shown from its next row on. Never raises."""
        try:
            entry = self._entries.get(run.id) or self._admit(run)
            if entry is not None:
                entry.health = health
        except Exception:
            self._failures += 1

    def end(self, run_id: str, state: str, now: float) -> None:
        """Mark a run as `finished`, `crashed` or `stale` at `now` (unix seconds); a later row makes it running again.

        Alerts of a stale run keep their value: nothing has recovered. Otherwise they go to 0.
        """
        try:
            entry = self._entries.get(run_id)
            if entry is not None:
                entry.snapshot = entry.snapshot.after_end(state, now)
                self._change = next(self._changes)
        except Exception:
            self._failures += 1

    def render(self, openmetrics: bool = False, gzipped: bool = False) -> bytes:
        """The exposition: text 0.0.4 or OpenMetrics 1.0.0, plain or gzip level 1; cached until something changes."""
        with self._rendering:
            self._forget_ended()
            change, more = self._change, self._given()
            if change != self._cached_change or more != self._cached_more:
                self._cache.clear()
                self._cached_change, self._cached_more = change, more
            body = self._cache.get((openmetrics, False))
            if body is None:
                body = self._cache[openmetrics, False] = exposition.document(self._blocks(more), openmetrics)
            if not gzipped:
                return body
            if (openmetrics, True) not in self._cache:
                self._cache[openmetrics, True] = gzip.compress(body, 1, mtime=0)
            return self._cache[openmetrics, True]

    def samples_of(self, run_id: str) -> list[Sample]:
        """The samples of one run."""
        with self._rendering:
            entry = self._entries.get(run_id)
            return [] if entry is None else list(zip(*entry.columns(entry.snapshot, self._names), strict=True))

    def samples(self) -> Iterator[tuple[Series, float]]:
        """Every sample, for a collector: the same that `render` writes, in no particular order."""
        with self._rendering:
            self._forget_ended()
            found = [entry.columns(entry.snapshot, self._names) for entry in list(self._entries.values())]
            found.append(self._own(self._given()))
        for columns in found:
            yield from zip(*columns, strict=True)

    def _admit(self, run: Run) -> Entry | None:
        with self._admission:
            if len(self._entries) >= self._max_runs:
                ended = [entry for entry in self._entries.values() if entry.snapshot.ended is not None]
                if not ended:
                    self._runs_refused += 1
                    return None
                oldest = min(ended, key=lambda entry: entry.snapshot.ended or 0.0)
                del self._entries[oldest.run.id]
            start = self._quiet if len(self._entries) < QUIET_RUNS else Snapshot(Alerts())
            return self._entries.setdefault(run.id, Entry(run, start))

    def _forget_ended(self) -> None:
        limit = self._clock() - self._linger
        for entry in list(self._entries.values()):
            ended = entry.snapshot.ended
            if ended is not None and ended < limit:
                self._entries.pop(entry.run.id, None)
                self._change = next(self._changes)

    def _blocks(self, more: list[Sample]) -> dict[Family, list[str]]:
        # Runs whose lines are of the same families are turned into columns at once: most runs log the same metrics.
        alike: defaultdict[tuple[Family, ...], list[list[str]]] = defaultdict(list)
        for entry in list(self._entries.values()):
            families, lines = self._formatted(entry)
            alike[families].append(lines)
        families, lines = exposition.lines(self._own(more))
        alike[families].append(lines)
        found: defaultdict[Family, list[str]] = defaultdict(list)
        for families, rows in alike.items():
            for family, column in zip(families, zip(*rows, strict=True), strict=True):
                found[family] += column
        first = {family: found.pop(family) for family in FIRST if family in found}
        last = {family: found.pop(family) for family in LAST if family in found}
        return {**first, **found, **last}

    def _formatted(self, entry: Entry) -> Lines:
        snapshot = entry.snapshot
        if entry.rendered is not None and entry.rendered[0] is snapshot:
            return entry.rendered[1]
        try:
            text = exposition.lines(entry.columns(snapshot, self._names))
        except Exception:
            self._failures += 1
            text = (), []
        entry.rendered = (snapshot, text)
        return text

    def _given(self) -> list[Sample]:
        try:
            return list(self._more())
        except Exception:
            self._failures += 1
            return []

    def _own(self, more: list[Sample]) -> Columns:
        names = self._names
        own = {
            Series(RUNS, ()): len(self._entries),
            Series(FAILURES, ()): self._failures + names.not_numbers,
            Series(DROPPED, (("reason", "collision"),)): len(names.collisions),
            Series(DROPPED, (("reason", "extra"),)): names.over_limit,
            Series(DROPPED, (("reason", "run"),)): self._runs_refused,
            Series(BUILD, (("version", _version()),)): 1,
        }
        samples = [*own.items(), *more]
        return Columns([series for series, _ in samples], [float(value) for _, value in samples])


@functools.cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rltriage")
    except PackageNotFoundError:
        return "unknown"
