"""`rltriage export`: a finished run for Prometheus blocks."""

from __future__ import annotations

import click

from rltriage.cli.options import config_option, parse_config


@click.command("export")
@click.argument("sources", nargs=-1, required=True, metavar="RUN...")
@click.option("--openmetrics", is_flag=True, help="Write OpenMetrics with timestamps (the default and only format so far).")
@click.option(
    "--profile", default="auto", show_default=True, help="The framework that wrote the log; auto goes by its keys."
)
@config_option
def command(sources: tuple[str, ...], openmetrics: bool, profile: str, config: tuple[str, ...]) -> None:
    """Write finished runs to stdout for `promtool tsdb create-blocks-from openmetrics`. Rows need wall times."""
    from rltriage.cli.replay import find_run
    from rltriage.engine.feed import Feed, run_ids
    from rltriage.engine.rows import Row, Run
    from rltriage.engine.sources import open_source
    from rltriage.exporters.backfill import backfill
    from rltriage.rules.catalogue import load_catalogue

    paths = [find_run(source) for source in sources]
    runs: dict[str, tuple[Run, list[Row]]] = {}
    for path, run_id in zip(paths, run_ids(paths), strict=True):
        for intake, row in Feed(open_source(path), run_id, profile, parse_config(config)).rows():
            runs.setdefault(intake.run.id, (intake.run, []))[1].append(row)
    for line in backfill(runs.values(), load_catalogue().metrics):
        click.echo(line, nl=False)
