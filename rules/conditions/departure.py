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
        return (
            []
            if self.factor is not None or self.by is not None
            else ["nothing says how far: add `factor: 2` (times its start) or `by: 0.1` (an amount)"]
        )

    def metrics(self) -> frozenset[str]:
        """The judged metric and those of the limits."""
        parts = (term.metrics() for term in (self.by, self.reach) if term is not None)
        return frozenset((self.metric,)).union(*parts)

    def bind(self, view: View) -> Check:
        """Compile the comparison with the start."""
        count, enough = view.count(self.metric), self.baseline + self.window
        return left_start(
            self._start(view), self._now(view), count, enough, self.direction, self.factor, self.by, self.reach, view
        )

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


def left_start(
    start: Reader,
    now: Reader,
    count: Callable[[], int],
    enough: int,
    direction: str,
    factor: float | None,
    by: Term | None,
    reach: Term | None,
    view: View,
) -> Check:
    """The comparison of now with start, shared by departure and divergence."""
    sign = 1.0 if direction == "up" else -1.0
    fixed = Fixed(start, count, enough, sign, factor, by, reach)
    amount = by.bind(view) if by is not None and by.constant is None else None
    level = reach.bind(view) if reach is not None and reach.constant is None else None
    if amount is None and level is None:
        return _plain(now, fixed, sign)

    def check() -> bool | None:
        first, current, least = start(), now(), fixed.level()
        if first is None or current is None or least is None:
            return None
        if sign * current < least:
            return False
        if amount is not None:
            change = amount()
            if change is None:
                return None
            if sign * (current - first) < change:
                return False
        if level is None:
            return True
        limit = level()
        return None if limit is None else sign * current >= sign * limit

    return check


def _plain(now: Reader, fixed: Fixed, sign: float) -> Check:
    """All limits are numbers, as in most rules: one comparison with the strictest."""

    def check(now: Reader = now, fixed: Fixed = fixed, sign: float = sign) -> bool | None:
        least = fixed.known
        if least is None:
            least = fixed.level()
        current = now()
        return None if current is None or least is None else sign * current >= least

    return check


class Fixed:
    """The strictest of the limits that are plain numbers; it never changes once the start is complete."""

    __slots__ = ("by", "count", "enough", "factor", "known", "reach", "sign", "start")

    def __init__(
        self,
        start: Reader,
        count: Callable[[], int],
        enough: int,
        sign: float,
        factor: float | None,
        by: Term | None,
        reach: Term | None,
    ) -> None:
        self.start, self.count, self.enough = start, count, enough
        self.sign, self.factor = sign, factor
        self.by = None if by is None else by.constant
        self.reach = None if reach is None else reach.constant
        self.known: float | None = None

    def level(self) -> float | None:
        """In the direction of the departure (times the sign); None before baseline + window observations."""
        if self.known is None:
            first = self.start()
            if first is None or self.count() < self.enough:
                return None
            levels = [-inf]
            levels += [] if self.factor is None else [self.sign * self.factor * first]
            levels += [] if self.by is None else [self.sign * first + self.by]
            levels += [] if self.reach is None else [self.sign * self.reach]
            self.known = max(levels)
        return self.known


def limits(factor: float | None, by: Term | None) -> str:
    """The limits as reasons print them."""
    parts = ([f"{factor:g} x its start"] if factor is not None else []) + (
        [f"{by} from its start"] if by is not None else []
    )
    return "needs " + " and ".join(parts)
