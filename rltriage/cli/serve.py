"""`rltriage serve`: what `watch` does, with the on-call page beside it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rltriage.cli import completing
from rltriage.cli.options import config_option, label_option, profile_option, rules_option, service_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rltriage.rules.config import Config
    from rltriage.rules.model import RulePack
    from rltriage.watching import Sink


@click.command("serve")
@click.argument("sources", nargs=-1, metavar="[SOURCE...]", shell_complete=completing.logs)
@service_options
@click.option("--page", default="127.0.0.1:8321", show_default=True, metavar="HOST:PORT", help="Where to serve the page.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Where to serve the gauges. Default: as configured, else 127.0.0.1:9464."
)
@profile_option
@rules_option
@config_option
@label_option
def command(
    sources: tuple[str, ...],
    config_file: Path | None,
    page: str,
    listen: str | None,
    insecure: bool,
    profile: str,
    packs: tuple[str, ...],
    config: dict[str, Any],
    labels: dict[str, str],
) -> None:
    """Follow SOURCE (default: the folder runs): alerts here, and every run on a page that keeps itself up to date.

    A run's address there is /runs/ID, an alert's /runs/ID/alerts/ALERT; /api/ has the same as JSON. TLS and users are those
    of the configuration's `web`. Stops at Ctrl-C or SIGTERM.
    """
    from rltriage.cli.watch import settings_of, sources_of

    if not sources and not config_file:
        sources = ("runs",)
    with tempfile.TemporaryDirectory(prefix="rltriage-") as state:
        named = sources_of(sources, profile, config, labels)
        _run(settings_of(config_file, Path(state), named, packs, listen), page, insecure)


def _run(settings: Config, page: str, insecure: bool) -> None:
    import logging

    from rltriage.exporters.page.board import Board
    from rltriage.exporters.page.server import serve_page
    from rltriage.service import Service, web_of

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")  # stderr
    for name in ("apscheduler", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING)
    board = Board()

    def sinks(pack: RulePack) -> Iterable[Sink]:
        from rltriage.cli.output import TextBlocks

        return (board.use(pack), TextBlocks(pack.catalogue))

    with serve_page(board, page, web=web_of(settings), insecure=insecure, external_url=settings.external_url) as server:
        click.echo(f"page     {server.url}")
        Service(settings, sinks=sinks, insecure=insecure).run()
