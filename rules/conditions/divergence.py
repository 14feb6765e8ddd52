"""Two metrics that should move together have come apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rltriage.rules.conditions.base import Check, Kind, Past, Rest, Verdict, View, known, text
from rltriage.rules.conditions.departure import Leaving, distance_problems, limits
from rltriage.rules.conditions.terms import Term, WindowStat


@dataclass(frozen=True, slots=True)
class Divergence(Kind):
    """Holds when the ratio or difference of two metrics has widened against its own start.

    d = left / right (`mode: ratio`) or left - right (`mode: difference`) in each row that has both (a ratio only where
    right is not 0). start = median of the first `baseline` values of d, now = `stat` of the last `window`. Holds when
    every limit given is met: now >= factor * start; now - start >= by; now >= reach. With `direction: down` the mirror
    image. Unknown before `baseline` + `window` values.

    divergence: {left: length_fail, right: length_pass, mode: ratio, factor: 1.5}
    """

    kind: ClassVar[str] = "divergence"

    left: str = field(metadata={"help": "the metric that runs away"})
    right: str = field(metadata={"help": "the metric that stays"})
    mode: Literal["ratio", "difference"] = field(default="difference", metadata={"help": "left / right or left - right"})
    direction: Literal["up", "down"] = field(default="up", metadata={"help": "which way it widens"})
    factor: float | None = field(default=None, metadata={"help": "times its start", "one_of_group": "limit"})
    by: Term | None = field(default=None, metadata={"help": "an amount from its start", "one_of_group": "limit"})
    reach: Term | None = field(default=None, metadata={"help": "an absolute level to reach as well"})
    baseline: int = field(default=5, metadata={"help": "values that make the start", "minimum": 1, "maximum": 512})
    window: int = field(default=5, metadata={"help": "values that make now", "minimum": 1, "maximum": 512})
    stat: WindowStat = field(default="median", metadata={"help": "what is taken of the window"})

    def problems(self) -> list[str]:
        """At least one limit against the start."""
        return distance_problems(self.factor, self.by)

    def metrics(self) -> frozenset[str]:
        """Both metrics and those of the limits."""
        parts = (term.metrics() for term in (self.by, self.reach) if term is not None)
        return frozenset((self.left, self.right)).union(*parts)

    def bind(self, view: View) -> Check:
        """Compile over the derived series, which the history keeps like a metric."""
        return self._leaving(view).bind(view)

    def rest(self, view: View) -> Rest:
        """While the newest value does not reach the limit, once the start is known."""
        return self._leaving(view).rest(view)

    def _leaving(self, view: View) -> Leaving:
        name = view.derived(self.left, self.right, self.mode)
        window, enough = (self.window, self.stat), self.baseline + self.window
        return Leaving(
            name, view.start(name, self.baseline), enough, window, self.direction, (self.factor, self.by, self.reach)
        )

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        name = view.derived(self.left, self.right, self.mode)
        start, now = view.start(name, self.baseline)(past), view.window(name, self.window, self.stat)(past)
        sign = "/" if self.mode == "ratio" else "-"
        reason = f"{self.left} {sign} {self.right}: {text(start)} -> {text(now)} ({limits(self.factor, self.by)})"
        return Verdict(view.check(self)(past), known(start=start, now=now), reason)
