"""`rltriage notify`: does every receiver of a configuration hear us?"""

from __future__ import annotations

import time
from pathlib import Path

import click


@click.command("notify")
@click.option("--file", "config_file", type=click.Path(path_type=Path), required=True, help="The rltriage.yaml.")
def command(config_file: Path) -> None:
    """Send one made-up critical alert to every receiver, past the outbox. Exit 1 if one did not take it."""
    from rltriage.exporters.delivery.dispatcher import Dispatcher
    from rltriage.exporters.delivery.outbox import Outbox
    from rltriage.exporters.delivery.routes import routes
    from rltriage.rules.catalogue import load_catalogue
    from rltriage.rules.config import load_config

    config = load_config(config_file)
    dispatcher = Dispatcher(Outbox(config.state_dir), routes(config), catalogue=load_catalogue())
    outcomes = dispatcher.test(time.time())
    dispatcher.close()
    for name, outcome in outcomes.items():
        words = outcome.problem or "; ".join(outcome.refused.values()) or "took it"
        click.echo(f"{name}: {words}")
    if not outcomes:
        raise click.UsageError(f"{config_file} has no receivers")
    raise click.exceptions.Exit(0 if all(outcome.accepted for outcome in outcomes.values()) else 1)
