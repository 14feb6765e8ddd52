"""`rltriage train`: the reference agent on its gym, watched like any run, with a fault of your choice."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rltriage import __version__
from rltriage.cli.options import (
    config_option,
    fail_on_option,
    json_option,
    label_option,
    parse_config,
    reference_option,
    rules_option,
)
from rltriage.cli.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from rltriage.engine.reference import Reference
    from rltriage.exporters.http import Server
    from rltriage.exporters.state import RunState
    from rltriage.trainer.config import TrainConfig


@click.command("train")
@click.option("--fault", metavar="ID", help="The fault to switch on, e.g. mask_shift; `--fault list` lists them.")
@click.option("--seed", default=0, show_default=True, help="Seed of the run.")
@click.option("--steps", type=click.IntRange(1, 100_000), help="Default: 24, or what the fault needs to show.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Serve the gauges there while the run goes on; port 0 takes a free one."
)
@click.option("--runs", "directory", default="runs", show_default=True, help="Where the run's directory is made.")
@click.option("--name", help="The run's id. Default: the fault, the seed and the time.")
@click.option("--checks/--no-checks", default=True, help="Run the invariants before step 0 (foreign logs lack them).")
@rules_option
@config_option
@label_option
@reference_option
@json_option
@fail_on_option
def command(
    fault: str | None,
    seed: int,
    steps: int | None,
    listen: str | None,
    directory: str,
    name: str | None,
    checks: bool,
    packs: tuple[str, ...],
    config: tuple[str, ...],
    labels: dict[str, str],
    reference_files: tuple[str, ...],
    as_json: bool,
    fail_on: str,
) -> None:
    """Train the reference agent (158k parameters, about ten seconds on one core) under rltriage's eyes.

    --config sets the trainer's own fields (lr, kl_coef, minibatches, ...). Exit 0 nothing critical, 1 a critical alert
    fired, 2 bad usage.
    """
    if fault == "list":
        _list_faults()
        return
    _need_torch()
    from rltriage.engine.reference import read_reference
    from rltriage.trainer.faults import find_fault

    injected = find_fault(fault)
    count = steps or (injected.steps if injected else 24)
    settings = _train_config(parse_config(config))
    run_id = name or f"{fault or 'healthy'}-s{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    session = _Session(settings, fault, seed, count, labels)
    session.references = [read_reference(file) for file in reference_files]
    session.open(packs or ("triage",), Path(directory), run_id, listen, as_json)
    state: RunState = "crashed"
    try:
        session.train(checks)
        state = "finished"
    finally:
        session.close(state)
    raise click.exceptions.Exit(session.outcome.exit_code(fail_on))


class _Session:
    """One training run: what it is told, who watches it, where its gauges are."""

    def __init__(self, config: TrainConfig, fault: str | None, seed: int, steps: int, labels: dict[str, str]) -> None:
        self.config, self.fault, self.seed, self.steps, self.labels = config, fault, seed, steps, labels
        self.outcome = Outcome()
        self.server: Server | None = None
        self.references: list[Reference] = []

    def open(self, packs: tuple[str, ...], directory: Path, run_id: str, listen: str | None, as_json: bool) -> None:
        """Claim rules, port and directory before training starts, so that nothing is left half done."""
        from rltriage.engine.rows import Fact, Run
        from rltriage.engine.rundir import RunDirectory, safe_name
        from rltriage.exporters.gauges import Gauges
        from rltriage.exporters.http import serve_metrics
        from rltriage.rules.loader import load_rules
        from rltriage.trainer.config import config_facts
        from rltriage.trainer.faults import faulty_config
        from rltriage.watching import Journal, WatchedRun

        pack = load_rules(*packs)
        catalogue = pack.catalogue
        facts = config_facts(faulty_config(self.config, self.fault), steps=self.steps)
        run = Run(run_id, self.labels, {key: Fact(value, "declared", "trainer") for key, value in facts.items()})
        gauges = Gauges(catalogue.metrics, pack.rules)
        if listen:
            self.server = serve_metrics(gauges, listen)
        self.path = directory / safe_name(run_id)
        files = RunDirectory(self.path, run_id, config=facts, labels=self.labels, created=_now(), version=__version__)
        self.view = _view(as_json, catalogue, self)
        self.watched = WatchedRun(run, pack, (gauges, Journal(files, catalogue), self.outcome, self.view), self.references)

    def train(self, checks: bool) -> None:
        """Train to the end; every row goes through the monitor to all sinks."""
        import torch

        from rltriage.trainer.loop import train
        from rltriage.trainer.recorder import FlightRecorder

        torch.set_num_threads(1)  # a tiny model gains nothing from a second thread, and exactness holds per thread count
        with self.view:
            train(
                self.config,
                fault=self.fault,
                emit=self.watched.emit,
                steps=self.steps,
                seed=self.seed,
                clock=time.time,
                checks=checks,
                recorder=FlightRecorder(self.path / "recorder"),
            )

    def close(self, state: RunState) -> None:
        """End the run for every sink and give the port back."""
        self.watched.end(state, time.time())
        if self.server is not None:
            self.server.close()

    def run_check(self, number: int) -> str:
        """The first test of an alert, run on this trainer with its fault: one line with the measured value."""
        from rltriage.cli.checks import line
        from rltriage.trainer.invariants import run_checks
        from rltriage.trainer.probe import reference_probe

        return line(run_checks(reference_probe(self.fault), only=[number])[0])

    def introduce(self, console: Console) -> None:
        """What is about to happen and where to look meanwhile."""
        what = f"with {self.fault} switched on" if self.fault else "healthy"
        console.print(f"training the reference agent, {what}: seed {self.seed}, {self.steps} steps")
        if self.server is not None:
            console.print(f"gauges   {self.server.url}/metrics, live until the run ends")

    def conclude(self, console: Console) -> None:
        """What fired, and how to look again."""
        console.print(f"\nalerts   {self.outcome}")
        console.print(f"journal  {self.path} (again: rltriage replay {self.path})")
        if self.server is None:
            console.print("gauges   add --listen 127.0.0.1:9109, then curl http://127.0.0.1:9109/metrics while it trains")


def _view(as_json: bool, catalogue: Any, session: _Session) -> Any:
    if as_json:
        from rltriage.cli.output import JsonLines

        return JsonLines(catalogue)
    from rich.console import Console

    from rltriage.terminal import RunView

    return RunView(Console(highlight=False, soft_wrap=True), catalogue, session)


def _train_config(overrides: dict[str, Any]) -> TrainConfig:
    from rltriage.trainer.config import TrainConfig

    known = {field.name: field for field in fields(TrainConfig)}
    for key in overrides:
        if key not in known:
            raise click.BadParameter(f"the trainer has no '{key}'; it has {', '.join(known)}", param_hint="--config")
    return replace(TrainConfig(), **overrides)


def _list_faults() -> None:
    from rltriage.trainer.faults import FAULTS

    for fault in FAULTS.values():
        number = f"({fault.number})" if fault.number else ""
        click.echo(f"{number:>4} {fault.id:<24} {fault.title}")


def _need_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise click.UsageError("training needs torch: pip install 'rltriage[trainer]'")


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")
