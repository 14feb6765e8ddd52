"""One component of the reward falls while another rises and the total holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Guards, Kind, Past, Rest, Verdict, View, text
from rltriage.rules.conditions.components import Part, Parts


@dataclass(frozen=True, slots=True)
class Trade(Kind):
    """Holds when a reward component has fallen to a share of its start while another rises and the total does not fall.

    Some component: now <= fallen * start (start > 0) and gain z <= -`z`; another: gain z >= `z`; total: gain z > -`z`.
    Components are the logged metrics that match a shell pattern, without the total. Unknown with fewer than two of them
    and before baseline + window observations.

    trade: {components: ["reward/*"], total: reward, fallen: 0.5}
    """

    kind: ClassVar[str] = "trade"

    components: tuple[str, ...] = field(metadata={"help": "names or shell patterns of the components"})
    total: str = field(default="reward", metadata={"help": "the metric that they add up to"})
    fallen: float = field(default=0.5, metadata={"help": "share of its start that a component has fallen to"})
    z: float = field(default=2.0, metadata={"help": "standard errors that make a rise or a fall", "minimum": 0})

    def metrics(self) -> frozenset[str]:
        """The total; the components are found by pattern."""
        return frozenset((self.total,))

    def patterns(self) -> tuple[str, ...]:
        """The components."""
        return self.components

    def alternatives(self) -> tuple[frozenset[str], ...]:
        """The total and components of some pattern."""
        return tuple(frozenset((self.total, pattern)) for pattern in self.components)

    @property
    def cost(self) -> int:
        """Gains of the total and of every component."""
        return 4

    def bind(self, view: View) -> Check:
        """Compile over the components seen so far."""
        parts, total = self._parts(view), view.gain_z(self.total)
        z, fallen = self.z, self.fallen

        def fell(part: Part, past: Past) -> bool | None:
            start, now, gain = part.start(past), part.now(past), part.gain(past)
            if start is None or now is None or gain is None:
                return None
            return start > 0 and now <= fallen * start and gain <= -z

        def check(past: Past) -> bool | None:
            found = parts.of(past)
            gain = total(past) if len(found) >= 2 else None
            if gain is None:
                return None
            if gain <= -z:
                return False
            falls = [fell(part, past) for part in found]
            if True in falls:
                rises = [part.gain(past) for part in found]
                return any(rise is not None and rise >= z for rise in rises)
            return None if None in falls else False

        return check

    def rest(self, view: View) -> Rest:
        """While no component has been logged."""
        parts = self._parts(view)

        def rest(past: Past) -> Guards | None:
            return None if parts.of(past) else ()

        return rest

    def _parts(self, view: View) -> Parts:
        return view.once(("parts", self.components, self.total), lambda: Parts(view, self.components, self.total))

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        total = view.gain_z(self.total)
        values = {}
        for part in self._parts(view).of(past):
            gain = part.gain(past)
            if gain is not None:
                values[f"gain_z of {part.name}"] = gain
        listed = ", ".join(f"{name} {text(value)}" for name, value in values.items())
        reason = f"{listed or 'no components seen'}; gain_z of {self.total} {text(total(past))}"
        return Verdict(view.check(self)(past), values, reason)
