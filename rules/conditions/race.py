"""One metric falls while another does not rise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Guards, Kind, Passing, Past, Reader, Rest, Verdict, View, known, text
from rltriage.rules.conditions.equal import Spread
from rltriage.rules.conditions.terms import Term


@dataclass(frozen=True, slots=True)
class Race(Kind):
    """Holds when one metric has fallen from its start while another has not risen beyond its noise.

    `1 - now / start >= drop` of `falling`, gain z of `rising` below `gain_z`, and `rising` not within `near` of its
    `ceiling` (now < (1 - near) * ceiling; an unknown ceiling does not block). start = median of the first `baseline`
    observations, now = median of the last `window`. Unknown before both exist, while the start of `falling` is not
    positive, and while `rising` never varied.

    race: {falling: entropy, rising: reward, drop: 0.5, ceiling: {config: reward_max}}
    """

    kind: ClassVar[str] = "race"

    falling: str = field(metadata={"help": "the metric that has fallen"})
    rising: str = field(metadata={"help": "the metric that should have risen"})
    drop: float = field(default=0.5, metadata={"help": "share of its start that `falling` has lost"})
    gain_z: float = field(default=2.0, metadata={"help": "gain z of `rising` below this counts as not risen"})
    ceiling: Term | None = field(default=None, metadata={"help": "the best value that `rising` can reach"})
    near: float = field(default=0.1, metadata={"help": "within this share of the ceiling there is nothing left to gain"})
    baseline: int = field(default=5, metadata={"help": "observations that make the start", "minimum": 1})
    window: int = field(default=5, metadata={"help": "observations that make now", "minimum": 1})

    def metrics(self) -> frozenset[str]:
        """Both metrics and those of the ceiling."""
        own = frozenset((self.falling, self.rising))
        return own if self.ceiling is None else own | self.ceiling.metrics()

    def bind(self, view: View) -> Check:
        """Compile; the cheap half first."""
        gain, now = view.gain_z(self.rising, self.baseline, self.window), view.window(self.rising, self.window, "median")
        spread = view.track(self.rising, ("spread",), Spread.of)
        top = None if self.ceiling is None else self.ceiling.bind(view)
        fallen, limit, below = view.passes(self._passing, self._level(view)), self.gain_z, 1.0 - self.near

        def check(past: Past) -> bool | None:
            holds = fallen(past)
            if not holds:
                return holds
            z = gain(past)
            if z is None or not spread(past).varied:
                return None
            if z >= limit:
                return False
            ceiling, reached = (None if top is None else top(past)), now(past)
            return ceiling is None or reached is None or reached < ceiling - (1.0 - below) * abs(ceiling)

        return check

    def rest(self, view: View) -> Rest:
        """While the newest value of `falling` has not fallen."""
        level = self._level(view)
        fallen, kept = view.passes(self._passing, level), view.keeps(self._passing, level)

        def rest(past: Past) -> Guards | None:
            return kept(past) if fallen(past) is False else None

        return rest

    @property
    def _passing(self) -> Passing:
        return Passing(self.falling, self.window, "median", self.window, "at_most")

    def _level(self, view: View) -> Reader:
        """What `falling` has to fall to; None while its start is unknown or not positive."""
        start, count = view.start(self.falling, self.baseline), view.count(self.falling)
        kept, enough = 1.0 - self.drop, self.baseline + self.window

        def level(past: Past) -> float | None:
            first = start(past)
            return None if first is None or first <= 0 or count(past) < enough else kept * first

        return level

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        first = view.start(self.falling, self.baseline)(past)
        current = view.window(self.falling, self.window, "median")(past)
        z = view.gain_z(self.rising, self.baseline, self.window)(past)
        ceiling = None if self.ceiling is None else self.ceiling.bind(view)(past)
        values = known(start=first, now=current, gain_z=z, ceiling=ceiling)
        reason = (
            f"{self.falling} {text(first)} -> {text(current)} (needs {self.drop:.0%} less), "
            f"gain z of {self.rising} {text(z)} (limit {self.gain_z:g})"
        )
        if not view.track(self.rising, ("spread",), Spread.of)(past).varied:
            reason += f"; {self.rising} never varied"
        return Verdict(view.check(self)(past), values, reason)
