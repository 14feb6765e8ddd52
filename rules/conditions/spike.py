"""One value stands out of its running neighbourhood."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, nextafter
from typing import ClassVar

from rltriage.rules.conditions.base import ROWS, Check, Guard, Guards, Kind, Observer, Past, Rest, Verdict, View, text
from rltriage.rules.conditions.limits import renewed
from rltriage.rules.conditions.noise import sorted_median

QUIET = 8
"""Rows for which a value that is no spike may rest."""


class Neighbourhood(Observer):
    """The last |values| before the newest, in order of arrival; quiet ones stay out.

    They are sorted when somebody asks, which at most rows nobody does.
    """

    __slots__ = ("_sorted", "arrival", "ignore", "latest", "peak", "size")

    def __init__(self, size: int, ignore: float) -> None:
        self.size = size
        self.ignore = ignore
        self.arrival = array("d")
        self._sorted: list[float] | None = None
        self.peak = 0.0
        self.latest: float | None = None

    def push(self, value: float) -> None:
        """Take one observation; the one before it joins the neighbourhood."""
        before = self.latest
        if before is not None and before >= self.ignore * self.peak:
            self.arrival.append(before)
            if len(self.arrival) > self.size:
                del self.arrival[0]
            self._sorted = None
        self.latest = latest = abs(value)
        if latest > self.peak:
            self.peak = latest

    @property
    def reach(self) -> int:
        """The neighbourhood and the newest value."""
        return self.size + 1

    def rewind(self, values: Sequence[float], step: int) -> None:
        """Start again from the surviving values; the peak is kept."""
        del self.arrival[:]
        self._sorted = None
        self.latest = None
        for value in values:
            self.push(value)

    @property
    def ordered(self) -> list[float]:
        """The neighbourhood from the smallest to the largest."""
        if self._sorted is None:
            self._sorted = sorted(self.arrival)
        return self._sorted

    def room(self, factor: float) -> tuple[float, float] | None:
        """An interval around all values, newest included, whose top is `factor` times its bottom; None if they are wider.

        While new values stay in it, the median is at least its bottom, so that none is beyond `factor` times the median.
        """
        values = (*self.ordered[:1], *self.ordered[-1:], self.latest or 0.0)
        least, most = min(values), max(values)
        if not 0.0 < most <= factor * least:
            return None
        bottom = min(least, math.sqrt(least * (most / factor)))
        return bottom, factor * bottom

    def least_median(self, rows: int) -> float:
        """The median is at least this for so many more values; the neighbourhood is full."""
        return self.ordered[max(0, (len(self.ordered) - 1) // 2 - rows)] if len(self.ordered) > 2 * rows else 0.0

    def median(self) -> float:
        """The median of the neighbourhood; the caller has checked that there is one."""
        return sorted_median(self.ordered)

    def deviation(self) -> float:
        """The median absolute deviation of the neighbourhood."""
        middle = sorted_median(self.ordered)
        return sorted_median(sorted(abs(value - middle) for value in self.ordered))


@dataclass(frozen=True, slots=True)
class Spike(Kind):
    """Holds in the row in which one value stands out of its running median and MAD by factor and by size.

    |v| > factor * m and |v| - m > mads * MAD and |v| >= floor, with m and MAD of the last `window` |values| before v.
    Values under `ignore` of the running maximum stay out of the window. Unknown before `min` values are in it; a value
    below the floor is no spike at once. Unknown in rows without the metric.

    spike: {metric: approx_kl, floor: 0.02}
    """

    kind: ClassVar[str] = "spike"

    metric: str = field(metadata={"help": "the metric that is judged"})
    floor: float = field(default=0.0, metadata={"help": "the smallest |value| that counts", "minimum": 0})
    factor: float = field(default=5.0, metadata={"help": "times the running median", "minimum": 1})
    mads: float = field(default=6.0, metadata={"help": "median absolute deviations above it", "minimum": 0})
    window: int = field(default=20, metadata={"help": "values that make the neighbourhood", "minimum": 3, "maximum": 512})
    min: int = field(default=10, metadata={"help": "values needed before the first verdict", "minimum": 2})
    ignore: float = field(default=0.02, metadata={"help": "share of the running maximum below which values stay out"})

    def problems(self) -> list[str]:
        """A minimum above the window could never be met."""
        return ["min must be at most window"] if self.min > self.window else []

    def metrics(self) -> frozenset[str]:
        """The judged metric."""
        return frozenset((self.metric,))

    @property
    def cost(self) -> int:
        """Mostly one comparison with the floor."""
        return 1

    def bind(self, view: View) -> Check:
        """Compile; the deviation is computed only for values beyond the factor."""
        tracked, floor, factor, mads, minimum = self._around(view), self.floor, self.factor, self.mads, self.min
        fresh = view.fresh(self.metric)

        def check(past: Past) -> bool | None:
            around = tracked(past)
            value = around.latest
            if value is None or len(around.arrival) < minimum or not fresh(past):
                return None
            if value < floor:
                return False
            middle = around.median()
            return value > factor * middle and value - middle > mads * around.deviation()

        return check

    def rest(self, view: View) -> Rest:
        """While the newest value is below the floor, or as near to its neighbourhood as its neighbourhood to itself.

        In a wider one for some rows, while values are too small for what the median can become in them.
        """
        tracked, logged, floor = self._around(view), view.count(self.metric), self.floor
        below = nextafter(floor, -inf)

        def rest(past: Past) -> Guards | None:
            around = tracked(past)
            value = around.latest
            if value is None or not logged(past):
                return (renewed(self.metric),)
            if value < floor:
                return (Guard(self.metric, -below, below),) if len(around.arrival) >= self.min else None
            if len(around.arrival) < self.window:
                return None
            room = around.room(self.factor)
            if room is not None and room[0] <= value <= room[1]:
                return (Guard(self.metric, *room),)
            bound = self.factor * around.least_median(QUIET)
            return (Guard(self.metric, -bound, bound), Guard(ROWS, 0.0, QUIET)) if value <= bound else None

        return rest

    def _around(self, view: View) -> Callable[[Past], Neighbourhood]:
        size, ignore = self.window, self.ignore
        return view.track(self.metric, ("neighbourhood", size, ignore), lambda past: Neighbourhood(size, ignore))

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        around, floor, factor, mads, minimum = self._around(view)(past), self.floor, self.factor, self.mads, self.min
        value = around.latest
        if value is None or len(around.arrival) < minimum:
            reason = f"{self.metric}: {len(around.arrival)} of {minimum} values before it"
            return Verdict(None, {} if value is None else {"value": value}, reason)
        middle, deviation = around.median(), around.deviation()
        values = {"value": value, "median": middle, "mad": deviation}
        reason = (
            f"|{self.metric}| = {text(value)}, median {text(middle)} (needs {factor:g} x), MAD {text(deviation)} "
            f"(needs {mads:g} above), floor {floor:g}"
        )
        return Verdict(view.check(self)(past), values, reason)
