"""Kleene combinations: unknown stays unknown unless the other parts decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Condition, Kind, Verdict, View


class Compound(Kind):
    """What conditions over conditions have in common."""

    __slots__ = ()

    def parts(self) -> tuple[Condition, ...]:
        """The conditions combined."""
        raise NotImplementedError

    def metrics(self) -> frozenset[str]:
        """Every metric of every part."""
        return frozenset().union(*(part.metrics() for part in self.parts()))

    def patterns(self) -> tuple[str, ...]:
        """Every pattern of every part."""
        return tuple(pattern for part in self.parts() for pattern in part.patterns())

    @property
    def every_row(self) -> bool:
        """One part that judges every row is enough."""
        return any(part.every_row for part in self.parts())

    @property
    def timed(self) -> bool:
        """One part that time changes is enough."""
        return any(part.timed for part in self.parts())


@dataclass(frozen=True, slots=True)
class All(Compound):
    """Holds when every part holds; does not hold as soon as one part does not; unknown otherwise.

    all:
      - threshold: {metric: reward, stat: gain_z, below: 2}
      - departure: {metric: length, factor: 2}
    """

    kind: ClassVar[str] = "all"

    of: tuple[Condition, ...] = field(metadata={"help": "the parts", "minimum": 1})

    def parts(self) -> tuple[Condition, ...]:
        """The conditions combined."""
        return self.of

    @property
    def cost(self) -> int:
        """That of the part that is asked first."""
        return min(part.cost for part in self.of)

    def bind(self, view: View) -> Check:
        """Compile the cheapest part; the order in which parts are asked changes no verdict."""
        return _Every(view, self.of).check

    def settled(self, view: View) -> bool:
        """One part can never hold again."""
        return any(part.settled(view) for part in self.of)

    def explain(self, view: View) -> Verdict:
        """The parts' verdicts in a row."""
        return _joined(view.check(self)(), [part.explain(view) for part in self.of], " and ")


@dataclass(frozen=True, slots=True)
class Any(Compound):
    """Holds as soon as one part holds; does not hold when no part does; unknown otherwise.

    any:
      - trivial: {metric: ratio_max, equals: 1, min: 3}
      - trivial: {metric: ratio_mean, equals: 1, min: 3}
    """

    kind: ClassVar[str] = "any"

    of: tuple[Condition, ...] = field(metadata={"help": "the parts", "minimum": 1})

    def parts(self) -> tuple[Condition, ...]:
        """The conditions combined."""
        return self.of

    @property
    def cost(self) -> int:
        """Mostly no part holds, so that all are asked."""
        return sum(part.cost for part in self.of)

    def bind(self, view: View) -> Check:
        """Compile the parts in their order."""
        return _some(tuple(view.check(part) for part in self.of))

    def settled(self, view: View) -> bool:
        """No part can hold again."""
        return all(part.settled(view) for part in self.of)

    def explain(self, view: View) -> Verdict:
        """The parts' verdicts in a row."""
        return _joined(view.check(self)(), [part.explain(view) for part in self.of], " or ")


@dataclass(frozen=True, slots=True)
class Not(Compound):
    """Holds when its part does not; unknown while its part is.

    not: {threshold: {metric: entropy, below: 0.1}}
    """

    kind: ClassVar[str] = "not"

    part: Condition = field(metadata={"help": "the condition negated"})

    def parts(self) -> tuple[Condition, ...]:
        """The condition negated."""
        return (self.part,)

    def bind(self, view: View) -> Check:
        """Compile the negation."""
        inner = view.check(self.part)

        def check() -> bool | None:
            holds = inner()
            return None if holds is None else not holds

        return check

    def explain(self, view: View) -> Verdict:
        """The part's verdict, turned around."""
        verdict = self.part.explain(view)
        return Verdict(view.check(self)(), verdict.values, f"not ({verdict.reason})")


class _Every:
    """Asks first the part that last was false, at the start the cheapest: most combinations do not hold for long.

    The others are compiled when they are first asked, which in most runs is never.
    """

    __slots__ = ("first", "of", "others", "view")

    def __init__(self, view: View, of: tuple[Condition, ...]) -> None:
        self.view, self.of = view, of
        self.first = view.check(min(of, key=_cost))
        self.others: list[Check] | None = None
        if view.eager:
            self._bind()

    def check(self) -> bool | None:
        """False as soon as one part is, unknown if one is."""
        verdict = self.first()
        if verdict is False:
            return False
        others = self._bind() if self.others is None else self.others
        for index, check in enumerate(others):
            holds = check()
            if holds is False:
                others[index], self.first = self.first, check
                return False
            if holds is None:
                verdict = None
        return verdict

    def _bind(self) -> list[Check]:
        """The other parts, the cheap ones first."""
        self.others = [self.view.check(part) for part in sorted(self.of, key=_cost)[1:]]
        return self.others


def _cost(condition: Condition) -> int:
    return condition.cost


def _some(checks: tuple[Check, ...]) -> Check:
    def some(checks: tuple[Check, ...] = checks) -> bool | None:
        verdict: bool | None = False
        for check in checks:
            holds = check()
            if holds:
                return True
            if holds is None:
                verdict = None
        return verdict

    return some


def _joined(holds: bool | None, verdicts: Sequence[Verdict], word: str) -> Verdict:
    """The parts' explanations as one; of an `any` that holds, only the parts that hold."""
    if word == " or " and holds:
        verdicts = [verdict for verdict in verdicts if verdict.holds]
    values: dict[str, float] = {}
    for verdict in verdicts:
        for name, value in verdict.values.items():
            values.setdefault(name, value)
    return Verdict(holds, values, word.join(verdict.reason for verdict in verdicts))
