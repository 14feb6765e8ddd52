"""`rltriage train`: the reference agent on its gym, watched like any run, with a fault of your choice."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rltriage.cli import completing
from rltriage.cli.options import (
    SEED,
    config_option,
    fail_on_option,
    json_option,
    label_option,
    reference_option,
    rules_option,
)
from rltriage.cli.outcome import Outcome
from rltriage.cli.runs import load_packs

if TYPE_CHECKING:
    from rich.console import Console

    from rltriage.exporters.http import Server
    from rltriage.exporters.state import RunState
    from rltriage.rules.model import Catalogue
    from rltriage.trainer.parallel import Job
    from rltriage.training import Watching

MOST_SEEDS = 1000


def _seeds(context: click.Context, option: click.Parameter, text: str | None) -> list[int]:
    """`0-9` or `0,3,7` as a list without repeats."""
    from rltriage.trainer.chapter import parse_seeds

    if text is None:
        return []
    try:
        first, _, last = text.partition("-")
        if last and int(last) - int(first) >= MOST_SEEDS:
            raise click.BadParameter(f"at most {MOST_SEEDS} seeds at once")
        found = list(dict.fromkeys(parse_seeds(text)))
    except ValueError:
        found = []
    if not found:
        raise click.BadParameter(f"'{text}' is neither a range like 0-9 nor a list like 0,3,7")
    return [SEED.convert(seed, option, context) for seed in found]


@click.command("train")
@click.option(
    "--fault",
    metavar="ID",
    help="The fault to switch on, e.g. mask_shift; `--fault list` lists them.",
    shell_complete=completing.faults,
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the run.")
@click.option(
    "--seeds", callback=_seeds, metavar="0-9", help="Several seeds in parallel: a line for each, no flight recorder."
)
@click.option("--processes", type=click.IntRange(1), help="With --seeds: runs at a time. Default: the cores.")
@click.option("--steps", type=click.IntRange(1, 100_000), help="Default: 24, or what the fault needs to show.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Serve the gauges there while the run goes on; port 0 takes a free one."
)
@click.option("--runs", "directory", default="runs", show_default=True, help="Where the run's directory is made.")
@click.option("--name", help="The run's id, with --seeds its beginning. Default: the fault, the seed and the time.")
@click.option("--checks/--no-checks", default=True, help="Run the invariants before step 0 (foreign logs lack them).")
@rules_option
@config_option
@label_option
@reference_option
@json_option
@fail_on_option()
def command(
    fault: str | None,
    seed: int,
    seeds: list[int],
    processes: int | None,
    steps: int | None,
    listen: str | None,
    directory: str,
    name: str | None,
    checks: bool,
    packs: tuple[str, ...],
    config: dict[str, Any],
    labels: dict[str, str],
    reference_files: tuple[str, ...],
    as_json: bool,
    fail_on: str,
) -> None:
    """Train the reference agent (158k parameters, about ten seconds on one core) under rltriage's eyes.

    --config sets the trainer's own fields (lr, kl_coef, minibatches, ...); a value that a field cannot have is refused.
    Exit 0 nothing critical, 1 a critical alert fired, 2 bad usage.
    """
    if fault == "list":
        _list_faults()
        return
    _need_torch()
    if seeds and seed:
        raise click.UsageError("--seed and --seeds exclude each other: put the seed into the list")
    from rltriage.engine.reference import read_reference
    from rltriage.training import Watching

    job = _job(fault, seed, steps, config, checks)
    references = [read_reference(file) for file in reference_files]
    how = Watching(load_packs(packs), Path(directory), references, labels)
    if seeds:
        from rltriage.cli.train_seeds import train_seeds

        outcomes = train_seeds(job, seeds, how, processes, name, listen, as_json)
        raise click.exceptions.Exit(max(outcome.exit_code(fail_on) for outcome in outcomes))
    session = _Session(job, how)
    session.open(run_name(job, name), listen, as_json)
    state: RunState = "crashed"
    try:
        session.train()
        state = "finished"
    finally:
        session.close(state)
    raise click.exceptions.Exit(session.outcome.exit_code(fail_on))


def _job(fault: str | None, seed: int, steps: int | None, config: dict[str, Any], checks: bool) -> Job:
    """What is to be trained; an unknown fault or field is refused, and a value that a field cannot have."""
    from rltriage.cli.train_config import train_config
    from rltriage.rules.errors import RltriageError
    from rltriage.trainer.faults import find_fault
    from rltriage.trainer.parallel import Job

    injected = find_fault(fault)
    count = steps or (injected.steps if injected else 24)
    try:
        return Job(fault, seed, count, train_config(config), checks)
    except RltriageError as error:
        raise click.BadParameter(str(error), param_hint="--config") from None


def run_name(job: Job, name: str | None = None) -> str:
    """The run's id: as the user named it, or after fault, seed and time."""
    return name or f"{job.fault or 'healthy'}-s{job.seed}-{time.strftime('%Y%m%d-%H%M%S')}"


