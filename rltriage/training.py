"""The reference trainer under rltriage's eyes: how a run of it is watched, and several seeds of it at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rltriage import __version__
from rltriage.engine.report import StepReport, Suspect
from rltriage.engine.rows import Fact, Row, Run
from rltriage.engine.rundir import RunDirectory, safe_name
from rltriage.exporters.state import RunState
from rltriage.journal import Journal
from rltriage.trainer.config import config_facts
from rltriage.trainer.faults import faulty_config
from rltriage.trainer.parallel import Job, run_jobs
from rltriage.watching import Sink, WatchedRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltriage.engine.reference import Reference
    from rltriage.rules.model import RulePack


@dataclass(frozen=True, slots=True)
class Watching:
    """How runs are watched: by which rules and healthy references, journalled where, under which labels."""

    pack: RulePack
    directory: Path
    references: Sequence[Reference] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def watch_job(job: Job, run_id: str, how: Watching, sinks: Sequence[Sink]) -> WatchedRun:
    """A monitor for the run of `job`, with its journal before the other sinks.

    Raises RltriageError when the run's directory cannot be made or holds another run.
    """
    facts = config_facts(faulty_config(job.config, job.fault), steps=job.steps)
    run = Run(run_id, how.labels, {key: Fact(value, "declared", "trainer") for key, value in facts.items()})
    files = RunDirectory(
        how.directory / safe_name(run_id),
        run_id,
        config=facts,
        labels=how.labels,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )
    return WatchedRun(run, how.pack, (Journal(files, how.pack.catalogue), *sinks), how.references)


class Named:
    """A sink that keeps the first suspect of the last incident, and the row from which on it was the first one.

    Rows count from 0. Both are None as long as there is no incident.
    """

    def __init__(self) -> None:
        self.suspect: Suspect | None = None
        self.row: int | None = None
        self._rows = 0

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Follow the incident."""
        if report.incident is not None:
            first = next(iter(report.incident.suspects), None)
            if (first and first.fault) != (self.suspect and self.suspect.fault):
                self.row = self._rows if first else None
            self.suspect = first
        self._rows += row is not None

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """Nothing to close."""


@dataclass(frozen=True, slots=True)
class SeedRun:
    """One of several runs that differ by their seed, and who watches it."""

    job: Job
    watched: WatchedRun


def train_jobs(runs: Sequence[SeedRun], processes: int | None, on_row: Callable[[], None]) -> None:
    """Train all runs, each in a process of its own and at most `processes` at a time; rows are judged here as they come.

    Every run is ended for its sinks: as finished, or as crashed where the error of any run or the user stops all.
    """
    with _ended(runs):
        for index, row in run_jobs([run.job for run in runs], processes):
            if row is None:
                runs[index].watched.end("finished", time.time())
            else:
                runs[index].watched.emit(row)
                on_row()


@contextmanager
def _ended(runs: Sequence[SeedRun]) -> Iterator[None]:
    """Whoever has not finished by the end has crashed; ending twice does nothing."""
    try:
        yield
    finally:
        for run in runs:
            run.watched.end("crashed", time.time())
