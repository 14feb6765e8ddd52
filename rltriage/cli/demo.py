"""`rltriage demo`: the tour: a run with a fault, what names it, its first test and its gauges; then a healthy run."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.request import urlopen

import click

FAULT = "mask_shift"
STEPS = 8
HEALTHY_STEPS = 8
SHOWN = ("rltriage_reward_mean", "rltriage_policy_entropy_nats", "rltriage_alert_firing")
"""Gauges of which the tour shows a line."""


@click.command("demo")
@click.option("--runs", "directory", default="runs", show_default=True, help="Where the runs' directories are made.")
def command(directory: str) -> None:
    """Train twice for a few steps: with the fault mask_shift, which must be named, and healthy, which must stay silent.

    Exit 0 if both did, 1 if not. Takes about half a minute.
    """
    from rltriage.cli.train import _need_torch

    _need_torch()
    first = _run(FAULT, STEPS, directory)
    click.echo("\nNow without the fault: nothing critical may fire.\n")
    second = _run(None, HEALTHY_STEPS, directory)
    click.echo("\nNext: rltriage train --fault list; rltriage replay RUN; README.md for your own runs.")
    raise click.exceptions.Exit(0 if first and not second else 1)


def _run(fault: str | None, steps: int, directory: str) -> int:
    """How many critical alerts a run raised. Its gauges are served meanwhile, and shown at the end of the faulty one."""
    from rltriage.cli.train import _Session
    from rltriage.trainer.config import TrainConfig

    session = _Session(TrainConfig(), fault, 0, steps)
    name = f"demo-{fault or 'healthy'}-{time.strftime('%H%M%S')}"
    session.open(("triage",), Path(directory), name, "127.0.0.1:0", False)
    try:
        session.train(True)
        if fault and session.server is not None:
            _show(f"{session.server.url}/metrics")
    finally:
        session.close("finished")
    return session.outcome.fired["critical"]


def _show(url: str) -> None:
    """A few lines of what Prometheus would scrape now."""
    with urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    click.echo(f"\n$ curl {url}     # while the run goes on")
    for name in SHOWN:
        found = [line for line in lines if line.startswith(f"{name}{{")]
        click.echo(next((line for line in found if line.endswith(" 1.0")), found[0] if found else name))
