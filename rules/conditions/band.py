"""A metric against the healthy reference at the same step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rltriage.rules.conditions.base import Check, Guards, Kind, Past, Rest, Verdict, View, text


@dataclass(frozen=True, slots=True)
class Band(Kind):
    """Holds when a metric is outside the healthy reference at the same step since the start.

    The reference gives `[min - R/2, max + R/2]` of at least 10 healthy seeds, R = max - min over +-2 steps. Unknown
    without a reference, beyond its steps, and where its config facts do not match the run's.

    repeated: {when: {band: {metric: grad_norm}}, at_least: 3, of: 5}
    """

    kind: ClassVar[str] = "band"

    metric: str = field(metadata={"help": "the metric that is judged"})
    side: Literal["both", "above", "below"] = field(default="both", metadata={"help": "which side of the band counts"})

    def metrics(self) -> frozenset[str]:
        """The judged metric."""
        return frozenset((self.metric,))

    @property
    def cost(self) -> int:
        """One look-up."""
        return 1

    def bind(self, view: View) -> Check:
        """Compile the look-up in the reference."""
        last, bounds, side = view.last(self.metric), view.bounds(self.metric), self.side

        def check(past: Past) -> bool | None:
            value, band = last(past), bounds(past)
            if value is None or band is None:
                return None
            return (side != "above" and value < band[0]) or (side != "below" and value > band[1])

        return check

    def rest(self, view: View) -> Rest:
        """While no reference fits the run."""

        def rest(past: Past) -> Guards | None:
            return None if past.has_reference() else ()

        return rest

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        last, bounds = view.last(self.metric), view.bounds(self.metric)
        value, band = last(past), bounds(past)
        values = {} if value is None else {self.metric: value}
        if band is None:
            return Verdict(None, values, f"no healthy reference for {self.metric} at this step")
        values |= {"low": band[0], "high": band[1]}
        return Verdict(
            view.check(self)(past), values, f"{self.metric} = {text(value)}, healthy {text(band[0])} to {text(band[1])}"
        )
