"""A condition that held in several of its last evaluations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Condition, Guards, Past, Rest, Verdict, View
from rltriage.rules.conditions.logic import Compound


class Tally:
    """The last known verdicts of a condition, one bit each, the newest lowest."""

    __slots__ = ("bits", "known", "mask", "newest", "row", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.mask = (1 << size) - 1
        self.bits = 0
        self.known = 0
        self.newest: bool | None = None
        self.row = -1

    def take(self, newest: bool | None, row: int) -> None:
        """Take a row's verdict; a second record of the same row replaces it."""
        if self.row == row and self.newest is not None:
            self.bits >>= 1
            self.known -= 1
        self.row = row
        self.newest = newest
        if newest is not None:
            self.bits = (self.bits << 1 | newest) & (self.mask << 1 | 1)
            self.known += 1

    @property
    def total(self) -> int:
        """How often it held."""
        return (self.bits & self.mask).bit_count()

    @property
    def blank(self) -> bool:
        """Whether another verdict like the newest, if that is not true, would change nothing that can be told."""
        return not self.bits and (self.newest is None or self.known >= self.size)

    def forget(self) -> None:
        """The run went back."""
        self.bits = self.known = 0
        self.newest = None


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

    @property
    def cost(self) -> int:
        """A count of bits: the condition itself is judged at every observation anyway."""
        return 1

    def bind(self, view: View) -> Check:
        """Compile; the history runs the update at every observation, also where a combination would not ask."""
        counted, inner, rest_inner = self._tally(view), view.check(self.when), view.rest(self.when)

        def update(tally: Tally, past: Past) -> None:
            tally.take(inner(past), past.index)

        def rest(tally: Tally, past: Past) -> Guards | None:
            return rest_inner(past) if tally.blank else None

        view.each_row(self.when.metrics(), counted, update, rest)
        needed = self.at_least

        def check(past: Past) -> bool | None:
            tally = counted(past)
            return None if tally.newest is None else (tally.bits & tally.mask).bit_count() >= needed

        return check

    def rest(self, view: View) -> Rest:
        """While the count is 0 and the condition rests."""
        counted, inner = self._tally(view), view.rest(self.when)

        def rest(past: Past) -> Guards | None:
            return inner(past) if counted(past).blank else None

        return rest

    def _tally(self, view: View) -> Callable[[Past], Tally]:
        size = self.of
        return view.state(self, lambda past: Tally(size))

    def explain(self, view: View, past: Past) -> Verdict:
        """How often it held, and why it did or did not at this row."""
        tally, verdict = self._tally(view)(past), self.when.explain(view, past)
        count = tally.total
        reason = f"held in {count} of the last {min(tally.known, self.of)} (needs {self.at_least}): {verdict.reason}"
        return Verdict(view.check(self)(past), {**verdict.values, "held": float(count)}, reason)
