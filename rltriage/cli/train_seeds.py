"""`rltriage train --seeds`: several seeds of the reference agent in parallel, and a line on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rltriage.cli.outcome import Outcome
from rltriage.cli.output import JsonLines, say
from rltriage.cli.train import run_name
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.jsonlines import dumps
from rltriage.training import Named, SeedRun, train_jobs, watch_job

if TYPE_CHECKING:
    from rltriage.engine.reference import Reference
    from rltriage.exporters.http import Server
    from rltriage.rules.model import RulePack
    from rltriage.trainer.parallel import Job


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
    processes: int | None,
    pack: RulePack,
    references: Sequence[Reference],
    directory: Path,
    name: str | None,
    listen: str | None,
    as_json: bool,
    labels: dict[str, str],
) -> list[Outcome]:
    """Train `job` with every seed, each watched and journalled as a run of its own; print and return how they went."""
    jobs = [replace(job, seed=seed) for seed in seeds]
    runs = [_Seed(one.seed, f"{name}-s{one.seed}" if name else run_name(one)) for one in jobs]
    gauges = Gauges(pack.catalogue.metrics, pack.rules)
    with _served(gauges, listen) as server:
        shown = [JsonLines(pack.catalogue)] if as_json else []
        watched = [
            SeedRun(
                one,
                watch_job(one, run.run_id, pack, directory, (gauges, run.named, run.outcome, *shown), references, labels),
            )
            for one, run in zip(jobs, runs, strict=True)
        ]
        if not as_json:
            what = f"with {job.fault} switched on" if job.fault else "healthy"
            say(f"training the reference agent, {what}: {len(seeds)} seeds, {job.steps} steps each")
            if server is not None:
                say(f"gauges   {server.url}/metrics, live until the runs end")
        _train(watched, processes, job.steps)
    for run in runs:
        if as_json:
            say(dumps(run.as_json()))
    if not as_json:
        say("\n".join(("", f"{'seed':>5}  {'fault named first':<28} {'from row':>8}  alerts", *(r.line() for r in runs))))
        say(f"\njournals {', '.join(str(directory / run.run_id) for run in runs[:2])}{' ...' if len(runs) > 2 else ''}")
    return [run.outcome for run in runs]


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
