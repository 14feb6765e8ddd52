"""Shared fixtures: where the public cases lie, and what may be missing on a developer's machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import stack

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of public cases (RLTRIAGE_CASES); real logs are other people's data and are not part of the project."""
    folder = os.environ.get("RLTRIAGE_CASES")
    if not folder:
        pytest.skip("RLTRIAGE_CASES is not set: the real public logs are not part of the project")
    return Path(folder)


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """Skips a test for want of a program or file, with the reason; with CI=1, where all of them must run, it fails."""

    def told(reason: str) -> NoReturn:
        (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)(reason)

    return told


@pytest.fixture(scope="session")
def server_binary(missing: Callable[[str], NoReturn]) -> Callable[[str], str]:
    """Finds a Prometheus program by name, or else the test is skipped."""

    def find(name: str) -> str:
        path = shutil.which(name) or shutil.which(name, path=str(ROOT / ".cache" / "servers" / "usr" / "bin"))
        if path is None:
            missing(f"{name} is not installed: run deploy/fetch_servers.sh")
        return path

    return find


@pytest.fixture(scope="session")
def server_command(missing: Callable[[str], NoReturn]) -> Callable[[str], list[str]]:
    """The command that runs a server, or else the test is skipped."""

    def command(name: str) -> list[str]:
        try:
            return stack.server_command(name)
        except stack.Failed as problem:
            missing(str(problem))

    return command
