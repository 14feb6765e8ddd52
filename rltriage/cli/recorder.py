"""`rltriage recorder`: steps that the flight recorder kept, and their exact replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rltriage.cli import completing
from rltriage.cli.guesses import Group
from rltriage.cli.output import wrapped
from rltriage.cli.runs import find_run

if TYPE_CHECKING:
    from rltriage.trainer.replay import Replay


@click.group("recorder", cls=Group)
def command() -> None:
    """List, show and replay the steps that a run's flight recorder kept."""


@command.command("list")
@click.argument("run", metavar="RUN", shell_complete=completing.logs)
def list_steps(run: str) -> None:
    """Every recorded step: why it was kept, and its size. Exit 1 if one is damaged."""
    from rltriage.trainer.recorder import all_recordings

    recordings, damaged = all_recordings(_folder(run))
    for recording in recordings:
        click.echo(wrapped(f"step {recording.step:>5}  {recording.bytes / 1e6:5.1f} MB  {_plain(recording.reason)}", 22))
    for error in damaged:
        click.echo(f"damaged: {_plain(str(error))}", err=True)
    raise click.exceptions.Exit(1 if damaged else 0)


@command.command("show", short_help="The statistics of a recorded step.")
@click.argument("run", metavar="RUN", shell_complete=completing.logs)
@click.argument("step", type=int)
def show(run: str, step: int) -> None:
    """The statistics of a recorded step, and on what it was recorded."""
    from rltriage.trainer.recorder import find_recording

    recording = find_recording(_folder(run), step)
    click.echo(f"step {recording.step}: {_plain(recording.reason)}")
    for name, value in recording.meta["environment"].items():
        click.echo(_plain(f"  {name:<22} {value}"))
    for name, number in recording.statistics.items():
        click.echo(_plain(f"  {name:<22} {number:.6g}"))


@command.command("replay", short_help="Repeat a step's update and compare bit by bit.")
@click.argument("run", metavar="RUN", shell_complete=completing.logs)
@click.argument("step", type=int)
@click.option("--top", default=3, show_default=True, help="How many of the episodes that dominate the step to show.")
def replay(run: str, step: int, top: int) -> None:
    """Repeat a recorded step's update and compare its statistics bit by bit. Exit 0 exact, 1 a number moved."""
    from rltriage.trainer.replay import replay_step

    replayed = replay_step(_folder(run), step, top)
    for text in _lines(replayed):
        click.echo(_plain(text))
    raise click.exceptions.Exit(0 if replayed.exact else 1)


def _lines(replayed: Replay) -> list[str]:
    lines = [f"step {replayed.step}: {replayed.compared - len(replayed.moved)} of {replayed.compared} statistics are exact"]
    lines += [f"  moved: {moved.name} was {moved.recorded!r}, is {moved.replayed!r}" for moved in replayed.moved]
    lines += [f"  not as recorded: {difference}" for difference in replayed.differences]
    for episode in replayed.dominant:
        lines.append(f"episode {episode.row}: {episode.share:.0%} of the gradient, reward {episode.reward:g}")
        lines.append(f"  {episode.text}")
    return lines


def _plain(text: str) -> str:
    """Text of a recording, which may be anybody's, without what moves a terminal's cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _folder(run: str) -> Path:

    path = Path(find_run(run))
    if not path.is_dir():
        raise click.UsageError(f"{run}: no such run directory; RUN is a folder of `rltriage train` or `rltriage.watch`")
    return path / "recorder"
