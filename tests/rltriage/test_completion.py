"""Shell completion: click's, through the lazy group."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from rltriage.cli import root


def completed(words: list[str], incomplete: str) -> set[str]:
    """What a shell would offer."""
    complete = ShellComplete(root, {}, "rltriage", "_RLTRIAGE_COMPLETE")
    return {item.value for item in complete.get_completions(words, incomplete)}


def test_commands_their_subcommands_and_options_are_offered() -> None:
    """At every level, by what has been typed."""
    assert completed([], "re") >= {"recorder", "replay"}
    assert completed(["rules"], "co") == {"compile"}
    assert completed(["replay"], "--ex") == {"--explain"}
    assert completed(["replay", "--fail-on"], "c") == {"critical"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_gives_a_script(shell: str) -> None:
    """`_RLTRIAGE_COMPLETE=..._source rltriage` prints a script that calls rltriage back."""
    result = subprocess.run(
        [sys.executable, "-c", "from rltriage.cli import main; main()"],
        env={**os.environ, "_RLTRIAGE_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0 and f"{shell}_complete" in result.stdout
