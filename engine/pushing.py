"""How the values of a row reach their series, and the series that are derived from two of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rltriage.engine.aggregates import Series
from rltriage.engine.rows import picker
from rltriage.rules.conditions.base import Tracker

REWINDABLE = 256
"""Rows over which a step back is undone; a run that goes back further keeps its oldest ones."""


class PushError(Exception):
    """A tracker failed; never leaves the history."""

    def __init__(self, series: Series, tracker: Tracker, reason: Exception) -> None:
        super().__init__(str(reason))
        self.series = series
        self.tracker = tracker
        self.reason = reason


class Pair:
    """A series derived from two metrics, in rows that have both."""

    __slots__ = ("left", "ratio", "right", "series", "steps")

    def __init__(self, left: Series, right: Series, ratio: bool, series: Series) -> None:
        self.left = left
        self.right = right
        self.ratio = ratio
        self.series = series
        self.steps: deque[int] = deque(maxlen=REWINDABLE)

    def update(self, row: int, step: int) -> bool:
        """Take this row if both metrics are in it; whether everybody who waits on the series may sleep on."""
        one, other = self.left.last, self.right.last
        if self.left.row != row or self.right.row != row or self.series.row == row or one is None or other is None:
            return True
        if self.ratio and other == 0.0:
            return True
        self.steps.append(step)
        return self.series.push(one / other if self.ratio else one - other, row)

    def rewind(self, step: int) -> None:
        """The run went back to `step`."""
        dropped = 0
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            dropped += 1
        self.series.rewind(dropped, step)


class Known(NamedTuple):
    """Where a row's values go: the series of its metrics, how to take their values out of the row, and who has trackers."""

    series: tuple[Series, ...]
    pick: Callable[[Mapping[str, float]], Sequence[float]]
    tracked: tuple[Series, ...]


def known_of(series: tuple[Series, ...], before: Known | None) -> Known:
    """Of these series; shares what it can with what was known `before`, which the log of rows still holds."""
    tracked = tuple(one for one in series if one.pushes)
    if before is not None and before.series == series:
        return Known(before.series, before.pick, tracked)
    return Known(series, picker([one.name for one in series]), tracked)


def push(known: Known, row: Mapping[str, float], index: int, left: list[Series]) -> None:
    """Push values into their series: this loop is much of what a row costs. Trackers are fed by `feed`.

    `left` takes the series whose value is outside of where everybody sleeps on.
    """
    for series, value in zip(known.series, known.pick(row), strict=True):
        value += 0.0  # so that -0.0 is 0
        series.row = index
        series.last = value
        series.version += 1
        series.append(value)
        if not series.low <= value <= series.high:
            left.append(series)


def feed(tracked: Iterator[Series]) -> None:
    """Show the newest values to trackers. Raises PushError for one that fails; the iterator goes on behind its series."""
    push: Callable[[float], None] | None = None
    for series in tracked:
        try:
            for push in series.pushes:
                push(series.last)  # type: ignore[arg-type]
        except Exception as error:
            raise PushError(series, getattr(push, "__self__", None), error) from error  # type: ignore[arg-type]
