"""Logs that exist, run by run, through the same monitor as live runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time as now
from typing import TYPE_CHECKING, Any

from rltriage.engine.feed import Feed
from rltriage.engine.intake import Intake
from rltriage.engine.rundir import ROWS, RUN, read_end
from rltriage.exporters.state import RunState
from rltriage.watching import Sink, WatchedRun

if TYPE_CHECKING:
    from rltriage.engine.reference import Reference
    from rltriage.engine.rows import Row
    from rltriage.engine.sources import Source
    from rltriage.rules.model import RulePack


@dataclass(slots=True)
class Replayed:
    """One run of a source: how its records became rows, who watched it, and the steps that it covered."""

    intake: Intake
    watched: WatchedRun
    source: Source
    first_step: int | None = None
    last_step: int | None = None

    def emit(self, row: Row) -> None:
        """Evaluate a row under the facts that are known by now."""
        self.watched.emit(row, self.intake.run)
        if self.first_step is None:
            self.first_step = row.step
        self.last_step = row.step

    def end(self, at: float) -> None:
        """Close the run, which has been read to its end `at` (unix seconds). One that goes on keeps its alerts open."""
        state, since = how_it_ended(self.watched, self.source, at)
        if state != "running":
            self.watched.end(state, since)

    def as_json(self) -> dict[str, Any]:
        """The `run` object of DESIGN section 9."""
        from rltriage.exporters.jsonlines import run_json

        monitor, intake = self.watched.monitor, self.intake
        return run_json(
            intake.run.id,
            rows=intake.rows_seen,
            bad_rows=self.source.stats.bad,
            segments=monitor.counters.segments,
            profile=intake.run.profile,
            first_step=self.first_step,
            last_step=self.last_step,
            rules_evaluated=monitor.rules_evaluated,
            rules_skipped=monitor.rules_skipped.items(),
            unmapped=intake.unmapped,
            facts=monitor.facts,
        )


def replay(
    source: Source,
    pack: RulePack,
    *,
    run_id: str,
    profile: str = "auto",
    config: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    sinks: Iterable[Sink] = (),
    after_row: Callable[[WatchedRun, Row], None] | None = None,
    references: Sequence[Reference] = (),
) -> Iterator[Replayed]:
    """Evaluate all of `source`, yielding each run once it is over. `config` are declared facts and `labels` the run's;
    both beat `run.json`.

    `references` are healthy references to compare with; without any, the shipped ones are used where they fit.
    Records that name their run are kept apart; the others belong to `run_id`. `after_row` sees each run after each row.
    A run ends as `how_it_ended` says.
    Raises SourceError where nothing is a row.
    """
    feed = Feed(source, run_id, profile, config, labels)
    sinks = tuple(sinks)
    runs: dict[str, Replayed] = {}
    for intake, row in feed.rows():
        replayed = runs.get(intake.run.id)
        if replayed is None:
            replayed = runs[intake.run.id] = Replayed(intake, WatchedRun(intake.run, pack, sinks, references), source)
        replayed.emit(row)
        if after_row is not None:
            after_row(replayed.watched, row)
    for replayed in runs.values():
        replayed.end(now())
        yield replayed


PLAUSIBLE = 1e9
"""Earlier times (before September 2001) count from the start of the run."""


def how_it_ended(watched: WatchedRun, source: Source, at: float) -> tuple[RunState, float]:
    """The state of a run that has been read to its end `at` (unix seconds), and since when.

    A run directory says so in `run.json`. One that does not is running, or stale: it was killed, or it hangs. Any other log
    is a finished one, for it says nothing of how its run ended.
    """
    newest = watched.monitor.newest
    if source.kind != "run directory" or not os.path.isfile(os.path.join(source.name, RUN)):
        return "finished", newest or 0.0
    if (told := read_end(source.name)) is not None:
        return told
    if newest is None or newest < PLAUSIBLE:
        newest = os.stat(os.path.join(source.name, ROWS)).st_mtime
    return ("stale", at) if watched.is_stale(at - newest) else ("running", at)
