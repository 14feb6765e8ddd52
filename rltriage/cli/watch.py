"""`rltriage watch`: follow logs or endpoints live: alerts here, gauges for Prometheus, receivers where configured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rltriage.cli import completing
from rltriage.cli.options import (
    config_option,
    json_option,
    label_option,
    profile_option,
    reference_option,
    rules_option,
    service_options,
)
from rltriage.cli.runs import find_run

if TYPE_CHECKING:
    from typing import Any

    from rltriage.rules.config import Config, SourceConfig
    from rltriage.rules.model import RulePack
    from rltriage.watching import Sink


@click.command("watch")
@click.argument("sources", nargs=-1, metavar="[SOURCE...]", shell_complete=completing.logs)
@service_options
@click.option("--listen", metavar="HOST:PORT", help="Where to serve the gauges. Default: a free port on 127.0.0.1.")
@profile_option
@rules_option
@config_option
@label_option
@reference_option
@json_option
def command(
    sources: tuple[str, ...],
    config_file: Path | None,
    listen: str | None,
    insecure: bool,
    profile: str,
    packs: tuple[str, ...],
    config: dict[str, Any],
    labels: dict[str, str],
    reference_files: tuple[str, ...],
    as_json: bool,
) -> None:
    """Follow SOURCE: files, folders or globs of logs, http(s) endpoints with metrics. Stops at Ctrl-C or SIGTERM.

    A changed rule file is picked up by itself; with mistakes in it the old rules stay and the endpoint says so.
    """
    if not sources and not config_file:
        raise click.UsageError("name what to watch: SOURCE..., or --file rltriage.yaml")
    with tempfile.TemporaryDirectory(prefix="rltriage-") as state:
        named = sources_of(sources, profile, config, labels, reference_files)
        listen = listen or ("" if config_file else "127.0.0.1:0")
        _run(settings_of(config_file, Path(state), named, packs, listen), insecure, as_json)


def settings_of(
    config_file: Path | None, state: Path, sources: Iterable[SourceConfig], packs: tuple[str, ...], listen: str | None
) -> Config:
    """A configuration file's contents with what the command line names besides; without one the state does not last."""
    from rltriage.rules.config import Config, load_config

    settings = load_config(config_file) if config_file else Config(state_dir=state)
    return replace(
        settings,
        sources=(*settings.sources, *sources),
        packs=packs or settings.packs,
        listen=listen or settings.listen,
    )


def sources_of(
    names: tuple[str, ...], profile: str, config: dict[str, Any], labels: dict[str, str], references: tuple[str, ...] = ()
) -> list[SourceConfig]:
    """What the command line names: addresses with metrics, and paths."""
    from rltriage.rules.config import SourceConfig

    for name in names:
        if name.endswith((".yaml", ".yml")) and Path(name).is_file():
            raise click.UsageError(f"{name} is no log: a configuration is named with --file, a pack with --rules")
    meant: dict[str, Any] = {"profile": profile, "config": config, "labels": labels, "references": references}
    return [
        SourceConfig("metrics", name, **meant)
        if name.startswith(("http://", "https://"))
        else SourceConfig("path", str(Path(find_run(name)).absolute()), **meant)
        for name in names
    ]


def _run(settings: Config, insecure: bool, as_json: bool) -> None:
    import logging

    from rltriage.service import Service

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")  # stderr
    logging.getLogger("apscheduler").setLevel(logging.WARNING)

    def sinks(pack: RulePack) -> Iterable[Sink]:
        from rltriage.cli.output import JsonLines, TextBlocks

        return (JsonLines(pack.catalogue) if as_json else TextBlocks(pack.catalogue),)

    Service(settings, sinks=sinks, insecure=insecure).run()
