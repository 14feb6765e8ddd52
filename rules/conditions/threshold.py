"""A metric, or a statistic of it, against a limit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import (
    Check,
    Guard,
    Guards,
    Kind,
    Passing,
    Past,
    Reader,
    Rest,
    Verdict,
    View,
    never,
    text,
)
from rltriage.rules.conditions.limits import apart, renewed, side, unequal
from rltriage.rules.conditions.spans import rest_apart
from rltriage.rules.conditions.terms import Stat, Term, Window

LIMITS = ("above", "at_least", "below", "at_most", "equals", "differs")
FINAL = {
    ("count", "below"),
    ("count", "at_most"),
    ("highest", "below"),
    ("highest", "at_most"),
    ("best", "below"),
    ("best", "at_most"),
    ("lowest", "above"),
    ("lowest", "at_least"),
}
"""Comparisons that never hold again once they do not: what is counted never shrinks."""
WORDS = {
    "above": "above",
    "at_least": "at or above",
    "below": "below",
    "at_most": "at or below",
    "equals": "equal to",
    "differs": "different from",
}


@dataclass(frozen=True, slots=True)
class Threshold(Kind):
    """Holds when a metric, or its statistic, is above, below, equal to or different from a limit.

    The left side is `metric` with `stat`, `window`, `abs` as in every operand; the limit is a number, `{config: lr,
    times: 2}` or `{metric: x, times: 1.5}`. `above`/`below` are strict, `at_least`/`at_most` are not. `equals` means |x
    - limit| <= tolerance, `differs` |x - limit| > tolerance. Unknown while a side is.

    threshold: {metric: logp_gap, stat: start, min: 1, above: 0.05}
    """

    kind: ClassVar[str] = "threshold"

    metric: str = field(metadata={"help": "the metric that is judged"})
    stat: Stat = field(default="last", metadata={"help": "a statistic over the segment so far"})
    window: Window | None = field(default=None, metadata={"help": "a statistic over the last rows that have it: {last: 5}"})
    baseline: int = field(default=5, metadata={"help": "observations that make `start`", "minimum": 1, "maximum": 512})
    recent: int = field(
        default=5, metadata={"help": "observations of `now`, `best`, `gain_z`", "minimum": 1, "maximum": 512}
    )
    min: int | None = field(default=None, metadata={"help": "`start` from fewer observations already", "minimum": 1})
    max_age: int | None = field(default=None, metadata={"help": "unknown when older than this many rows", "minimum": 0})
    abs: bool = field(default=False, metadata={"help": "judge the absolute value"})
    times: float = field(default=1.0, metadata={"help": "a factor on the left side"})
    plus: Term | None = field(default=None, metadata={"help": "another operand to add to the left side"})
    above: Term | None = field(default=None, metadata={"help": "holds when greater", "one_of_group": "limit"})
    at_least: Term | None = field(default=None, metadata={"help": "holds when greater or equal", "one_of_group": "limit"})
    below: Term | None = field(default=None, metadata={"help": "holds when less", "one_of_group": "limit"})
    at_most: Term | None = field(default=None, metadata={"help": "holds when less or equal", "one_of_group": "limit"})
    equals: Term | None = field(default=None, metadata={"help": "holds within tolerance", "one_of_group": "limit"})
    differs: Term | None = field(default=None, metadata={"help": "holds outside tolerance", "one_of_group": "limit"})
    tolerance: float = field(default=0.0, metadata={"help": "for equals and differs", "minimum": 0})

    def problems(self) -> list[str]:
        """Exactly one limit; one statistic."""
        given = [name for name in LIMITS if getattr(self, name) is not None]
        found = []
        if not given:
            found.append(f"the threshold has no limit: add one of {', '.join(LIMITS)}, such as `above: 0.5`")
        elif len(given) > 1:
            found.append(f"{' and '.join(f'`{name}`' for name in given)} are several limits: write a threshold for each")
        if self.tolerance and given and given[0] not in ("equals", "differs"):
            found.append("tolerance needs equals or differs")
        return found + self.left.problems()

    @property
    def left(self) -> Term:
        """The judged side as an operand."""
        shared = ("metric", "stat", "window", "baseline", "recent", "min", "max_age", "abs", "times", "plus")
        return Term(**{name: getattr(self, name) for name in shared})

    @property
    def limit(self) -> tuple[str, Term]:
        """Which comparison, and with what."""
        return next((name, term) for name in LIMITS if (term := getattr(self, name)) is not None)

    def metrics(self) -> frozenset[str]:
        """The judged metric and those of the limit."""
        return self.left.metrics() | self.limit[1].metrics()

    @property
    def cost(self) -> int:
        """That of both sides."""
        return self.left.cost + self.limit[1].cost

    def bind(self, view: View) -> Check:
        """Compile the comparison; a plain number becomes a constant."""
        name, limit = self.limit
        constant, passing, extreme = limit.constant, self._passing(), self._extreme()
        bound = limit.bind(view) if constant is None else constant
        if passing is not None:
            return view.passes(passing, bound)
        check = _compare(name, self.left.bind(view), limit.bind(view), self.tolerance, constant)
        return check if extreme is None else _both(view.passes(extreme, bound), check)

    def rest(self, view: View) -> Rest:
        """While the newest value stays on its side of a limit that stays where it is."""
        name, limit = self.limit
        lasting, own, logged = limit.lasting(view), self.left.lasting(view), view.count(self.metric)
        if lasting is None:
            return rest_apart(name, self.left, limit, view) if name in LIMITS[:4] else never
        check = view.check(self)
        passing, extreme, bound = self._passing(), self._extreme(), limit.bind(view)
        if passing is not None:
            kept = view.keeps(passing, bound)
        elif self._is_gain:
            kept = view.gain_keeps(self.metric, self.baseline, self.recent, bound)
        else:
            kept = rest_apart(name, self.left, limit, view) if name in LIMITS[:4] else never
        if extreme is not None:
            kept = _while_false(view.passes(extreme, bound), view.keeps(extreme, bound))
        newest = view.last(self.metric) if self._is_newest else None
        final = self.times == 1.0 and self.plus is None and not self.abs and (self.stat, name) in FINAL

        def rest(past: Past) -> Guards | None:
            if not logged(past):
                return (renewed(self.metric),)
            if not lasting(past):
                return None
            level = bound(past)
            if level is None:
                return ()  # a config fact is not known
            if (final and check(past) is False) or (own is not None and own(past)):
                return ()
            return kept(past) if newest is None else self._beside(newest(past), level)

        return rest

    def _beside(self, value: float | None, bound: float) -> Guards | None:
        """The newest value stays on its side of the limit."""
        name = self.limit[0]
        if value is None:
            return None
        if name in LIMITS[:4]:
            return (Guard(self.metric, *side(name, bound, value, self.abs)),)
        if self.abs:
            return None
        if self.tolerance:
            return (Guard(self.metric, *apart(value, bound, self.tolerance)),)
        return (Guard(self.metric, *unequal(value, bound)),)

    def _extreme(self) -> Passing | None:
        """Of an extreme of a window that has to equal a limit: what it has to pass at least."""
        words = {"max": "at_most", "min": "at_least"}
        window, plain = self.window, self.times == 1.0 and self.plus is None and not (self.tolerance or self.abs)
        if window is None or window.stat not in words or window.skip or not plain or self.limit[0] != "equals":
            return None
        return Passing(self.metric, window.last, window.stat, window.min or window.last, words[window.stat])

    @property
    def _is_newest(self) -> bool:
        """Whether the left side is the newest value or its size, and nothing else."""
        window = self.window is None or (self.window.last == 1 and not self.window.skip)
        return window and self.stat == "last" and self.max_age is None and self.times == 1.0 and self.plus is None

    @property
    def _is_gain(self) -> bool:
        """Whether the gain is compared with a limit, and nothing else."""
        plain = self.max_age is None and self.times == 1.0 and self.plus is None and not self.abs
        return self.stat == "gain_z" and self.limit[0] in LIMITS[:4] and plain

    def _passing(self) -> Passing | None:
        """The comparison where the left side is the statistic of a window of several, and nothing else."""
        window = self.window if self.stat != "now" else Window(self.recent, "median", self.min)
        if window is None or window.skip or window.last == 1 or self.max_age is not None:
            return None
        name = self.limit[0]
        if name not in LIMITS[:4] or self.times != 1.0 or self.plus is not None:
            return None
        return Passing(self.metric, window.last, window.stat, window.min or window.last, name, self.abs)

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        left = self.left
        name, limit = self.limit
        value, bound = left.bind(view)(past), limit.bind(view)(past)
        values = {} if value is None else {str(left): value}
        if bound is not None and limit.constant is None:
            values["limit"] = bound
        reason = f"{left} = {text(value)}, limit: {WORDS[name]} {limit}"
        return Verdict(
            view.check(self)(past), values, reason if limit.constant is not None else f"{reason} = {text(bound)}"
        )


def _compare(name: str, read: Reader, other: Reader, tolerance: float, constant: float | None) -> Check:
    """The check of one comparison: against a constant where it is one, which most rules have."""
    if name in ("equals", "differs"):
        return _near(read, other, tolerance, name == "equals")
    return _general(name, read, other) if constant is None else _constant(name, read, constant)


def _both(one: Check, other: Check) -> Check:
    """The second where the first, which is cheaper and true whenever the second is, holds."""

    def both(past: Past) -> bool | None:
        holds = one(past)
        return other(past) if holds else holds

    return both


def _while_false(check: Check, rest: Rest) -> Rest:
    return lambda past: rest(past) if check(past) is False else None


def _constant(name: str, read: Reader, limit: float) -> Check:
    def above(past: Past) -> bool | None:
        value = read(past)
        return None if value is None else value > limit

    def at_least(past: Past) -> bool | None:
        value = read(past)
        return None if value is None else value >= limit

    def below(past: Past) -> bool | None:
        value = read(past)
        return None if value is None else value < limit

    def at_most(past: Past) -> bool | None:
        value = read(past)
        return None if value is None else value <= limit

    return above if name == "above" else at_least if name == "at_least" else below if name == "below" else at_most


def _general(name: str, read: Reader, other: Reader) -> Check:
    strict, sign = name in ("above", "below"), 1.0 if name in ("above", "at_least") else -1.0

    def beyond(past: Past) -> bool | None:
        value, limit = read(past), other(past)
        if value is None or limit is None:
            return None
        return sign * value > sign * limit if strict else sign * value >= sign * limit

    return beyond


def _near(read: Reader, other: Reader, tolerance: float, equal: bool) -> Check:
    def near(past: Past) -> bool | None:
        value, limit = read(past), other(past)
        if value is None or limit is None:
            return None
        return (value == limit or abs(value - limit) <= tolerance) is equal

    return near
