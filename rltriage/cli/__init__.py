"""The command line: one file per command, imported only when that command runs.

Results go to stdout: what was found, also that nothing was, and which files were written. Mistakes, hints, progress and
what was left out go to stderr. Exit codes: 0 nothing critical, 1 a critical alert fired (or a check failed), 2 bad usage,
input or pack, or output that cannot be written. A reader of stdout that leaves early (head) changes no exit code.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from rltriage import __version__
from rltriage.cli.guesses import Group, hinted
from rltriage.cli.streams import guard, written
from rltriage.rules.errors import RltriageError

COMMANDS = {
    "bench": ("bench", "measure which faults are named, and how often healthy runs are alarmed"),
    "check": ("checks", "run the invariants of a trainer on one batch"),
    "coverage": ("coverage", "which faults a log can reveal, and which metric to add"),
    "export": ("export", "a finished run as OpenMetrics, for Prometheus blocks"),
    "notify": ("notify", "send a test notification to every receiver of a configuration"),
    "profiles": ("profiles", "which framework's names map to which metrics"),
    "recorder": ("recorder", "list, show and replay recorded steps"),
    "reference": ("reference", "build and show what healthy runs look like"),
    "replay": ("replay", "evaluate the rules over logs that exist"),
    "report": ("report", "what happened in a run, as one self-contained file"),
    "rules": ("rules", "check, list, explain, test and compile rule packs"),
    "serve": ("serve", "watch, with the on-call page: every run live in a browser"),
    "silence": ("silence", "tell nobody of some alerts for a while, or until they end"),
    "train": ("train", "train the reference agent, watched, with a fault of your choice"),
    "watch": ("watch", "follow logs or endpoints live: alerts here, gauges for Prometheus"),
}


class LazyGroup(Group):
    """Knows its commands' names and one-line helps; imports a command's module only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"rltriage.cli.{COMMANDS[name][0]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rltriage")
def root() -> None:
    """Watch reinforcement-learning runs: which fault a metric betrays, and which test to run first."""


def main() -> None:
    """Run the command line; every error of ours, and of the files around us, is one message on stderr and exit code 2."""
    stdout = guard()
    status = _run()
    if failure := written(stdout):
        click.echo(failure, err=True)
        status = max(2, status)
    sys.exit(status)


def _run() -> int:
    try:
        # Outside standalone mode click returns the code of `Exit` instead of raising it.
        return int(root.main(prog_name="rltriage", standalone_mode=False) or 0)
    except click.ClickException as error:
        hinted(error).show()
        return max(2, error.exit_code)
    except click.Abort:
        click.echo("stopped", err=True)
        return 130
    except RltriageError as error:
        click.echo(str(error), err=True)
        return 2
    except OSError as error:
        click.echo(f"{error.filename}: {error.strerror}" if error.filename else str(error), err=True)
        return 2
