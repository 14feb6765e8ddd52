"""A metric that is exactly one value where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Baseline, Check, Guards, Kind, Past, Rest, Verdict, View

COARSE = 1e-5
"""A log that rounds to this or coarser cannot tell an exact value from a near one until `COARSE_MIN` observations."""
COARSE_MIN = 50
SETTLED = 5
"""Observations after which the policy can be taken to have moved where grad_norm and lr are not logged."""


class Exact(Baseline):
    """Counts the informative observations and remembers whether one differed."""

    __slots__ = ("broken", "count", "equals", "gated", "past", "seen")

    def __init__(self, past: Past, equals: float, gated: bool) -> None:
        self.past = past
        self.equals = equals
        self.gated = gated
        self.seen = 0
        self.count = 0
        self.broken = False

    @property
    def done(self) -> bool:
        """Another value was seen."""
        return self.broken

    def push(self, value: float) -> None:
        """Take one observation."""
        if self.broken:
            return
        self.seen += 1
        if self.gated:
            moved = self.past.moved()
            if moved is False or (moved is None and self.seen < SETTLED):
                return
        if value == self.equals:
            self.count += 1
        else:
            self.broken = True


@dataclass(frozen=True, slots=True)
class Trivial(Kind):
    """Holds when every informative observation so far equals one exact value, at least `min` of them.

    An observation is informative when some earlier row had grad_norm > 0 and lr > 0, so that the policy can have moved;
    where those are not logged, from observation 5 on; with `informative: false` always. One other value and it can
    never hold again in this segment. Unknown below `min`, and below 50 where the log rounds to 1e-5 or coarser (config
    fact `resolution`).

    trivial: {metric: kl_ref, equals: 0, min: 3}
    """

    kind: ClassVar[str] = "trivial"

    metric: str = field(metadata={"help": "the metric that is judged"})
    equals: float = field(metadata={"help": "the exact value; -0.0 is 0"})
    min: int = field(default=3, metadata={"help": "informative observations needed", "minimum": 1})
    informative: bool = field(default=True, metadata={"help": "count only rows before which the policy can have moved"})

    def metrics(self) -> frozenset[str]:
        """The judged metric; grad_norm and lr are read by the history."""
        return frozenset((self.metric,))

    @property
    def cost(self) -> int:
        """One flag."""
        return 0

    def bind(self, view: View) -> Check:
        """Compile to a counter that is false for good once another value was seen."""
        minimum = self.min
        tracked = self._exact(view)
        resolution = view.resolution(self.metric)

        def check(past: Past) -> bool | None:
            exact = tracked(past)
            if exact.broken:
                return False
            if exact.count < minimum:
                return None
            if exact.count < COARSE_MIN:
                step = resolution(past)
                if step is not None and step >= COARSE:
                    return None
            return True

        return check

    def rest(self, view: View) -> Rest:
        """For good, once another value was seen."""
        tracked = self._exact(view)

        def rest(past: Past) -> Guards | None:
            return () if tracked(past).broken else None

        return rest

    def _exact(self, view: View) -> Callable[[Past], Exact]:
        equals, gated = self.equals, self.informative
        return view.track(self.metric, ("exact", equals, gated), lambda past: Exact(past, equals, gated))

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        equals, minimum, exact = self.equals, self.min, self._exact(view)(past)
        values = {"observations": float(exact.count)}
        if exact.broken:
            return Verdict(False, values, f"{self.metric} was not always exactly {equals:g}")
        reason = f"{self.metric} exactly {equals:g} in all of {exact.count} informative observations, needs {minimum}"
        step = view.resolution(self.metric)(past)
        coarse = f" (the log rounds to {step:g}: needs {COARSE_MIN})" if step is not None and step >= COARSE else ""
        return Verdict(view.check(self)(past), values, reason + coarse)
