"""A metric has left its own start."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Literal, NamedTuple

from rltriage.rules.conditions.base import (
    Check,
    Guards,
    Kind,
    Passing,
    Past,
    Reader,
    Rest,
    Verdict,
    View,
    known,
    never,
    text,
)
from rltriage.rules.conditions.limits import renewed
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
        return self._leaving(view).bind(view)

    def rest(self, view: View) -> Rest:
        """While the newest value does not reach the limit, once the start is known."""
        return self._leaving(view).rest(view)

    def _leaving(self, view: View) -> Leaving:
        window, enough = (self.window, self.stat), self.baseline + self.window
        limits = (self.factor, self.by, self.reach)
        return Leaving(self.metric, self._start(view), enough, window, self.direction, limits, self.abs)

    def _start(self, view: View) -> Reader:
        return Term(metric=self.metric, stat="start", baseline=self.baseline, abs=self.abs).bind(view)

    def _now(self, view: View) -> Reader:
        return Term(metric=self.metric, window=Window(self.window, self.stat), abs=self.abs).bind(view)

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        start, now, enough = self._start(view)(past), self._now(view)(past), self.baseline + self.window
        reason = f"{self.metric}: {text(start)} -> {text(now)} ({limits(self.factor, self.by)})"
        seen = view.count(self.metric)(past)
        if seen < enough:
            reason += f"; {seen} of {enough} observations"
        return Verdict(view.check(self)(past), known(start=start, now=now), reason)


def distance_problems(factor: float | None, by: Term | None) -> list[str]:
    """What is wrong with a comparison with the start that does not say how far."""
    if factor is not None or by is not None:
        return []
    return ["nothing says how far: add `factor: 2` (times its start) or `by: 0.1` (an amount)"]


class Leaving(NamedTuple):
    """The comparison of now with start, shared by departure and divergence. `limits` are factor, by and reach."""

    metric: str
    start: Reader
    enough: int
    window: tuple[int, WindowStat]
    direction: str
    limits: tuple[float | None, Term | None, Term | None]
    absolute: bool = False

    def bind(self, view: View) -> Check:
        """Whether now has reached the strictest of the limits that are known, if all are."""
        reached = view.passes(self._passing, self._limit(view))
        terms = [term.bind(view) for term in self.limits[1:] if term is not None and term.constant is None]
        if not terms:
            return reached

        def check(past: Past) -> bool | None:
            holds = reached(past)
            return None if holds and any(read(past) is None for read in terms) else holds

        return check

    def rest(self, view: View) -> Rest:
        """While the newest value does not reach a limit that stays where it is."""
        lasting = [term.lasting(view) for term in self.limits[1:] if term is not None]
        if None in lasting:
            return never
        logged, limit = view.count(self.metric), self._limit(view)
        kept = view.keeps(self._passing, limit)

        def rest(past: Past) -> Guards | None:
            if not logged(past):
                return (renewed(self.metric),)
            stays = limit(past) is not None and all(each is None or each(past) for each in lasting)
            return kept(past) if stays else None

        return rest

    @property
    def _passing(self) -> Passing:
        size, stat = self.window
        word = "at_least" if self.direction == "up" else "at_most"
        return Passing(self.metric, size, stat, size, word, self.absolute)

    def _limit(self, view: View) -> Reader:
        """The level to reach in the direction of the departure; None before there are enough observations."""
        start, count, enough, (factor, by, reach) = self.start, view.count(self.metric), self.enough, self.limits
        sign = 1.0 if self.direction == "up" else -1.0
        amount, level = (None if by is None else by.bind(view)), (None if reach is None else reach.bind(view))

        def limit(past: Past) -> float | None:
            first = start(past)
            if first is None or count(past) < enough:
                return None
            strictest = -inf if factor is None else sign * factor * first
            change, bound = (None if amount is None else amount(past)), (None if level is None else level(past))
            if change is not None:
                strictest = max(strictest, sign * first + change)
            if bound is not None:
                strictest = max(strictest, sign * bound)
            return sign * strictest

        return limit


def limits(factor: float | None, by: Term | None) -> str:
    """The limits as reasons print them."""
    parts = ([f"{factor:g} x its start"] if factor is not None else []) + (
        [f"{by} from its start"] if by is not None else []
    )
    return "needs " + " and ".join(parts)
