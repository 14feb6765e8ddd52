"""Runs the command line in this process: fast, and with the exit code that a shell would see."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def rltriage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`rltriage("replay", path)` runs the command and returns exit code, stdout and stderr."""
    from rltriage.cli import main

    def run(*args: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["rltriage", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return Ran(int(exit_.value.code or 0), out, err)

    return run
