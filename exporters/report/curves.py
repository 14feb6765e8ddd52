"""A metric's whole course in bounded memory: buckets of equally many observations, each with its lowest, highest and mean.

Up to `buckets` observations every value is kept. Whenever twice as many buckets are full, neighbours are merged, so that a
one-row spike in 100,000 rows is still in the picture as the top of its bucket.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

BUCKETS = 240
MAX_METRICS = 200
"""Metrics of one run that are kept; a log that invents a name per row must not fill the memory."""
SHOWN_GAPS = 50


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean; of values whose sum no float holds, of their shares."""
    total = sum(values)
    return total / len(values) if isfinite(total) else sum(value / len(values) for value in values)


class Bucket(NamedTuple):
    """Equally many consecutive observations: the step of the first of them and what they span."""

    step: int
    low: float
    high: float
    mean: float


class Curve:
    """One metric. `width` is the number of observations a bucket holds, `gaps` the steps of values that are no number."""

    __slots__ = ("_highs", "_lows", "_means", "_most", "_steps", "_tail", "_tail_step", "count", "gaps", "last", "width")

    def __init__(self, buckets: int = BUCKETS) -> None:
        self.width = 1
        self.count = 0
        self.last: tuple[int, float] | None = None
        self.gaps: list[int] = []
        self._most = 2 * buckets
        self._steps = array("q")
        self._lows, self._highs, self._means = array("d"), array("d"), array("d")
        self._tail: list[float] = []
        self._tail_step = 0

    def add(self, step: int, value: float) -> None:
        """Take one observation; of one step the first value counts."""
        if self.last is not None and self.last[0] == step:
            return
        self.last = (step, value)
        if not isfinite(value):
            if len(self.gaps) < SHOWN_GAPS:
                self.gaps.append(step)
            return
        self.count += 1
        if not self._tail:
            self._tail_step = step
        self._tail.append(value)
        self._fill()

    def extend(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Take one observation a step, in the order of the steps."""
        place = 1 if self.last is not None and self.last[0] == steps[0] else 0
        if not isfinite(sum(values)):
            for step, value in zip(steps[place:], values[place:], strict=True):
                self.add(step, value)
            return
        self.count += len(values) - place
        self.last = (steps[-1], values[-1])
        while place < len(values):
            if not self._tail:
                self._tail_step = steps[place]
            taken = values[place : place + self.width - len(self._tail)]
            self._tail += taken
            place += len(taken)
            self._fill()

    def rewind(self, step: int) -> None:
        """Drop what lies at `step` and after it: the run went back there. The bucket that spans it goes as a whole."""
        keep = sum(1 for start in self._steps if start < step)
        if self.width > 1 and keep and (keep < len(self._steps) or self._tail_step >= step):
            keep -= 1
        for series in (self._steps, self._lows, self._highs, self._means):
            del series[keep:]
        self._tail.clear()
        self.gaps = [gap for gap in self.gaps if gap < step]
        self.last = None

    def buckets(self) -> list[Bucket]:
        """The course so far, in the order of steps; the last bucket may hold fewer observations."""
        found = list(map(Bucket, self._steps, self._lows, self._highs, self._means))
        tail = self._tail
        return [*found, Bucket(self._tail_step, min(tail), max(tail), mean(tail))] if tail else found

    def _fill(self) -> None:
        """Close the newest bucket if it is full."""
        tail = self._tail
        if len(tail) < self.width:
            return
        self._steps.append(self._tail_step)
        self._means.append(mean(tail))
        tail.sort()  # quicker than looking for the smallest and for the largest
        self._lows.append(tail[0])
        self._highs.append(tail[-1])
        tail.clear()
        if len(self._steps) >= self._most:
            self._halve()

    def _halve(self) -> None:
        """Merge neighbours in pairs; they hold equally many observations, so that the mean of means is exact."""
        self._lows = array("d", map(min, self._lows[::2], self._lows[1::2]))
        self._highs = array("d", map(max, self._highs[::2], self._highs[1::2]))
        self._means = array("d", [a / 2 + b / 2 for a, b in zip(self._means[::2], self._means[1::2], strict=True)])
        self._steps = self._steps[::2]
        self.width *= 2


class Curves(Mapping[str, Curve]):
    """Every metric of one run, of its newest segment: a step back to the start begins anew, as in the monitor.

    Rows with the same metrics wait in a chunk and are taken column by column, which is ten times as fast as one by one.
    """

    def __init__(self, buckets: int = BUCKETS) -> None:
        self.restarts = 0
        self.dropped = 0
        self._buckets = buckets
        self._curves: dict[str, Curve] = {}
        self._first: int | None = None
        self._last = 0
        self.names: tuple[str, ...] = ()
        """The metrics of the newest row; the same object while they are the same."""
        self._steps: list[int] = []
        self._rows: list[tuple[float, ...]] = []

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take a row's metrics."""
        names = tuple(metrics)
        others = names != self.names
        if others or step <= self._last or len(self._rows) >= self._buckets:
            self._flush()
        if others:
            self.names = names
        if self._first is None:
            self._first = step
        elif step < self._last:
            self._go_back(step)
        self._last = step
        self._steps.append(step)
        self._rows.append(tuple(metrics.values()))

    def __getitem__(self, name: str) -> Curve:
        self._flush()
        return self._curves[name]

    def __iter__(self) -> Iterator[str]:
        self._flush()
        return iter(self._curves)

    def __len__(self) -> int:
        self._flush()
        return len(self._curves)

    def _flush(self) -> None:
        if not self._rows:
            return
        for name, values in zip(self.names, zip(*self._rows, strict=True), strict=True):
            curve = self._curves.get(name)
            if curve is None:
                if len(self._curves) >= MAX_METRICS:
                    self.dropped += 1
                    continue
                curve = self._curves[name] = Curve(self._buckets)
            curve.extend(self._steps, values)
        self._steps, self._rows = [], []

    def _go_back(self, step: int) -> None:
        if self._first is not None and step <= self._first:
            self.restarts += 1
            self._curves.clear()
            self._first = step
        else:
            for curve in self._curves.values():
                curve.rewind(step)
