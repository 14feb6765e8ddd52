"""`rltriage bench`: how often the right fault is named, and how often healthy runs are alarmed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rltriage.cli.files import Output
from rltriage.cli.options import rules_option
from rltriage.cli.runs import load_packs

if TYPE_CHECKING:
    from rltriage.detection import Table
    from rltriage.recorded import Group, RecordedRun
    from rltriage.rules.model import RulePack

_TABLES = r'\{\s*"format": ?\d+,.*"with_invariants"'


@click.command("bench")
@click.option(
    "--runs", "folder", default="tests/data/runs", show_default=True, metavar="DIR", help="The recorded runs to judge."
)
@click.option("--live", is_flag=True, help="Train the runs now instead (needs torch; minutes to half an hour).")
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, help="With --live: seeds of each fault.")
@click.option("--healthy", type=click.IntRange(0), default=100, show_default=True, help="With --live: healthy seeds.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="With --live: the first seed.")
@click.option(
    "--fault", "faults", multiple=True, metavar="ID", help="Only this fault (may be given again), and healthy runs."
)
@click.option("--processes", type=click.IntRange(1), help="With --live: runs at a time. Default: the cores.")
@rules_option
@click.option("--json", "json_file", metavar="FILE", help="Write both tables and every run's verdict there.")
@click.option("--svg", "svg_file", metavar="FILE", help="Draw when each run was named, as SVG.")
def command(
    folder: str,
    live: bool,
    seeds: int,
    healthy: int,
    first_seed: int,
    faults: tuple[str, ...],
    processes: int | None,
    packs: tuple[str, ...],
    json_file: str | None,
    svg_file: str | None,
) -> None:
    """Judge the rules by runs of the reference trainer whose fault is known, with invariants and without.

    Replays the recorded runs of the repository, or trains new ones with --live. Exit 0 at the bars of the design, 1 below
    them, 2 bad usage.
    """
    from rltriage.detection import as_data, shortfalls
    from rltriage.detection_picture import draw
    from rltriage.exporters.jsonlines import dumps
    from rltriage.recorded import read_runs

    pack = load_packs(packs)
    _known(faults)
    tables = Output(json_file, "result of the bench", _TABLES, option="--json FILE") if json_file else None
    picture = Output(svg_file, "picture", "<svg ", option="--svg FILE") if svg_file else None
    wanted = (None, *faults)
    if live:
        runs = _train(_groups(seeds, healthy, first_seed, wanted), processes)
    else:
        runs = [run for run in read_runs(Path(folder)) if not faults or run.group.fault in wanted]
    on, off = _measure(runs, pack)
    _print(on)
    _print(off)
    if tables is not None:
        tables.write(dumps(as_data(on, off)) + "\n")
    if picture is not None:
        picture.write(draw(on, off))
    missed = shortfalls(on, off)
    for sentence in missed:
        click.echo(f"below the bar: {sentence}")
    raise click.exceptions.Exit(int(bool(missed)))


def _known(faults: Sequence[str]) -> None:
    """Raises a usage error for a fault that the bench does not have."""
    from rltriage.detection import NUMBERS
    from rltriage.rules.validate import meant

    for fault in faults:
        if fault not in NUMBERS:
            near = meant(fault, NUMBERS)
            hint = f"did you mean {near}?" if near else f"it has {', '.join(NUMBERS)}"
            raise click.UsageError(f"no run of the bench has the fault {fault!r}; {hint}")


def _groups(seeds: int, healthy: int, first_seed: int, wanted: Sequence[str | None]) -> list[Group]:
    """What is trained: the plan without the reference's runs; of the faults only those that are named, if any are."""
    from dataclasses import replace

    from rltriage.recorded import REFERENCE, plan

    return [
        replace(group, seeds=range(first_seed, first_seed + len(group.seeds)))
        for group in plan(seeds, healthy)
        if group.name != REFERENCE and len(group.seeds) and (len(wanted) == 1 or group.fault in wanted)
    ]


def _train(groups: Sequence[Group], processes: int | None) -> list[RecordedRun]:
    """The runs, made now."""
    from importlib.util import find_spec

    from rltriage.recorded import make_runs

    if find_spec("torch") is None:
        raise click.UsageError("--live trains, which needs torch: pip install 'rltriage[trainer]'")
    with _progress("training", sum(len(group.seeds) for group in groups)) as step:
        return make_runs(groups, processes, made=lambda run: step(run.name))


def _measure(runs: Sequence[RecordedRun], pack: RulePack) -> tuple[Table, Table]:
    from rltriage.detection import measure
    from rltriage.recorded import REFERENCE

    judged = [run for run in runs if run.group.name != REFERENCE]
    with _progress("judging", 2 * len(judged)) as step:
        on, off = (measure(judged, pack, checks=checks, told=lambda verdict: step(verdict.run)) for checks in (True, False))
    return on, off


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr, none where that is not a terminal; call the result with the name of what is done."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda name: progress.update(task, advance=1, description=f"{what} {name}")


def _print(table: Table) -> None:
    """One table on stdout, columns aligned."""
    from rltriage.detection import COLUMNS, cells

    rows = [COLUMNS, *(cells(entry, checks=table.checks) for entry in table.lines)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS))]
    click.echo("with invariants" if table.checks else "\nwithout invariants, as foreign logs are")
    for first, *rest in rows:
        numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        click.echo("  ".join((first.ljust(widths[0]), *numbers)))
