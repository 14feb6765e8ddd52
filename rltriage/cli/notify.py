"""`rltriage notify`: does every receiver of a configuration hear us?"""

from __future__ import annotations

import time
from pathlib import Path

import click


@click.command("notify")
@click.option("--file", "config_file", type=click.Path(path_type=Path), required=True, help="The rltriage.yaml.")
def command(config_file: Path) -> None:
    """Send one made-up critical alert to every receiver, past the outbox. Exit 1 if one did not take it.

    An Alertmanager's replicas count one by one: each must be reached. May run beside the service.
    """
    from rltriage.exporters.delivery.dispatcher import Dispatcher
    from rltriage.exporters.delivery.outbox import Outbox
    from rltriage.exporters.delivery.routes import routes
    from rltriage.rules.catalogue import load_catalogue
    from rltriage.rules.config import load_config

    config = load_config(config_file)
    dispatcher = Dispatcher(Outbox(None), routes(config), catalogue=load_catalogue())
    outcomes = dispatcher.test(time.time())
    dispatcher.close()
    if not outcomes:
        raise click.UsageError(f"{config_file} has no receivers")
    for name, outcome in outcomes.items():
        wrong = "; ".join(filter(None, [outcome.problem, *outcome.refused.values()]))
        click.echo(f"{name}: {'took it' if outcome.accepted else 'did not take it'}{': ' if wrong else ''}{wrong}")
    fine = all(outcome.accepted and not outcome.problem for outcome in outcomes.values())
    raise click.exceptions.Exit(0 if fine else 1)
