"""The address of a run's page, for whoever links to it; needs nothing of the page."""

from __future__ import annotations

from collections.abc import Container
from urllib.parse import quote

_STEPS = frozenset((".", ".."))
"""Browsers and clients take these for steps through folders, however they are written, and would ask for another page."""
_MARK = "~"


def run_path(run: str) -> str:
    """The address of a run's page: its id as one part of a path; one that is called `.` or `..` has a `~` before it."""
    return f"/runs/{_MARK if run in _STEPS else ''}{quote(run, safe='')}"


def run_at(name: str, known: Container[str]) -> str:
    """The run that an address names. A run that is really called `~..` keeps its own."""
    bare = name.removeprefix(_MARK)
    return bare if bare in _STEPS and name not in known else name
