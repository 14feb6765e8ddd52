"""`rltriage reference`: what healthy runs look like, built from some of them, for rules that compare with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rltriage.cli import completing
from rltriage.cli.files import Output
from rltriage.cli.guesses import Group
from rltriage.cli.options import config_option, json_option, profile_option
from rltriage.cli.output import wrapped
from rltriage.cli.runs import open_runs, replayed

if TYPE_CHECKING:
    from rltriage.engine.reference import HealthyRun, Reference
    from rltriage.engine.report import StepReport
    from rltriage.engine.rows import Row, Run
    from rltriage.exporters.state import RunState


@click.group("reference", cls=Group)
def command() -> None:
    """Build and show healthy references, with which `band` rules compare."""


@command.command("build", short_help="Build a reference from ten healthy runs or more.")
@click.argument("runs", nargs=-1, required=True, metavar="RUNS...", shell_complete=completing.logs)
@click.option("-o", "--output", required=True, metavar="FILE", help="Where the reference is written (JSON).")
@click.option("--name", help="What the reference is called. Default: the file's stem.")
@profile_option
@config_option
def build_command(runs: tuple[str, ...], output: str, name: str | None, profile: str, config: dict[str, Any]) -> None:
    """Build a reference from RUNS: run directories or logs of at least ten seeds of one healthy configuration.

    Runs in which an alert at warning or above fires are named: a reference made of sick runs finds nothing.
    """
    from pathlib import Path

    from rltriage.engine.reference import as_text, build

    file = Output(output, "reference", r"\{\s*\"format\": \d+,\s*\"name\": ", runs)
    found, complaints = _read(runs, profile, config)
    for complaint in complaints:
        click.echo(complaint, err=True)
    reference = build(found, name or Path(output).stem)
    file.write(as_text(reference))
    click.echo(f"{output}: {_size(reference)}")


@command.command("show", short_help="Which runs a reference fits, and its metrics.")
@click.argument("file", metavar="FILE", shell_complete=completing.files)
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Only this metric, phase by phase.")
@json_option
def show_command(file: str, metrics: tuple[str, ...], as_json: bool) -> None:
    """Show what a reference holds: which runs fit it, and each metric at the start, in the middle and at the end.

    FILE is a reference, or the name of a shipped one.
    """
    from rltriage.engine.reference import SHIPPED, read_reference, to_json

    shipped = SHIPPED / f"{file}.json"
    reference = read_reference(shipped if shipped.is_file() else file)
    unknown = [metric for metric in metrics if metric not in reference.bands]
    if unknown:
        raise click.UsageError(f"{file} has no metric '{unknown[0]}'; it has {', '.join(reference.bands)}")
    if as_json:
        click.echo(json.dumps(to_json(reference)))
        return
    click.echo(f"{reference.name}: {_size(reference)}")
    facts = ", ".join(f"{name} {value}" for name, value in reference.facts.items())
    known = f"for runs with {facts}" if facts else "for any run: nothing is known of its runs' configuration"
    click.echo(wrapped(known, 0))
    click.echo(f"{'metric':<23}{'step':>7}" + "".join(f"{column:>{width}}" for column, width in _COLUMNS.items()))
    for line in _lines(reference, metrics):
        click.echo(line)


_COLUMNS = {"median": 9, "spread": 10, "seed spread": 12, "low": 10, "high": 9}


def _lines(reference: Reference, metrics: Sequence[str]) -> list[str]:
    """A line per metric and phase; three phases of every metric unless some are named."""
    last = len(reference.phases) - 1
    shown = range(last + 1) if metrics else sorted({0, last // 2, last})
    lines = []
    for metric in metrics or reference.bands:
        for index in shown:
            band = reference.bands[metric][index]
            if band is not None:
                first, end = reference.phases[index]
                steps = str(first) if first == end else f"{first}-{end}"
                numbers = (band.median, band.spread, band.seed_spread, band.low, band.high)
                cells = (f"{number:>{width}.3g}" for number, width in zip(numbers, _COLUMNS.values(), strict=True))
                lines.append(f"{metric:<23}{steps:>7}" + "".join(cells))
    return lines


def _size(reference: Reference) -> str:
    from rltriage.exporters.text import many

    steps = f"steps {reference.phases[0][0]} to {reference.phases[-1][1]} since the start"
    return f"{many(len(reference.runs), 'run')}, {many(len(reference.bands), 'metric')}, {steps}"


class _Loud:
    """A sink that remembers the rules that fired at warning or above, by run."""

    def __init__(self) -> None:
        self.rules: dict[str, list[str]] = {}

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Remember this report's firing alerts."""
        for alert in report.alerts:
            if alert.state == "firing" and alert.severity != "info":
                self.rules.setdefault(run.id, []).append(alert.rule)

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """Nothing to close."""


def _read(sources: Sequence[str], profile: str, config: dict[str, Any]) -> tuple[list[HealthyRun], list[str]]:
    """The runs of all sources with their facts, and a sentence about each run in which a rule fired."""
    from rltriage.engine.reference import HealthyRun
    from rltriage.rules.loader import load_rules
    from rltriage.watching import WatchedRun

    pack, loud = load_rules("triage"), _Loud()
    rows: dict[str, list[Row]] = {}

    def keep(watched: WatchedRun, row: Row) -> None:
        rows.setdefault(watched.run.id, []).append(row)

    found = []
    for source, run_id in open_runs(sources):
        for run in replayed(source, run_id, pack, config, profile=profile, sinks=(loud,), after_row=keep):
            name = run.intake.run.id
            if rows.get(name):
                found.append(HealthyRun(name, rows.pop(name), run.watched.monitor.facts))
    complaints = [
        f"{run}: {', '.join(dict.fromkeys(rules))} fired: is this run healthy?" for run, rules in loud.rules.items()
    ]
    return found, complaints
