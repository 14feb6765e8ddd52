"""`rltriage export`: finished runs for Prometheus' blocks, and dashboards for Grafana."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rltriage.cli import completing
from rltriage.cli.files import Output, make_folder
from rltriage.cli.options import config_option, profile_option, url_option
from rltriage.cli.rules import PACK_HELP
from rltriage.cli.runs import load_packs, open_runs, replayed


@click.command("export")
@click.argument("sources", nargs=-1, metavar="RUN...", shell_complete=completing.logs)
@click.option("--openmetrics", is_flag=True, help="Write OpenMetrics with timestamps to stdout (the default).")
@click.option("--metrics-only", is_flag=True, help="Without the alerts that the rules see in the run.")
@click.option("--rules", "packs", multiple=True, metavar="PACK", help=f"{PACK_HELP} Default: triage.")
@profile_option
@config_option
@click.option(
    "--grafana", type=click.Path(path_type=Path), help="Write Grafana's dashboards and provisioning into a folder."
)
@url_option("--page", "With --grafana: the address of the on-call page, for links.")
@click.option("--recorded", is_flag=True, help="With --grafana: read the recording rules, for very many runs.")
@url_option("--docs", "With --grafana: where the pages of docs/ lie, for links.")
def command(
    sources: tuple[str, ...],
    openmetrics: bool,
    metrics_only: bool,
    packs: tuple[str, ...],
    profile: str,
    config: dict[str, Any],
    grafana: Path | None,
    page: str,
    docs: str,
    recorded: bool,
) -> None:
    """Write finished runs for Prometheus' blocks (`promtool tsdb create-blocks-from openmetrics`), or Grafana's dashboards.

    Rows need wall times. Each sample is what a scrape right after its row would have read: metrics, alerts, healthy ranges.
    """
    if not sources and grafana is None:
        raise click.UsageError("nothing to export: name a RUN, or --grafana DIR")
    if grafana is None and (page or docs or recorded):
        raise click.UsageError("--page, --docs and --recorded are for dashboards: add --grafana DIR, or leave them out")
    if grafana is not None:
        _dashboards(grafana, page, docs, recorded, told_on_stderr=bool(sources))
    if sources:
        runs = _recorded(sources, packs or ("triage",), profile, config, metrics_only)
        for line in runs:
            click.echo(line, nl=False)


def _recorded(
    sources: tuple[str, ...], packs: tuple[str, ...], profile: str, config: Mapping[str, Any], metrics_only: bool
) -> Iterable[str]:
    from rltriage.exporters.backfill import Recording
    from rltriage.exporters.gauges import Gauges

    pack = load_packs(packs)
    if metrics_only:
        pack = replace(pack, rules=())
    recording = Recording()
    gauges = Gauges(pack.catalogue.metrics)
    for source, run_id in open_runs(sources):
        for _ in replayed(
            source,
            run_id,
            pack,
            config,
            profile=profile,
            sinks=(gauges,),
            after_row=lambda watched, row: recording.take(watched.run, row, gauges.samples_of(watched.run.id)),
        ):
            pass
    return recording.lines()


def _dashboards(folder: Path, page: str, docs: str, recorded: bool, told_on_stderr: bool) -> None:
    """Writes the files and names them; on stderr where stdout has the samples of a run."""
    from rltriage.exporters.grafana import files

    for name, text in files(page, docs, recorded).items():
        path = folder / name
        make_folder(path.parent, "--grafana DIR")
        Output(path, "file of ours", "", option="--grafana DIR").write(text)
        click.echo(str(path), err=told_on_stderr)
