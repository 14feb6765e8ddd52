"""The components of a reward as a run logs them, in the order of their first appearance."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rltriage.rules.conditions.base import Reader, View

SPREADS = ("/std", "_std", "/min", "/max")
"""Ends of names that loggers give to a component's spread, which is no component."""


class Part(NamedTuple):
    """The readers of one component."""

    name: str
    start: Reader
    now: Reader
    gain: Reader
    last: Reader
    fresh: Callable[[], bool]


class Parts:
    """Binds a component's readers when it is first seen."""

    __slots__ = ("baseline", "excluded", "found", "names", "seen", "view", "window")

    def __init__(self, view: View, patterns: tuple[str, ...], excluded: str, baseline: int = 5, window: int = 5) -> None:
        self.view = view
        self.names = view.matching(patterns)
        self.excluded = excluded
        self.baseline = baseline
        self.window = window
        self.found: list[Part] = []
        self.seen = 0

    def current(self) -> list[Part]:
        """The components seen so far."""
        names = self.names()
        if self.seen < len(names):
            self.seen = len(names)
            known = {part.name for part in self.found}
            new = [name for name in names if name not in known and name != self.excluded and not name.endswith(SPREADS)]
            self.found += [self._part(name) for name in new]
        return self.found

    def _part(self, name: str) -> Part:
        view = self.view
        start, now = view.start(name, self.baseline), view.window(name, self.window, "median")
        return Part(name, start, now, view.gain_z(name, self.baseline, self.window), view.last(name), view.fresh(name))
