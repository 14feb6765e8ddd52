"""A config fact inside a combination."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Kind, Past, Rest, Verdict, View, forever
from rltriage.rules.facts import fact_passes

Scalar = float | bool | str


@dataclass(frozen=True, slots=True)
class FactIs(Kind):
    """Holds when a config fact passes every test given; unknown while the fact is (with `known`, false).

    `requires` switches a whole rule by facts and asks for the missing ones; this kind is for `unless` and for one
    branch of a combination.

    fact: {name: loss_mode, equals: token_mean}
    """

    kind: ClassVar[str] = "fact"

    name: str = field(metadata={"help": "the config fact"})
    above: float | None = field(default=None, metadata={"help": "greater than this number"})
    below: float | None = field(default=None, metadata={"help": "less than this number"})
    equals: Scalar | None = field(default=None, metadata={"help": "this value"})
    differs: Scalar | None = field(default=None, metadata={"help": "not this value", "yaml": "not"})
    among: tuple[Scalar, ...] = field(default=(), metadata={"help": "one of these values", "yaml": "in"})
    known: bool | None = field(default=None, metadata={"help": "whether the fact is known"})

    def problems(self) -> list[str]:
        """At least one test."""
        return (
            [] if self.tests() else ["nothing says what the fact must be: add one of above, below, equals, not, in, known"]
        )

    def tests(self) -> dict[str, object]:
        """The tests given, as `requires` takes them."""
        given = {"above": self.above, "below": self.below, "equals": self.equals, "not": self.differs, "known": self.known}
        tests: dict[str, object] = {name: value for name, value in given.items() if value is not None}
        return tests | ({"in": self.among} if self.among else {})

    def metrics(self) -> frozenset[str]:
        """None: it reads only config facts."""
        return frozenset()

    def bind(self, view: View) -> Check:
        """Compile; facts may still be inferred during the run, so they are read at every check."""
        read, tests = view.fact_text(self.name), self.tests()
        return lambda past: fact_passes(tests, read(past))

    def rest(self, view: View) -> Rest:
        """Until facts change."""
        return forever

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        value = view.fact_text(self.name)(past)
        return Verdict(
            view.check(self)(past), {}, f"config.{self.name} is " + ("unknown" if value is None else repr(value))
        )
