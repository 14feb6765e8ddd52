"""The total reward against the weighted sum of its components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Guards, Kind, Past, Reader, Rest, Verdict, View, known, text
from rltriage.rules.conditions.components import Part, Parts


@dataclass(frozen=True, slots=True)
class WeightedSum(Kind):
    """Holds when a total is not (`holds: false`, the default) or is the weighted sum of its components.

    Components are the logged metrics that match a shell pattern, in the order of their first appearance; the config fact
    `weights` is a list in that order or a mapping from component name to weight. Broken means
    |total - sum| > max(tolerance, relative * |total|). Unknown without the fact, with another number of weights than
    components, and in rows that lack one of them.

    weighted_sum: {total: reward, components: ["reward/*"]}
    """

    kind: ClassVar[str] = "weighted_sum"

    components: tuple[str, ...] = field(metadata={"help": "names or shell patterns of the components"})
    total: str = field(default="reward", metadata={"help": "the metric that they add up to"})
    weights: str = field(default="reward_weights", metadata={"help": "the config fact with the weights"})
    tolerance: float = field(default=1e-3, metadata={"help": "absolute", "minimum": 0})
    relative: float = field(default=1e-2, metadata={"help": "relative to the total", "minimum": 0})
    holds: bool = field(default=False, metadata={"help": "true: holds when the identity is met"})

    def metrics(self) -> frozenset[str]:
        """The total; the components are found by pattern."""
        return frozenset((self.total,))

    def patterns(self) -> tuple[str, ...]:
        """The components."""
        return self.components

    def alternatives(self) -> tuple[frozenset[str], ...]:
        """The total and components of some pattern."""
        return tuple(frozenset((self.total, pattern)) for pattern in self.components)

    def bind(self, view: View) -> Check:
        """Compile over the components seen so far."""
        total, fresh, expected = view.last(self.total), view.fresh(self.total), self._expected(view)

        def check(past: Past) -> bool | None:
            value, other = total(past), expected(past)
            if value is None or other is None or not fresh(past):
                return None
            return (abs(value - other) <= max(self.tolerance, self.relative * abs(value))) is self.holds

        return check

    def rest(self, view: View) -> Rest:
        """While no component has been logged."""
        parts = self._parts(view)

        def rest(past: Past) -> Guards | None:
            return None if parts.of(past) else ()

        return rest

    def _parts(self, view: View) -> Parts:
        return view.once(("parts", self.components, self.total), lambda: Parts(view, self.components, self.total))

    def _expected(self, view: View) -> Reader:
        """The weighted sum of this row's components."""
        parts, weights = self._parts(view), view.fact_text(self.weights)

        def expected(past: Past) -> float | None:
            found = parts.of(past)
            factors = _weights(weights(past), found) if found else None
            if factors is None:
                return None
            result = 0.0
            for part, weight in zip(found, factors, strict=True):
                value = part.last(past)
                if value is None or not part.fresh(past):
                    return None
                result += weight * value
            return result

        return expected

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        value, other = view.last(self.total)(past), self._expected(view)(past)
        names = ", ".join(part.name for part in self._parts(view).of(past))
        reason = f"{self.total} = {text(value)}, weighted sum of {names or 'no components'} = {text(other)}"
        return Verdict(view.check(self)(past), known(total=value, sum=other), reason)


def _weights(fact: object, parts: Sequence[Part]) -> list[float] | None:
    """One weight per component, or None where the fact does not give exactly that."""
    if isinstance(fact, Mapping):
        values = [fact.get(part.name, fact.get(part.name.rpartition("/")[2])) for part in parts]
    elif isinstance(fact, Sequence) and not isinstance(fact, str):
        values = list(fact)
    else:
        return None
    if len(values) != len(parts) or any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        return None
    return [float(value) for value in values if isinstance(value, int | float)]
