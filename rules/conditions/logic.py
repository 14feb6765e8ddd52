"""Kleene combinations: unknown stays unknown unless the other parts decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Condition, Guards, Kind, Past, Rest, Verdict, View


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
        """Compile the parts, the cheap ones first: the order in which they are asked changes no verdict."""
        return _Every(tuple(view.check(part) for part in sorted(self.of, key=_cost)))

    def rest(self, view: View) -> Rest:
        """While one part stays false, or all stay as they are."""
        return _decided(tuple((view.check(part), view.rest(part)) for part in sorted(self.of, key=_cost)), False)

    def explain(self, view: View, past: Past) -> Verdict:
        """The parts' verdicts in a row."""
        return _joined(view.check(self)(past), [part.explain(view, past) for part in self.of], " and ")


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

    def rest(self, view: View) -> Rest:
        """While one part stays true, or all stay as they are."""
        return _decided(tuple((view.check(part), view.rest(part)) for part in self.of), True)

    def explain(self, view: View, past: Past) -> Verdict:
        """The parts' verdicts in a row."""
        return _joined(view.check(self)(past), [part.explain(view, past) for part in self.of], " or ")


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

        def check(past: Past) -> bool | None:
            holds = inner(past)
            return None if holds is None else not holds

        return check

    def rest(self, view: View) -> Rest:
        """While its part stays as it is."""
        return view.rest(self.part)

    def explain(self, view: View, past: Past) -> Verdict:
        """The part's verdict, turned around."""
        verdict = self.part.explain(view, past)
        return Verdict(view.check(self)(past), verdict.values, f"not ({verdict.reason})")


def _cost(condition: Condition) -> int:
    return condition.cost


class _Every:
    """Asks first the part that last was false, at the start the cheapest: most combinations do not hold for long."""

    __slots__ = ("checks",)

    def __init__(self, checks: tuple[Check, ...]) -> None:
        self.checks = checks

    def __call__(self, past: Past) -> bool | None:
        """False as soon as one part is, unknown if one is."""
        first: int = past.memo.get(self, 0)
        verdict: bool | None = self.checks[first](past)
        if verdict is False:
            return False
        for place, check in enumerate(self.checks):
            if place == first:
                continue
            holds = check(past)
            if holds is False:
                past.memo[self] = place
                return False
            if holds is None:
                verdict = None
        return verdict


def _some(checks: tuple[Check, ...]) -> Check:
    def some(past: Past) -> bool | None:
        verdict: bool | None = False
        for check in checks:
            holds = check(past)
            if holds:
                return True
            if holds is None:
                verdict = None
        return verdict

    return some


def _decided(parts: tuple[tuple[Check, Rest], ...], deciding: bool) -> Rest:
    """One part that decides alone is enough, if it stays; otherwise all of them have to."""

    def rest(past: Past) -> Guards | None:
        found: Guards | None = ()
        for check, rest in parts:
            decides, guards = check(past) is deciding, rest(past)
            if decides and guards is not None:
                return guards
            found = None if found is None or guards is None or decides else found + guards
        return found

    return rest


def _joined(holds: bool | None, verdicts: Sequence[Verdict], word: str) -> Verdict:
    """The parts' explanations as one; of an `any` that holds, only the parts that hold."""
    if word == " or " and holds:
        verdicts = [verdict for verdict in verdicts if verdict.holds]
    values: dict[str, float] = {}
    for verdict in verdicts:
        for name, value in verdict.values.items():
            values.setdefault(name, value)
    return Verdict(holds, values, word.join(verdict.reason for verdict in verdicts))
