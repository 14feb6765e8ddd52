"""Words of other tools for our commands and options, answered with ours."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from rltriage.cli import root
from rltriage.cli.guesses import COMMANDS, OPTIONS


def every_command() -> dict[str, click.Command]:
    """`rules check` -> the command, groups included."""
    found: dict[str, click.Command] = {"": root}
    context = click.Context(root)
    for name in root.list_commands(context):
        command = found[name] = root.get_command(context, name)
        if isinstance(command, click.Group):
            found |= {f"{name} {below}": each for below, each in command.commands.items()}
    return found


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("monitor a", "Did you mean 'watch'?"),
        ("dashboard", "Did you mean 'serve'?"),
        ("explain kl-ref-exactly-zero", "Did you mean 'rules explain'?"),
        ("lint mine.yaml", "Did you mean 'rules check'?"),
        ("faults", "Did you mean 'train --fault list'?"),
        ("replai a", "Did you mean 'replay'?"),
        ("frobnicate", "`rltriage --help` lists the commands."),
        ("rules lint mine.yaml", "Did you mean 'check'?"),
        ("rules shw x", "`rltriage rules --help` lists the commands."),
        ("recorder ls", "Did you mean 'list'?"),
        ("serve --port 8000", "did you mean '--page'?"),
        ("watch a --port 8000", "did you mean '--listen'?"),
        ("watch a --rule mine.yaml", "did you mean '--rules'?"),
        ("rules check --rules mine.yaml", "name packs without an option"),
        ("replay a -o out.txt", "add `> FILE`"),
        ("watch a --webhook http://x", "receivers stand in a rltriage.yaml: --file"),
        ("replay a --kl-coef 0.1", "write '--config kl_coef=...'"),
        ("replay a --verbose", "messages to stderr"),
        ("serve --config rltriage.yaml", "a configuration file is named with --file"),
        ("watch --config rltriage.yaml", "a configuration file is named with --file"),
        ("replay a --config kl_coef", "write for example --config kl_coef=0.05"),
    ],
)
def test_a_guess_is_answered_with_our_word(rltriage, typed: str, hint: str) -> None:
    """On stderr, exit 2, with the usage of the command."""
    ran = rltriage(*typed.split())
    assert ran.code == 2 and hint in " ".join(ran.err.split()) and ran.err.startswith("Usage: rltriage") and not ran.out


def test_an_option_that_nobody_can_guess_keeps_its_own_error(rltriage) -> None:
    """And near misses those that click finds."""
    assert "No such option '--frobnicate'." in rltriage("replay", "a", "--frobnicate").err
    assert "'--profile'" in rltriage("replay", "a", "--profil", "trl").err


@pytest.mark.parametrize("command", ["watch", "serve"])
def test_a_configuration_among_the_sources_is_pointed_out(rltriage, tmp_path: Path, command: str) -> None:
    """It would be waited for as for a log that is still empty."""
    config = tmp_path / "rltriage.yaml"
    config.write_text("version: 1\n")
    ran = rltriage(command, config)
    assert ran.code == 2 and "is named with --file" in ran.err


def test_what_is_answered_exists() -> None:
    """Every command and option that a hint names; no guess is one of ours in the same place."""
    commands = every_command()
    options = {option for command in commands.values() for each in command.params for option in each.opts}
    for group, guesses in COMMANDS.items():
        ours = {name.removeprefix(group).strip() for name in commands}
        for theirs, answer in guesses.items():
            words, given = (
                (answer.split(" --")[0], answer.partition(" --")[2].split()[:1]) if answer[0] != "-" else ("", [])
            )
            assert f"{group} {words}".strip() in commands, answer
            assert not ({word for word in theirs.split()} & {name for name in ours if name}), theirs
            assert all(f"--{option}" in options for option in given)
    for theirs, answers in OPTIONS.items():
        assert all(answer in options for answer in answers if isinstance(answer, str)), theirs
        assert len(set(theirs.split())) == len(theirs.split())
