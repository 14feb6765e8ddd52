"""Make the recorded runs of the reference trainer again: `make runs`, or `python benchmarks/runs.py [--out DIR]`.

About 180 runs of five to eight core seconds each. Finished runs are kept under `.cache/runs` as long as the trainer's
sources stay the same, so that an interrupted call goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rltriage.detection import judge_run
from rltriage.engine.reference import SHIPPED, write_reference
from rltriage.engine.rows import Row
from rltriage.engine.rundir import write_atomically
from rltriage.recorded import (
    SHIPPED_NAME,
    RecordedRun,
    healthy_reference,
    make_runs,
    plan,
    rounded,
    write_runs,
)
from rltriage.rules.errors import RltriageError
from rltriage.rules.loader import load_rules
from rltriage.trainer.chapter import sources_hash

ROOT = Path(__file__).parents[1]


class Cache:
    """Finished runs of one state of the sources, in full precision."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> list[Row] | None:
        """The rows of a run, None if it was not made."""
        file = self.folder / f"{name}.json"
        return [Row(step, metrics) for step, metrics in json.loads(file.read_text())] if file.exists() else None

    def put(self, run: RecordedRun) -> None:
        """Keep a run."""
        if not (self.folder / f"{run.name}.json").exists():
            write_atomically(self.folder / f"{run.name}.json", json.dumps([(row.step, row.metrics) for row in run.rows]))


def refuse_changed_alerts(runs: Iterable[RecordedRun]) -> None:
    """Raise if rounding for storage changes what is said about a run."""
    pack = load_rules("triage")
    for run in runs:
        stored = replace(run, rows=tuple(rounded(row) for row in run.rows))
        if any(judge_run(run, pack, checks=on) != judge_run(stored, pack, checks=on) for on in (True, False)):
            raise RltriageError(f"{run.name}: six digits change its alerts: store more of them")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make what is missing and write everything."""
    parser = argparse.ArgumentParser(description="Make the recorded runs of the reference trainer again.")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "data" / "runs")
    parser.add_argument("--processes", type=int, help="default: one per core")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "runs")
    options = parser.parse_args(arguments)
    sources, groups = sources_hash(), plan()
    cache = Cache(options.cache / sources)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("runs", total=sum(len(group.seeds) for group in groups))

        def made(run: RecordedRun) -> None:
            cache.put(run)
            progress.update(task, advance=1, description=run.name)

        runs = make_runs(groups, options.processes, known=cache.get, made=made)
    refuse_changed_alerts(runs)
    write_runs(options.out, runs, sources=sources, command="make runs")
    write_reference(SHIPPED / f"{SHIPPED_NAME}.json", healthy_reference(runs))
    print(f"wrote {len(runs)} runs to {options.out} and the shipped reference; now `make bench`")


if __name__ == "__main__":
    main()
