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
        return [] if self.factor is not None or self.by is not None else ["give factor or by"]

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
    """The comparison of now with start, shared by departure and divergence.

    Once the start is complete it never changes, so that limits that are plain numbers make one level to compare with.
    """
    sign = 1.0 if direction == "up" else -1.0
    amounts = [term.bind(view) for term in (by,) if term is not None and term.constant is None]
    levels = [term.bind(view) for term in (reach,) if term is not None and term.constant is None]
    level: float | None = None

    def fixed() -> float | None:
        """The strictest of the constant limits, in the direction of the departure."""
        first = start()
        if first is None or count() < enough:
            return None
        limits = [] if factor is None else [sign * factor * first]
        limits += [sign * first + by.constant] if by is not None and by.constant is not None else []
        limits += [sign * reach.constant] if reach is not None and reach.constant is not None else []
        return max(limits, default=-inf)

    def check() -> bool | None:
        nonlocal level
        if level is None:
            level = fixed()
        current = now()
        if level is None or current is None:
            return None
        if sign * current < level:
            return False
        return True if plain else rest(current)

    def rest(current: float) -> bool | None:
        """The limits that can change from row to row."""
        first = start()
        for amount in amounts:
            least = amount()
            if least is None or first is None:
                return None
            if sign * (current - first) < least:
                return False
        for bound in levels:
            value = bound()
            if value is None:
                return None
            if sign * current < sign * value:
                return False
        return True

    plain = not amounts and not levels
    return check


def limits(factor: float | None, by: Term | None) -> str:
    """The limits as reasons print them."""
    parts = ([f"{factor:g} x its start"] if factor is not None else []) + (
        [f"{by} from its start"] if by is not None else []
    )
    return "needs " + " and ".join(parts)
