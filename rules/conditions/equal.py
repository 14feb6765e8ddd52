"""An identity between metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Baseline, Check, Kind, Past, Reader, Verdict, View, known, text
from rltriage.rules.conditions.terms import Term


class Spread(Baseline):
    """Whether a metric has taken more than one value."""

    __slots__ = ("first", "varied")

    def __init__(self) -> None:
        self.first: float | None = None
        self.varied = False

    @classmethod
    def of(cls, past: Past) -> Spread:
        """That of a run, of which it needs nothing."""
        return cls()

    @property
    def done(self) -> bool:
        """Two values were seen."""
        return self.varied

    def push(self, value: float) -> None:
        """Take one observation."""
        if self.first is None:
            self.first = value
        elif value != self.first:
            self.varied = True


@dataclass(frozen=True, slots=True)
class Equal(Kind):
    """Holds when two sides are equal (`holds: true`, the default) or when the identity is broken (`holds: false`).

    The right side is the sum of its operands. Equal means |left - right| <= max(tolerance, relative * max(|left|,
    |right|)). With `varies` it is unknown until the first metric of the left side has taken two values: constants agree
    by chance. All sides must be of the same row; unknown while a metric is absent from it.

    equal: {left: {metric: adv_mean}, right: [{metric: reward}], tolerance: 1e-6, varies: true}
    """

    kind: ClassVar[str] = "equal"

    left: Term = field(metadata={"help": "one side"})
    right: tuple[Term, ...] = field(metadata={"help": "the operands whose sum is the other side"})
    tolerance: float = field(default=1e-6, metadata={"help": "absolute", "minimum": 0})
    relative: float = field(default=0.0, metadata={"help": "relative to the larger side", "minimum": 0})
    holds: bool = field(default=True, metadata={"help": "false: holds when the identity is broken"})
    varies: bool = field(default=False, metadata={"help": "unknown until the left side has varied"})

    def problems(self) -> list[str]:
        """A side without operands is no side."""
        found = [] if self.right else ["right needs at least one operand"]
        return found + (["varies needs a metric on the left"] if self.varies and self.left.metric is None else [])

    def metrics(self) -> frozenset[str]:
        """The metrics of both sides."""
        return self.left.metrics().union(*(term.metrics() for term in self.right))

    def bind(self, view: View) -> Check:
        """Compile both sides."""
        left, right = self.left.bind(view), total([term.bind(view) for term in self.right])
        fresh = [view.fresh(metric) for metric in sorted(self.metrics())]
        spread = view.track(self.left.metric, ("spread",), Spread.of) if self.varies and self.left.metric else None
        tolerance, relative, expected = self.tolerance, self.relative, self.holds

        def check(past: Past) -> bool | None:
            if spread is not None and not spread(past).varied:
                return None
            for is_fresh in fresh:
                if not is_fresh(past):
                    return None
            one, other = left(past), right(past)
            if one is None or other is None:
                return None
            return (abs(one - other) <= max(tolerance, relative * max(abs(one), abs(other)))) is expected

        return check

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        one, other = self.left.bind(view)(past), total([term.bind(view) for term in self.right])(past)
        sum_text = " + ".join(str(term) for term in self.right)
        reason = f"{self.left} = {text(one)}, {sum_text} = {text(other)}"
        return Verdict(view.check(self)(past), known(left=one, right=other), reason)


def total(readers: list[Reader]) -> Reader:
    """The sum of readers, unknown while one is."""
    if len(readers) == 1:
        return readers[0]

    def summed(past: Past) -> float | None:
        result = 0.0
        for read in readers:
            value = read(past)
            if value is None:
                return None
            result += value
        return result

    return summed
