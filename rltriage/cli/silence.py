"""`rltriage silence`: tell nobody of some alerts, for a while or until they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rltriage.cli import completing
from rltriage.cli.options import json_option

if TYPE_CHECKING:
    from rltriage.exporters.delivery.silences import Silence, Silences

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_FILE = Path("rltriage.yaml")


class AddByDefault(click.Group):
    """`rltriage silence RUN RULE` means `rltriage silence add RUN RULE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["add", *args]
        return super().parse_args(ctx, args)


@click.group("silence", cls=AddByDefault)
def command() -> None:
    """Tell nobody of the alerts of RUN and RULE: `rltriage silence RUN RULE`. They stay listed in gauges and pages.

    What a silence keeps back is told when it ends, if the alert still fires then.
    """


def state_option(function: F) -> F:
    """`--file` and `--state`: where the service keeps its state."""
    file = click.option("--file", "config_file", type=click.Path(path_type=Path), help="The service's rltriage.yaml.")
    state = click.option("--state", type=click.Path(path_type=Path), help="Its state folder itself, instead of --file.")
    return file(state(function))


@command.command("add", short_help="Silence the alerts of RUN and RULE.")
@click.argument("run", metavar="RUN")
@click.argument("rule", metavar="RULE", shell_complete=completing.rules)
@click.option("--for", "duration", metavar="TIME", help="How long: 30m, 2h, 3d. Default: 2h.")
@click.option("--ack", is_flag=True, help="Until the alerts have ended, instead of for a time.")
@click.option("--why", default="", metavar="TEXT", help="The reason, for whoever lists it.")
@state_option
def add(
    run: str, rule: str, duration: str | None, ack: bool, why: str, config_file: Path | None, state: Path | None
) -> None:
    """Silence the alerts of RUN and RULE; both may be globs: 'grpo-*', '*'."""
    from rltriage.exporters.delivery.silences import Silence

    if ack and duration:
        raise click.UsageError("--ack lasts until the alert ends: leave out --for")
    now = time.time()
    silence = Silence(run, rule, now, None if ack else now + _seconds(duration or "2h"), why)
    _silences(config_file, state).add(silence, now)
    click.echo(_line(silence))
    if slip := _slip(rule):
        click.echo(slip, err=True)


def _slip(rule: str) -> str:
    """A sentence where no shipped rule is meant: a silence for a misspelt rule keeps nothing back."""
    from fnmatch import fnmatchcase

    from rltriage.rules.loader import load_rules
    from rltriage.rules.validate import meant

    known = [one.id for one in load_rules("triage").rules]
    if any(fnmatchcase(one, rule) for one in known):
        return ""
    near = meant(rule, known)
    hint = f" (did you mean '{near}'?)" if near else ""
    return f"no shipped rule is '{rule}'{hint}: it counts for a rule of your own"


@command.command("list")
@json_option
@state_option
def list_silences(as_json: bool, config_file: Path | None, state: Path | None) -> None:
    """One line a silence: its run and rule, until when, and why."""
    import json
    from dataclasses import asdict

    found = _silences(config_file, state).active(time.time())
    for silence in found:
        click.echo(json.dumps({"type": "silence", **asdict(silence)}) if as_json else _line(silence))
    if not found and not as_json:
        click.echo("nothing is silenced")


@command.command("end", short_help="End a silence; alerts that still fire are told.")
@click.argument("run", metavar="RUN")
@click.argument("rule", metavar="RULE", shell_complete=completing.rules)
@state_option
def end(run: str, rule: str, config_file: Path | None, state: Path | None) -> None:
    """End the silence that was made with this RUN and RULE; alerts that still fire are told."""
    if not _silences(config_file, state).end(run, rule, time.time()):
        raise click.UsageError(f"nothing is silenced as {run} {rule}: `rltriage silence list` shows what is")
    click.echo(f"{run} {rule} is no longer silenced")


def _silences(config_file: Path | None, state: Path | None) -> Silences:
    from rltriage.exporters.delivery.silences import Silences
    from rltriage.rules.config import load_config

    if state is not None and config_file is not None:
        raise click.UsageError("--state and --file both name the state folder: leave one out")
    if state is None and config_file is None and not DEFAULT_FILE.is_file():
        raise click.UsageError("name the service's state: --file rltriage.yaml, or --state DIR")
    return Silences(state if state is not None else load_config(config_file or DEFAULT_FILE).state_dir)


def _seconds(duration: str) -> float:
    from rltriage.rules.config_checks import seconds

    found = seconds(duration)
    if not found:
        raise click.BadParameter(f"{duration!r} is no time: write for example 30m, 2h or 3d", param_hint="--for")
    return found


def _line(silence: Silence) -> str:
    until = "the alert ends"
    if silence.until is not None:
        # A duration of centuries is allowed and has no calendar date.
        try:
            until = datetime.fromtimestamp(silence.until, UTC).strftime("%Y-%m-%d %H:%M UTC")
        except (ValueError, OverflowError, OSError):
            until = "forever"
    return f"{silence.run} {silence.rule} until {until}" + (f": {silence.why}" if silence.why else "")
