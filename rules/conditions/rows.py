"""Restricts a combination to some rows of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Guards, Kind, Past, Rest, Verdict, View


@dataclass(frozen=True, slots=True)
class Rows(Kind):
    """Holds in the rows `from` to `to` of the segment, counted from 0, and only up to the step `max_step`.

    all: [{rows: {to: 3}}, {threshold: {metric: approx_kl, at_least: 0.1}}]
    all: [{rows: {to: 0, max_step: 1}}, {threshold: {metric: kl_ref, at_least: 0.1}}]
    """

    kind: ClassVar[str] = "rows"

    first: int = field(default=0, metadata={"help": "the first row that counts", "yaml": "from", "minimum": 0})
    last: int | None = field(default=None, metadata={"help": "the last row that counts", "yaml": "to", "minimum": 0})
    max_step: int | None = field(default=None, metadata={"help": "the last step that counts"})

    def problems(self) -> list[str]:
        """An empty range can never hold."""
        return ["from must be at most to"] if self.last is not None and self.first > self.last else []

    def metrics(self) -> frozenset[str]:
        """None: it reads only the position of the row."""
        return frozenset()

    @property
    def cost(self) -> int:
        """Two comparisons."""
        return 0

    def bind(self, view: View) -> Check:
        """Compile the comparison of the row's index and step."""
        first, last, max_step = self.first, self.last, self.max_step

        def check(past: Past) -> bool:
            row = past.index
            return row >= first and (last is None or row <= last) and (max_step is None or past.step <= max_step)

        return check

    def rest(self, view: View) -> Rest:
        """For good, once the last row is past (steps may come again after a rewind, rows do not)."""

        def rest(past: Past) -> Guards | None:
            return () if self.last is not None and past.index > self.last else None

        return rest

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        return Verdict(view.check(self)(past), {}, f"row {past.index} (step {past.step}) of the segment")
