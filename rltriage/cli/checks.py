"""`rltriage check`: the invariants of a trainer, on one batch, before any training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rltriage.cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltriage.trainer.invariants import CheckResult

# `git bisect run` skips a commit on 125; 128 and above stop it.
UNBUILDABLE = 125
USAGE = 128


@click.command("check")
@click.option("--fault", metavar="ID", help="Switch this fault of the reference trainer on.")
@click.option("--probe", metavar="MODULE:FUNCTION", help="Check your own trainer: a function that returns a TrainerProbe.")
@click.option("--only", metavar="N[,N...]", help="Run only these checks, by number.")
@click.option("--seed", default=1, show_default=True, help="Seed of the sampled batch.")
@json_option
def command(fault: str | None, probe: str | None, only: str | None, seed: int, as_json: bool) -> None:
    """Check the identities that a correct trainer satisfies at step 0.

    Exit codes fit `git bisect run`: 0 all pass, 1 one failed, 125 the probe or trainer could not be built, 128 usage error.
    """
    numbers = _numbers(only)
    if fault and probe:
        _usage("--fault belongs to the reference trainer: give --fault or --probe, not both")
    results = _run(fault, probe, numbers, seed)
    if as_json:
        from rltriage.exporters.jsonlines import dumps

        for result in results:
            click.echo(dumps({"format": 1, **result.as_json()}))
    else:
        for result in results:
            click.echo(line(result))
    raise click.exceptions.Exit(1 if any(result.passed is False for result in results) else 0)


def _run(fault: str | None, probe: str | None, numbers: list[int] | None, seed: int) -> Sequence[CheckResult]:
    try:
        from rltriage.trainer.invariants import load_probe, run_checks
    except ImportError as error:
        click.echo(f"the trainer extra is not installed ({error}): pip install 'rltriage[trainer]'", err=True)
        raise click.exceptions.Exit(UNBUILDABLE) from error
    known = None
    if not probe:
        from rltriage.trainer.faults import FAULTS

        known = FAULTS
        if fault and fault not in known:
            _usage(f"no fault '{fault}' to inject; one of: {', '.join(known)}")
    try:
        if probe:
            target = load_probe(probe)
        else:
            from rltriage.trainer.probe import reference_probe

            target = reference_probe(fault=fault, seed=seed)
    except Exception as error:
        # Whatever a user's probe raises, git bisect must skip this commit rather than blame it.
        click.echo(f"the probe could not be built: {type(error).__name__}: {error}", err=True)
        raise click.exceptions.Exit(UNBUILDABLE) from error
    return run_checks(target, only=numbers)


def _numbers(only: str | None) -> list[int] | None:
    if only is None:
        return None
    try:
        return [int(part) for part in only.split(",")]
    except ValueError:
        _usage(f"--only takes numbers of checks, as in --only 1,2; not '{only}'")


def _usage(message: str) -> Any:
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(USAGE)


def line(result: CheckResult) -> str:
    """One check on one line: number, title, measured value, verdict."""
    value = "-" if result.value is None else f"{result.value:.3g}"
    verdict = {True: "ok", False: "FAIL", None: "n/a"}[result.passed]
    reason = f"  {result.reason}" if result.passed is None and result.reason else ""
    return f"{result.number:>2} {result.title:<36} {value:>9}  {verdict:<4}{reason}".rstrip()
