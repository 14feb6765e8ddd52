"""A metric has left its own start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Literal

from rltriage.rules.conditions.base import Check, Kind, Reader, Verdict, View, known, text
from rltriage.rules.conditions.terms import Term, Window, WindowStat


@dataclass(frozen=True, slots=True)
class Departure(Kind):
    """Holds when the last few observations have left the run's own start by a factor, an amount, or both.

    start = median of the first `baseline` observations of the segment, now = `stat` of the last `window`. Holds when
    every limit given is met: now >= factor * start; now - start >= by; now >= reach. With `direction: down`: now <=
    factor * start; start - now >= by; now <= reach. With `abs` on |x|. Unknown before baseline + window observations.

    departure: {metric: entropy, direction: up, factor: 2, by: 0.1}
    """

    kind: ClassVar[str] = "departure"

    metric: str = field(metadata={"help": "the metric that is judged"})
    direction: Literal["up", "down"] = field(default="up", metadata={"help": "which way it leaves"})
    factor: float | None = field(default=None, metadata={"help": "times its start", "one_of_group": "limit"})
    by: Term | None = field(default=None, metadata={"help": "an amount from its start", "one_of_group": "limit"})
    reach: Term | None = field(default=None, metadata={"help": "an absolute level to reach as well"})
    baseline: int = field(default=5, metadata={"help": "observations that make the start", "minimum": 1, "maximum": 512})
    window: int = field(default=5, metadata={"help": "observations that make now", "minimum": 1, "maximum": 512})
    stat: WindowStat = field(default="median", metadata={"help": "what is taken of the window"})
    abs: bool = field(default=False, metadata={"help": "judge the absolute values"})

    def problems(self) -> list[str]:
        """At least one limit against the start."""
        return distance_problems(self.factor, self.by)

    def metrics(self) -> frozenset[str]:
        """The judged metric and those of the limits."""
        parts = (term.metrics() for term in (self.by, self.reach) if term is not None)
        return frozenset((self.metric,)).union(*parts)

    def bind(self, view: View) -> Check:
        """Compile the comparison with the start."""
        start, count, enough = self._start(view), view.count(self.metric), self.baseline + self.window
        fixed = Fixed(start, count, enough, self.direction, self.factor, self.by, self.reach)
        return left_start(view, self.metric, (self.window, self.stat, None), fixed, self.abs)

    def _start(self, view: View) -> Reader:
        return Term(metric=self.metric, stat="start", baseline=self.baseline, abs=self.abs).bind(view)

    def _now(self, view: View) -> Reader:
        return Term(metric=self.metric, window=Window(self.window, self.stat), abs=self.abs).bind(view)

    def explain(self, view: View) -> Verdict:
        """The numbers that the check compares."""
        start, now, enough = self._start(view)(), self._now(view)(), self.baseline + self.window
        reason = f"{self.metric}: {text(start)} -> {text(now)} ({limits(self.factor, self.by)})"
        seen = view.count(self.metric)()
        if seen < enough:
            reason += f"; {seen} of {enough} observations"
        return Verdict(view.check(self)(), known(start=start, now=now), reason)


def distance_problems(factor: float | None, by: Term | None) -> list[str]:
    """What is wrong with a comparison with the start that does not say how far."""
    if factor is not None or by is not None:
        return []
    return ["nothing says how far: add `factor: 2` (times its start) or `by: 0.1` (an amount)"]


def left_start(
    view: View, metric: str, window: tuple[int, WindowStat, int | None], fixed: Fixed, absolute: bool = False
) -> Check:
    """The comparison of now with start, shared by departure and divergence."""
    sign, by, reach = fixed.sign, fixed.by, fixed.reach
    if (by is None or by.constant is not None) and (reach is None or reach.constant is not None):
        return view.passes(metric, window, "at_least" if sign > 0 else "at_most", fixed.limit, absolute)
    size, stat, minimum = window
    now = Term(metric=metric, window=Window(size, stat, minimum), abs=absolute).bind(view)
    start, limit = fixed.start, fixed.limit
    amount = by.bind(view) if by is not None and by.constant is None else None
    level = reach.bind(view) if reach is not None and reach.constant is None else None

    def check() -> bool | None:
        first, current, least = start(), now(), limit()
        if first is None or current is None or least is None:
            return None
        if sign * current < sign * least:
            return False
        if amount is not None:
            change = amount()
            if change is None:
                return None
            if sign * (current - first) < change:
                return False
        if level is None:
            return True
        bound = level()
        return None if bound is None else sign * current >= sign * bound

    return check


class Fixed:
    """The strictest of the limits that are plain numbers; it never changes once the start is complete."""

    __slots__ = ("by", "count", "enough", "factor", "known", "reach", "sign", "start")

    def __init__(
        self,
        start: Reader,
        count: Callable[[], int],
        enough: int,
        direction: str,
        factor: float | None,
        by: Term | None,
        reach: Term | None,
    ) -> None:
        self.start, self.count, self.enough = start, count, enough
        self.sign = 1.0 if direction == "up" else -1.0
        self.factor, self.by, self.reach = factor, by, reach
        self.known: float | None = None

    def limit(self) -> float | None:
        """The level to reach in the direction of the departure; None before baseline + window observations."""
        if self.known is None:
            first = self.start()
            if first is None or self.count() < self.enough:
                return None
            by = None if self.by is None else self.by.constant
            reach = None if self.reach is None else self.reach.constant
            levels = [-inf]
            levels += [] if self.factor is None else [self.sign * self.factor * first]
            levels += [] if by is None else [self.sign * first + by]
            levels += [] if reach is None else [self.sign * reach]
            self.known = self.sign * max(levels)
        return self.known


def limits(factor: float | None, by: Term | None) -> str:
    """The limits as reasons print them."""
    parts = ([f"{factor:g} x its start"] if factor is not None else []) + (
        [f"{by} from its start"] if by is not None else []
    )
    return "needs " + " and ".join(parts)
