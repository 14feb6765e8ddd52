"""The components of a reward as a run logs them, in the order of their first appearance."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rltriage.rules.conditions.base import Past, Reader, View

SPREADS = ("/std", "_std", "/min", "/max")
"""Ends of names that loggers give to a component's spread, which is no component."""


class Part(NamedTuple):
    """The readers of one component."""

    name: str
    start: Reader
    now: Reader
    gain: Reader
    last: Reader
    fresh: Callable[[Past], bool]


class Parts:
    """Binds a component's readers when some run first logs it."""

    __slots__ = ("excluded", "known", "names", "view")

    def __init__(self, view: View, patterns: tuple[str, ...], excluded: str) -> None:
        self.view = view
        self.excluded = excluded
        self.known: dict[str, Part] = {}
        self.names = view.matching(patterns, self._meet)

    def of(self, past: Past) -> list[Part]:
        """The components that a run has logged so far."""
        names, known = self.names(past), self.known
        return [known[name] for name in names if name in known] if names else []

    def _meet(self, name: str) -> None:
        if name == self.excluded or name.endswith(SPREADS):
            return
        view = self.view
        start, now = view.start(name), view.window(name, 5, "median")
        self.known[name] = Part(name, start, now, view.gain_z(name), view.last(name), view.fresh(name))
