"""A metric that is exactly one value where it cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Baseline, Check, Guard, Guards, Kind, Past, Rest, Verdict, View
from rltriage.rules.conditions.limits import unequal

COARSE = 1e-5
"""A log that rounds to this or coarser cannot tell an exact value from a near one until `COARSE_MIN` observations."""
COARSE_MIN = 50
SETTLED = 5
"""Observations after which the policy can be taken to have moved where grad_norm and lr are not logged."""


class Exact(Baseline):
    """Counts the informative observations and remembers whether one differed, or with `latest` those since one did."""

    __slots__ = ("broken", "count", "equals", "gated", "latest", "past", "seen")

    def __init__(self, past: Past, equals: float, gated: bool, latest: bool) -> None:
        self.past = past
        self.equals = equals
        self.gated = gated
        self.latest = latest
        self.seen = 0
        self.count = 0
        self.broken = False

    @property
    def done(self) -> bool:
        """Another value was seen, and that is all that counts."""
        return self.broken and not self.latest

    def push(self, value: float) -> None:
        """Take one observation."""
        if self.done:
            return
        self.seen += 1
        if self.gated:
            moved = self.past.moved()
            if moved is False or (moved is None and self.seen < SETTLED):
                return
        self.broken = value != self.equals
        self.count = 0 if self.broken else self.count + 1


@dataclass(frozen=True, slots=True)
class Trivial(Kind):
    """Holds when every informative observation so far equals one exact value, at least `min` of them.

    An observation is informative when some earlier row had grad_norm > 0 and lr > 0, so that the policy can have moved;
    where those are not logged, from observation 5 on; with `informative: false` always. One other value and it can
    never hold again in this segment, unless `latest` counts from there anew. Unknown below `min`, and where the log rounds
    to 1e-5 or coarser (config fact `resolution`) below 50, with `latest` always.

    trivial: {metric: kl_ref, equals: 0, min: 3}
    """

    kind: ClassVar[str] = "trivial"

    metric: str = field(metadata={"help": "the metric that is judged"})
    equals: float = field(metadata={"help": "the exact value; -0.0 is 0"})
    min: int = field(default=3, metadata={"help": "informative observations needed", "minimum": 1})
    informative: bool = field(default=True, metadata={"help": "count only rows before which the policy can have moved"})
    latest: bool = field(default=False, metadata={"help": "count anew after another value"})

    def metrics(self) -> frozenset[str]:
        """The judged metric; grad_norm and lr are read by the history."""
        return frozenset((self.metric,))

    @property
    def cost(self) -> int:
        """One flag."""
        return 0

    def bind(self, view: View) -> Check:
        """Compile to a counter that is false for good once another value was seen."""
        minimum, certain = self.min, self._certain
        tracked = self._exact(view)
        resolution = view.resolution(self.metric)

        def check(past: Past) -> bool | None:
            exact = tracked(past)
            if exact.broken:
                return False
            if exact.count < minimum:
                return None
            if exact.count < certain:
                step = resolution(past)
                if step is not None and step >= COARSE:
                    return None
            return True

        return check

    @property
    def _certain(self) -> float:
        """Observations from which on a rounded value counts: near 0 for a while is no news after other values."""
        return math.inf if self.latest else COARSE_MIN

    def rest(self, view: View) -> Rest:
        """For good, once another value was seen; with `latest` until the exact value is back."""
        tracked, newest = self._exact(view), view.last(self.metric)

        def rest(past: Past) -> Guards | None:
            if not tracked(past).broken:
                return None
            value = newest(past)
            if not self.latest:
                return ()
            return None if value is None else (Guard(self.metric, *unequal(value, self.equals)),)

        return rest

    def _exact(self, view: View) -> Callable[[Past], Exact]:
        asked = (self.equals, self.informative, self.latest)
        return view.track(self.metric, ("exact", *asked), lambda past: Exact(past, *asked))

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        equals, minimum, exact = self.equals, self.min, self._exact(view)(past)
        values = {"observations": float(exact.count)}
        if exact.broken:
            was = "is not" if self.latest else "was not always"
            return Verdict(False, values, f"{self.metric} {was} exactly {equals:g}")
        which = "the latest" if self.latest else "all of"
        reason = f"{self.metric} exactly {equals:g} in {which} {exact.count} informative observations, needs {minimum}"
        step = view.resolution(self.metric)(past)
        coarse = f" (the log rounds to {step:g}: needs {self._certain:g})" if step is not None and step >= COARSE else ""
        return Verdict(view.check(self)(past), values, reason + coarse)
