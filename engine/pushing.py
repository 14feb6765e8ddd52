"""How the values of a row reach their series, and the series that are derived from two of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from rltriage.engine.aggregates import Series
from rltriage.rules.conditions.base import Tracker

Known = Sequence[Series]
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


def push(values: Mapping[str, float], known: Iterator[Series], row: int, left: list[Series]) -> None:
    """Push values into their series (`Series.push` written out: this loop is most of what a row costs).

    `left` takes the series whose value is outside of where everybody sleeps on.
    """
    tracker: Callable[[float], None] | None = None
    for series in known:
        value = values[series.name] + 0.0  # so that -0.0 is 0
        series.row = row
        series.last = value
        series.version += 1
        if series.keep:
            ring = series.values
            ring.append(value)
            if len(ring) > series.limit:
                del ring[: -series.keep]
        if not series.low <= value <= series.high:
            left.append(series)
        if series.pushes:
            try:
                for tracker in series.pushes:
                    tracker(value)
            except Exception as error:
                raise PushError(series, getattr(tracker, "__self__", None), error) from error  # type: ignore[arg-type]
