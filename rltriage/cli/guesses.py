"""What people type who have not read the help: other tools' words for our commands and options, answered with ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import click

T = TypeVar("T")

# The commands of a group by the words that other tools have for them; what is spelt nearly right is found without.
COMMANDS = {
    "": {
        "monitor tail follow": "watch",
        "dashboard page ui web server start up": "serve",
        "evaluate analyze analyse diagnose triage scan run": "replay",
        "html summary": "report",
        "validate lint verify": "rules check",
        "test": "rules test",
        "list ls": "rules list",
        "explain show describe info": "rules explain",
        "compile prometheus": "rules compile",
        "schema": "rules schema",
        "faults": "train --fault list",
        "invariants probe": "check",
        "mute ack snooze": "silence",
        "grafana dashboards": "export --grafana DIR",
        "frameworks": "profiles list",
        "version": "--version",
        "help": "--help",
    },
    "rules": {"validate lint verify": "check", "show describe info": "explain", "run": "test", "ls": "list"},
    "profiles": {"validate": "check", "explain describe info": "show", "ls": "list"},
    "recorder": {"explain describe info": "show", "run": "replay", "ls": "list"},
    "reference": {"create make new": "build", "explain describe info list": "show"},
}
# Options likewise: the first of ours that the command has. What is none is said in words, to commands with that parameter.
OPTIONS: Mapping[str, tuple[str | tuple[str, str], ...]] = {
    "--port --host --bind --address --addr -p": ("--page", "--listen"),
    "--conf --config-file --configuration -f": ("--file",),
    "-c --fact --set --param": ("--config",),
    "--rule --rules --pack --packs -r": ("--rules", ("packs", "name packs without an option")),
    "--output --out --output-file --save -o": ("--output", ("", "results go to stdout: add `> FILE`")),
    "--output-dir --out-dir --dir --log-dir": ("--runs", "--output"),
    "--format --output-format": ("--json",),
    "--framework --trainer": ("--profile",),
    "--tag --tags --labels": ("--label",),
    "--severity --level --threshold --min-severity": ("--fail-on",),
    "--baseline --compare": ("--reference",),
    "--list --list-faults --faults": ("--fault",),
    "--duration --until": ("--for",),
    "--reason --comment --message -m": ("--why",),
    "--iterations --epochs --num-steps -n": ("--steps",),
    "--receiver --webhook --slack --alertmanager --notify": (("--file", "receivers stand in a rltriage.yaml: --file"),),
    "--verbose --debug --quiet -v -q": (("", "results go to stdout, messages to stderr: `2> FILE` keeps them apart"),),
}


class Group(click.Group):
    """A group that knows what an unknown command may have meant."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"there is no command '{name}'. {self._meant(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, name: str) -> str:
        from rltriage.rules.validate import meant

        root = ctx.parent is None
        near = _looked_up(name, COMMANDS.get("" if root else ctx.info_name or "", {}), "") or meant(
            name, self.list_commands(ctx)
        )
        return f"Did you mean '{near}'?" if near else f"`{ctx.command_path} --help` lists the commands."


def hinted(error: click.ClickException) -> click.ClickException:
    """The error of an unknown option with the option that was meant; any other as it is."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    hint = _option_meant(error.option_name, error.ctx.command)
    return click.UsageError(f"there is no option '{error.option_name}' here: {hint}", error.ctx) if hint else error


def _option_meant(name: str, command: click.Command) -> str:
    has = {word for parameter in command.params for word in (*parameter.opts, parameter.name)}
    for guess in _looked_up(name, OPTIONS, ()):
        needs, words = (guess, f"did you mean '{guess}'?") if isinstance(guess, str) else guess
        if not needs or needs in has:
            return words
    return _fact_meant(name) if "--config" in has else ""


def _fact_meant(name: str) -> str:
    """`--kl_coef 0.1` is `--config kl_coef=0.1`."""
    from rltriage.rules.facts import CONFIG_FACTS

    fact = name.lstrip("-").replace("-", "_")
    return f"write '--config {fact}=...'" if fact in CONFIG_FACTS else ""


def _looked_up(word: str, table: Mapping[str, T], otherwise: T) -> T:
    return next((ours for theirs, ours in table.items() if word in theirs.split()), otherwise)
