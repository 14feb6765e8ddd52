"""`rltriage check`: the invariants of a trainer, on one batch, before any training."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from rltriage.cli import completing
from rltriage.cli.options import SEED, json_option
from rltriage.rules.errors import RltriageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltriage.trainer.invariants import CheckResult, TrainerProbe

# `git bisect run` skips a commit on 125; 128 and above stop it.
UNBUILDABLE = 125
USAGE = 128
_EXTRA = ("torch", "numpy", "safetensors")
"""What the extra `trainer` installs."""


class _UsageError(click.UsageError):
    exit_code = USAGE


class _Bisectable(click.Command):
    """Usage errors that click finds itself are 128 too: a 2 would let `git bisect run` blame the commit."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            raise _UsageError(error.format_message(), error.ctx) from error


@click.command("check", cls=_Bisectable)
@click.option(
    "--fault", metavar="ID", help="Switch this fault of the reference trainer on.", shell_complete=completing.faults
)
@click.option("--probe", metavar="MODULE:FUNCTION", help="Check your own trainer: a function that returns a TrainerProbe.")
@click.option("--only", multiple=True, metavar="N[,N...]", help="Run only these checks, by number; may be repeated.")
@click.option("--seed", type=SEED, default=1, show_default=True, help="Seed of the sampled batch.")
@json_option
def command(fault: str | None, probe: str | None, only: tuple[str, ...], seed: int, as_json: bool) -> None:
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
        if any(result.passed is False for result in results):
            click.echo(f"\n{verdict(results)}")
    raise click.exceptions.Exit(1 if any(result.passed is False for result in results) else 0)


def _run(fault: str | None, probe: str | None, numbers: list[int] | None, seed: int) -> Sequence[CheckResult]:
    try:
        from rltriage.trainer.checks import run_all_checks
    except ImportError as error:
        _no_extra(error)
    from rltriage.trainer.faults import find_fault

    try:
        find_fault(fault)
    except RltriageError as error:
        _usage(f"{error}; `rltriage train --fault list` lists them with what they do")
    module, _, function = (probe or "").partition(":")
    if probe and (module == "MODULE" or function == "FUNCTION"):
        _usage(
            f"{probe} stands for your function that returns a probe of your trainer, as in --probe my_package.probe:make; "
            "docs/probes.md shows how to write one; for a TRL GRPOTrainer it is `return GRPOProbe(trainer)`, of "
            "rltriage.trainer.probes.trl. Without --probe the reference trainer is checked"
        )
    if probe and not (module and function):
        _usage(f"--probe takes MODULE:FUNCTION, as in my_package.probe:make; not '{probe}'")
    # Whatever a user's probe raises, sys.exit(0) included, git bisect must skip this commit rather than judge it.
    try:
        target = _load_probe(module, function) if probe else _reference(fault, seed)
        if probe:
            _must_be_probe(probe, target)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name in _EXTRA:
            _no_extra(error)
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            _unbuildable(f"there is no module {error.name}: it is looked for in {os.getcwd()} and on PYTHONPATH", error)
        _skip("the probe could not be built", error)
    try:
        return run_all_checks(target, only=numbers)
    except RltriageError as error:
        _usage(str(error))
    except (Exception, SystemExit) as error:
        _skip("the probe failed while it was checked", error)


def _skip(what: str, error: BaseException) -> NoReturn:
    """End with 125, and say where in the user's code it went wrong."""
    ours = os.path.dirname(__file__)
    calls = [call for call in traceback.extract_tb(error.__traceback__) if "<" not in call.filename]
    last = calls[-1] if calls and os.path.dirname(calls[-1].filename) != ours else None
    place = f" ({last.filename}:{last.lineno})" if last is not None else ""
    _unbuildable(f"{what}: {type(error).__name__}: {error}{place}", error)


def _no_extra(error: ImportError) -> NoReturn:
    _unbuildable(f"the trainer extra is not installed ({error}): pip install 'rltriage[trainer]'", error)


