"""What a run's history keeps of one metric: a compact ring of observations and the trackers that rules asked for."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from rltriage.rules.conditions.base import Baseline, Tracker
from rltriage.rules.conditions.noise import median

WindowFunction = Callable[[Sequence[float]], float]

_NOTHING = array("d")
"""What a full head keeps of its values."""


class Need:
    """What the rules of a pack need of one metric: so many observations, and these trackers. Shared by all runs.

    `owners` are the rules that asked for a tracker.
    """

    __slots__ = ("keep", "keys", "makes", "name", "owners")

    def __init__(self, name: str) -> None:
        self.name = name
        self.keep = 0
        self.keys: dict[tuple[object, ...], int] = {}
        self.makes: list[Callable[[Any], Tracker]] = []
        self.owners: list[set[str]] = []

    def key(self, index: int) -> tuple[object, ...]:
        """The key of a tracker by its place."""
        return list(self.keys)[index]


class Series:
    """One metric of one segment. Only what somebody asked for is kept: the ring holds as many values as the largest window.

    `version` changes with every observation and every rewind; readers cache by it. `row` is the row of the newest one. An
    observation costs one counter: `count` is the version less what rewinds have taken. `low` to `high` is where every
    sleeper sleeps on, see `resting`.
    """

    __slots__ = (
        "append",
        "failed",
        "high",
        "keep",
        "last",
        "lost",
        "low",
        "name",
        "need",
        "pushes",
        "row",
        "sleepers",
        "trackers",
        "values",
        "version",
    )

    def __init__(self, need: Need, past: Any) -> None:
        self.need = need
        self.name = need.name
        self.last: float | None = None
        self.row = -1
        self.version = 0
        self.lost = 0
        self.keep = 1
        self.values = array("d")
        self.append = self.values.append
        self.trackers: tuple[Tracker, ...] = ()
        self.failed: tuple[Tracker, ...] = ()
        self.pushes: tuple[Callable[[float], None], ...] = ()
        self.low, self.high = -inf, inf
        self.sleepers: tuple[Any, ...] = ()
        self.fit(need, past)

    @property
    def count(self) -> int:
        """Observations of the segment, without those that the run went back over."""
        return self.version - self.lost

    def fit(self, need: Need, past: Any) -> None:
        """Keep what is needed, from now on: after a reload, or where more is asked for than before.

        A new tracker is fed with the observations that are kept, if they are all there were.
        """
        self.keep = max(self.keep, need.keep)
        old = dict(zip(self.need.keys, self.trackers, strict=False)) if self.trackers else {}
        self.need = need
        if len(self.trackers) == len(need.makes) and all(key in old for key in need.keys):
            self.trackers = tuple(old[key] for key in need.keys)
            return
        pairs = zip(need.keys, need.makes, strict=True)
        self.trackers = tuple(old[key] if key in old else self._caught_up(make(past)) for key, make in pairs)
        self.retire()

    def _caught_up(self, tracker: Tracker) -> Tracker:
        if self.count and self.count == len(self.values):
            for value in self.values:
                tracker.push(value)
        elif tracker.reach:
            tracker.rewind(self.values[-tracker.reach :], 0)
        return tracker

    def push(self, value: float, row: int) -> bool:
        """Take one observation; whether somebody sleeps on."""
        self.row = row
        self.last = value
        self.version += 1
        self.append(value)
        for push in self.pushes:
            push(value)
        return self.low <= value <= self.high

    def trim(self) -> None:
        """Let go of observations that nobody needs."""
        if len(self.values) > self.keep:
            del self.values[: -self.keep]

    def drop(self, tracker: Tracker) -> set[str]:
        """Stop feeding a tracker; the rules that read it."""
        self.failed = (*self.failed, tracker)
        self.retire()
        return next((owners for one, owners in zip(self.trackers, self.need.owners, strict=False) if one is tracker), set())

    def retire(self) -> None:
        """Feed only trackers that can still learn something."""
        failed = self.failed
        self.pushes = tuple(one.push for one in self.trackers if not one.done and all(one is not bad for bad in failed))

    def rewind(self, dropped: int, step: int) -> None:
        """The run went back to `step`: drop the newest observations; trackers of the whole segment keep what they saw."""
        self.version += 2  # two, so that nobody takes it for one more observation
        self.lost += dropped + 2
        if dropped:
            del self.values[-dropped:]
        if self.values:
            self.last = self.values[-1]
        for tracker in self.trackers:
            if tracker.reach:
                tracker.rewind(self.values[-tracker.reach :], step)


class Head(Baseline):
    """The first observations of a segment; once there are `size` of them only their median is kept."""

    __slots__ = ("middle", "size", "values")

    def __init__(self, size: int) -> None:
        self.size = size
        self.values = array("d")
        self.middle: float | None = None

    @property
    def done(self) -> bool:
        """It is full."""
        return self.middle is not None

    def start(self) -> float | None:
        """The median; None before it is full."""
        return self.middle

    def push(self, value: float) -> None:
        """Take one observation while there is room."""
        if self.middle is None:
            self.values.append(value)
            if len(self.values) == self.size:
                self.middle, self.values = median(self.values), _NOTHING


class Extremes(Baseline):
    """The smallest and the largest observation of a segment, and the smallest since the largest."""

    __slots__ = ("highest", "lowest", "trough")

    def __init__(self) -> None:
        self.lowest: float | None = None
        self.highest: float | None = None
        self.trough: float | None = None

    def push(self, value: float) -> None:
        """Take one observation."""
        if self.lowest is None or value < self.lowest:
            self.lowest = value
        if self.highest is None or value >= self.highest:
            self.highest = value
            self.trough = None
        elif self.trough is None or value < self.trough:
            self.trough = value


class Best(Baseline):
    """The largest median of a number of consecutive observations; kept over a rewind."""

    __slots__ = ("best", "size", "values")

    def __init__(self, size: int) -> None:
        self.size = size
        self.values = array("d")
        self.best: float | None = None

    def push(self, value: float) -> None:
        """Take one observation."""
        best, values = self.best, self.values
        values.append(value)
        if len(values) > self.size:
            del values[0]
        elif len(values) < self.size:
            return
        if best is None or value > best or self.size % 2 == 0:  # else no odd median can have risen beyond it
            middle = median(values)
            if best is None or middle > best:
                self.best = middle


def window_function(stat: str) -> WindowFunction:
    """The function of a `WindowStat` over a non-empty sequence, oldest first."""
    if stat.startswith("q"):
        share = int(stat[1:]) / 100.0
        return lambda values: quantile(values, share)
    return _FUNCTIONS[stat]


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile with linear interpolation between the two nearest ranks."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _stdev(values: Sequence[float]) -> float:
    """The sample standard deviation; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) * (value - mean) for value in values) / (len(values) - 1))


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values)


def _first(values: Sequence[float]) -> float:
    return values[0]


_FUNCTIONS: dict[str, WindowFunction] = {
    "mean": _mean,
    "median": median,
    "min": min,
    "max": max,
    "first": _first,
    "stdev": _stdev,
    "spread": _spread,
}