class _Session:
    """One training run: what it is told, who watches it, where its gauges are."""

    def __init__(self, job: Job, how: Watching) -> None:
        self.job, self.steps, self.how = job, job.steps, how
        self.outcome = Outcome()
        self.server: Server | None = None

    def open(self, run_id: str, listen: str | None, as_json: bool) -> None:
        """Claim rules, port and directory before training starts, so that nothing is left half done."""
        from rltriage.engine.rundir import safe_name
        from rltriage.exporters.gauges import Gauges
        from rltriage.exporters.http import serve_metrics
        from rltriage.training import watch_job

        pack = self.how.pack
        gauges = Gauges(pack.catalogue.metrics, pack.rules)
        if listen:
            self.server = serve_metrics(gauges, listen)
        self.path = self.how.directory / safe_name(run_id)
        self.view = _view(as_json, pack.catalogue, self)
        self.watched = watch_job(self.job, run_id, self.how, (gauges, self.outcome, self.view))

    def train(self) -> None:
        """Train to the end; every row goes through the monitor to all sinks."""
        import torch

        from rltriage.trainer.probes.reference import train_checked
        from rltriage.trainer.recorder import FlightRecorder

        torch.set_num_threads(1)  # a tiny model gains nothing from a second thread, and exactness holds per thread count
        with self.view:
            train_checked(self.job, self.watched.emit, time.time, FlightRecorder(self.path / "recorder"))

    def close(self, state: RunState) -> None:
        """End the run for every sink and give the port back."""
        self.watched.end(state, time.time())
        if self.server is not None:
            self.server.close()

    def run_check(self, number: int) -> str:
        """The first test of an alert, run on this trainer with its fault: one line with the measured value."""
        from rltriage.cli.checks import line
        from rltriage.trainer.checks import run_all_checks
        from rltriage.trainer.probes.reference import full_reference_probe

        return line(run_all_checks(full_reference_probe(self.job.fault), only=[number])[0])

    def introduce(self, console: Console) -> None:
        """What is about to happen and where to look meanwhile."""
        what = f"with {self.job.fault} switched on" if self.job.fault else "healthy"
        console.print(f"training the reference agent, {what}: seed {self.job.seed}, {self.steps} steps")
        if self.server is not None:
            console.print(f"gauges   curl {self.server.url}/metrics (until the run ends)")

    def conclude(self, console: Console) -> None:
        """What fired, and how to look again."""
        console.print(f"\nalerts   {self.outcome}")
        console.print(f"journal  {self.path}")
        console.print(f"again    rltriage replay {self.path}")
        console.print(f"report   rltriage report {self.path}")
        if self.server is None:
            console.print("gauges   --listen 127.0.0.1:9109 serves them at http://127.0.0.1:9109/metrics")


def _view(as_json: bool, catalogue: Catalogue, session: _Session) -> Any:
    if as_json:
        from rltriage.cli.output import JsonLines

        return JsonLines(catalogue)
    from rich.console import Console

    from rltriage.terminal import RunView

    return RunView(Console(highlight=False, soft_wrap=True), _on_this_trainer(catalogue, session.job.fault), session)


def _on_this_trainer(catalogue: Catalogue, fault: str | None) -> Catalogue:
    """The first tests' commands for the reference trainer itself, where the catalogue leaves the probe to the user."""
    probe = f" --fault {fault}" if fault else ""
    tests = {
        name: replace(test, command=test.command.replace(" --probe MODULE:FUNCTION", probe))
        for name, test in catalogue.first_tests.items()
    }
    return replace(catalogue, first_tests=tests)


def _list_faults() -> None:
    from rltriage.trainer.faults import FAULTS

    for fault in FAULTS.values():
        number = f"({fault.number})" if fault.number else ""
        click.echo(f"{number:>4} {fault.id:<24} {fault.title}")


def _need_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise click.UsageError("training needs torch: pip install 'rltriage[trainer]'")
