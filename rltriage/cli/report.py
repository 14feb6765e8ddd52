"""`rltriage report`: what happened in a run, as one file that needs nothing else."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rltriage import __version__
from rltriage.cli import completing
from rltriage.cli.files import Output
from rltriage.cli.options import config_option, fail_on_option, profile_option, reference_option, rules_option
from rltriage.cli.outcome import Outcome
from rltriage.cli.runs import load_packs, open_runs, replayed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltriage.engine.reference import Reference
    from rltriage.exporters.report.model import RunReport

FORMATS = ("html", "md", "json")
_WRITTEN = {
    "html": ("report in HTML", r"\s*<!doctype html>.*: rltriage report</title>"),
    "md": ("report in Markdown", r"# [^\n]*\n\nRun [^\n]*\d rows?, "),
    "json": ("report in JSON", r'\{"type": ?"report"'),
}
_SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".jsonl": "json"}


@click.command("report")
@click.argument("sources", nargs=-1, required=True, metavar="RUN...", shell_complete=completing.logs)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Where to write it; - is stdout. Default: report.html, and stdout for md and json.",
)
@click.option("--format", "chosen", type=click.Choice(FORMATS), help="Default: by FILE's ending, else html.")
@rules_option
@config_option
@profile_option
@reference_option
@fail_on_option("never")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, wanted: _print_schema(context) if wanted else None,
    help="Print the JSON Schema of --format json and of every --json output, and exit.",
)
def command(
    sources: tuple[str, ...],
    output: str | None,
    chosen: str | None,
    packs: tuple[str, ...],
    config: dict[str, Any],
    profile: str,
    reference_files: tuple[str, ...],
    fail_on: str,
) -> None:
    """Write a report of RUN: a run's id, its directory, or any log that `replay` reads.

    It says in a sentence what is wrong, draws the path from symptoms by the first test to the fault and each symptom's
    course, and lists invariants, alerts, what is known of the configuration, and what is not logged. One file, no network.
    """
    from rltriage.engine.reference import read_reference

    chosen = chosen or _SUFFIXES.get(Path(output or "").suffix.lower(), "html")
    output = output or ("report.html" if chosen == "html" else "-")
    file = None if output == "-" else Output(output, *_WRITTEN[chosen], (*sources, *packs, *reference_files, profile))
    outcome = Outcome()
    references = [read_reference(file) for file in reference_files]
    reports = _reports(sources, packs, config, profile, references, outcome)
    text = _render(chosen, reports)
    if file is None:
        click.echo(text, nl=False)
    else:
        file.write(text)
        from rltriage.exporters.report.words import headline, name

        for report in reports:
            click.echo(f"{name(report.id)}: {headline(report)}")
        click.echo(f"report   {output} ({len(text.encode()) / 1024:.0f} KiB)")
    raise click.exceptions.Exit(outcome.exit_code(fail_on))


def _print_schema(context: click.Context) -> None:
    from rltriage.exporters.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=1))
    context.exit()


def _reports(
    sources: tuple[str, ...],
    packs: tuple[str, ...],
    config: dict[str, Any],
    profile: str,
    references: Sequence[Reference],
    outcome: Outcome,
) -> list[RunReport]:
    """Replay every source and collect what happened in each of its runs."""
    from rltriage.exporters.report.build import build
    from rltriage.exporters.report.collect import Collectors

    pack, runs = load_packs(packs), open_runs(sources)
    reports = []
    with _busy("reading the rows"):
        for source, run_id in runs:
            collectors = Collectors()
            sinks = (outcome, collectors)
            for run in replayed(source, run_id, pack, config, profile=profile, sinks=sinks, references=references):
                collector = collectors.of(run.watched.run)
                reports.append(build(collector, pack, unmapped=run.intake.unmapped, stats=source.stats))
    return reports


def _busy(words: str) -> AbstractContextManager[object]:
    """A spinner on stderr, where that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(words) if console.is_terminal else nullcontext()


def _render(chosen: str, reports: Sequence[RunReport]) -> str:
    if chosen == "html":
        from rltriage.exporters.report.html import report_html

        return report_html(reports, __version__)
    from rltriage.exporters.report.plain import reports_json, reports_markdown

    return reports_json(reports) if chosen == "json" else reports_markdown(reports)
