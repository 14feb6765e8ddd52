"""`rltriage train --seeds`: several seeds of the reference agent in parallel, and a line on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rltriage.cli.outcome import Outcome
from rltriage.cli.output import JsonLines
from rltriage.cli.train import run_name
from rltriage.engine.rundir import safe_name
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.jsonlines import dumps
from rltriage.exporters.text import many
from rltriage.training import Named, SeedRun, train_jobs, watch_job

if TYPE_CHECKING:
    from rltriage.exporters.http import Server
    from rltriage.trainer.parallel import Job
    from rltriage.training import Watching


class _Seed:
    """What is counted of one seed's run."""

    def __init__(self, seed: int, run_id: str) -> None:
        self.seed, self.run_id = seed, run_id
        self.named, self.outcome = Named(), Outcome()

    def line(self) -> str:
        """The row of the table."""
        suspect = self.named.suspect
        fault = f"{suspect.fault}{f' ({suspect.number})' if suspect.number else ''}" if suspect else "-"
        row = "-" if self.named.row is None else str(self.named.row)
        return f"{self.seed:>5}  {fault:<28} {row:>8}  {self.outcome}"

    def as_json(self) -> dict[str, Any]:
        """The same as an object of the public format."""
        suspect = self.named.suspect
        return {
            "format": 1,
            "type": "seed",
            "run": self.run_id,
            "seed": self.seed,
            "fault": suspect.fault if suspect else None,
            "row": self.named.row,
            "alerts": dict(self.outcome.fired),
        }


def train_seeds(
    job: Job,
    seeds: Sequence[int],
    how: Watching,
    processes: int | None,
    name: str | None,
    listen: str | None,
    as_json: bool,
) -> list[Outcome]:
    """Train `job` with every seed, each watched and journalled as a run of its own; print and return how they went."""
    jobs = [replace(job, seed=seed) for seed in seeds]
    runs = [_Seed(one.seed, f"{name}-s{one.seed}" if name else run_name(one)) for one in jobs]
    gauges = Gauges(how.pack.catalogue.metrics, how.pack.rules)
    shown = [JsonLines(how.pack.catalogue)] if as_json else []
    with _served(gauges, listen) as server:
        if not as_json:
            _introduce(job, len(seeds), server)
        watched = [
            SeedRun(one, watch_job(one, run.run_id, how, (gauges, run.named, run.outcome, *shown)))
            for one, run in zip(jobs, runs, strict=True)
        ]
        _train(watched, processes, job.steps)
    if as_json:
        click.echo("\n".join(dumps(run.as_json()) for run in runs))
    else:
        _conclude(runs, how.directory)
    return [run.outcome for run in runs]


def _introduce(job: Job, seeds: int, server: Server | None) -> None:
    what = f"with {job.fault} switched on" if job.fault else "healthy"
    click.echo(f"training the reference agent, {what}: {many(seeds, 'seed')}, steps each: {job.steps}")
    if server is not None:
        click.echo(f"gauges   {server.url}/metrics, live until the runs end")


def _conclude(runs: Sequence[_Seed], directory: Path) -> None:
    click.echo(f"\n{'seed':>5}  {'fault named first':<28} {'from row':>8}  alerts")
    for run in runs:
        click.echo(run.line())
    more = f" and {len(runs) - 1} more there" if len(runs) > 1 else ""
    click.echo(f"\njournal  {directory / safe_name(runs[0].run_id)}{more} (again: rltriage replay DIRECTORY)")


@contextmanager
def _served(gauges: Gauges, listen: str | None) -> Iterator[Server | None]:
    """The gauges of all runs at one address, if asked for."""
    from rltriage.exporters.http import serve_metrics

    server = serve_metrics(gauges, listen) if listen else None
    try:
        yield server
    finally:
        if server is not None:
            server.close()


def _train(runs: Sequence[SeedRun], processes: int | None, steps: int) -> None:
    """Train under one progress bar over all rows, where the error stream is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("rows", total=len(runs) * steps)
        train_jobs(runs, processes, lambda: progress.advance(task))
