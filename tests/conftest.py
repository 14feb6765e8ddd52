"""Shared fixtures: where the public cases lie, and what may be missing on a developer's machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of public cases (RLTRIAGE_CASES); real logs are other people's data and are not part of the project."""
    folder = os.environ.get("RLTRIAGE_CASES")
    if not folder:
        pytest.skip("RLTRIAGE_CASES is not set: the real public logs are not part of the project")
    return Path(folder)


def missing(what: str) -> None:
    """Skip, with a reason, where a server or browser is missing; fail instead where CI promises to have it."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing")