def _unbuildable(why: str, error: BaseException) -> NoReturn:
    click.echo(why, err=True)
    raise click.exceptions.Exit(UNBUILDABLE) from error


def _reference(fault: str | None, seed: int) -> TrainerProbe:
    from rltriage.trainer.probes.reference import full_reference_probe

    return full_reference_probe(fault, seed=seed)


def _load_probe(module: str, function: str) -> TrainerProbe:
    """The probe that the function of the module makes. The only place where rltriage runs code that a user names."""
    sys.path.insert(0, os.getcwd())
    loaded = import_module(module)
    if not hasattr(loaded, function):
        raise AttributeError(f"{module} has no function '{function}'", name=function, obj=loaded)
    probe: TrainerProbe = getattr(loaded, function)()
    return probe


def _must_be_probe(where: str, target: object) -> None:
    """Refuse what a function returned by mistake, its trainer above all, before a check stumbles over it."""
    from rltriage.trainer.invariants import TrainerProbe

    lacking = sorted(name for name in vars(TrainerProbe) if name[0] != "_" and not callable(getattr(target, name, None)))
    if not lacking:
        return
    kind = type(target)
    what = "None" if target is None else f"something of type {kind.__name__}"
    wrap = any(base.__name__ == "GRPOTrainer" for base in kind.__mro__)
    how = "return rltriage.trainer.probes.trl.GRPOProbe(trainer)" if wrap else f"it lacks {', '.join(lacking)}"
    raise TypeError(f"{where} returned {what}, not a TrainerProbe: {how}")


def _numbers(only: tuple[str, ...]) -> list[int] | None:
    if not only:
        return None
    try:
        return [int(part) for item in only for part in item.split(",")]
    except ValueError:
        _usage(f"--only takes numbers of checks, as in --only 1,2; not '{','.join(only)}'")


def _usage(message: str) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(USAGE)


def line(result: CheckResult) -> str:
    """One check on one line: number, title, measured value, verdict."""
    value = "-" if result.value is None else f"{result.value:.3g}"
    verdict = {True: "ok", False: "FAIL", None: "n/a"}[result.passed]
    reason = f"  {_limit(result)}" if result.passed is False else f"  {result.reason}" if result.passed is None else ""
    return f"{result.number:>2} {result.title:<36} {value:>9}  {verdict:<4}{reason}".rstrip()


_UNITS = {1: "tokens", 2: "nats", 9: "nats", 12: "nats", 13: "nats", 14: "nats", 16: "rows"}
"""What the values of checks count, by number; the others are shares and ratios."""


def _limit(result: CheckResult) -> str:
    """What the value would have to be: `limit 0 tokens`."""
    from rltriage.trainer.checks import ALL_CHECKS

    above = any(check.above for check in ALL_CHECKS if check.number == result.number)
    return f"{'must exceed' if above else 'limit'} {result.threshold:g} {_UNITS.get(result.number, '')}".rstrip()


def verdict(results: Sequence[CheckResult]) -> str:
    """Which fault the checks that fail point to, by the rules that read them in a run's first row."""
    from rltriage.engine.rows import Row, Run
    from rltriage.exporters.text import suspect_text
    from rltriage.rules.loader import load_rules
    from rltriage.trainer.invariants import as_metrics
    from rltriage.watching import WatchedRun

    failed = [str(result.number) for result in results if result.passed is False]
    said = f"check {failed[0]} fails" if len(failed) == 1 else f"checks {', '.join(failed)} fail"
    incident = WatchedRun(Run("check"), load_rules("triage")).emit(Row(0, as_metrics(results))).incident
    if incident is None or not incident.suspects:
        return f"{said}: no known fault fits"
    first, *others = incident.suspects
    also = [suspect_text(suspect) for suspect in others[:2] if suspect.score >= 0.01]
    return f"{said}: {suspect_text(first)}: {first.title}" + (f"\nor it is {'; '.join(also)}" if also else "")
