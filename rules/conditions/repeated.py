"""A condition that held in several of its last evaluations."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Bound, Condition, Verdict, View
from rltriage.rules.conditions.logic import Compound


@dataclass(frozen=True, slots=True)
class Repeated(Compound):
    """Holds when a condition held in at least `at_least` of its last `of` known evaluations.

    An evaluation is an observation of its metrics; unknown ones are not counted, and while the newest is unknown the
    answer is too. Before `of` evaluations the ones so far are counted.

    repeated: {when: {spike: {metric: grad_norm}}, at_least: 2, of: 10}
    """

    kind: ClassVar[str] = "repeated"

    when: Condition = field(metadata={"help": "the condition counted"})
    at_least: int = field(default=2, metadata={"help": "evaluations in which it must have held", "minimum": 1})
    of: int = field(default=5, metadata={"help": "evaluations looked at", "minimum": 1, "maximum": 512})

    def problems(self) -> list[str]:
        """More than all can never hold."""
        return ["at_least must be at most of"] if self.at_least > self.of else []

    def parts(self) -> tuple[Condition, ...]:
        """The condition counted."""
        return (self.when,)

    def bind(self, view: View) -> Bound:
        """Compile; the history runs the update at every observation, also where a combination would not ask."""
        inner = self.when.bind(view)
        held: deque[bool] = deque(maxlen=self.of)
        newest: list[bool | None] = [None]
        row = [-1]
        needed = self.at_least

        def update() -> None:
            index = view.row_index()
            if row[0] == index and newest[0] is not None:
                held.pop()
            row[0] = index
            newest[0] = inner.check()
            if newest[0] is not None:
                held.append(newest[0])

        view.each_row(self.when.metrics(), update)

        def check() -> bool | None:
            return None if newest[0] is None else held.count(True) >= needed

        def explain() -> Verdict:
            verdict = inner.explain()
            count = held.count(True)
            values = {**verdict.values, "held": float(count)}
            return Verdict(check(), values, f"held in {count} of the last {len(held)} (needs {needed}): {verdict.reason}")

        return Bound(check, explain)
