"""A metric that is gone, or a run that went silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Baseline, Check, Kind, Verdict, View, known, text

SETTLING = 20
"""Rows in all of which a metric must have been present before its absence means something."""


class Presence(Baseline):
    """Counts the observations of a metric among the first rows of the segment."""

    __slots__ = ("early", "view")

    def __init__(self, view: View) -> None:
        self.view = view
        self.early = 0

    def push(self, value: float) -> None:
        """Take one observation."""
        if self.view.row_index() < SETTLING:
            self.early += 1

    @property
    def done(self) -> bool:
        """The first rows are past."""
        return self.view.row_index() >= SETTLING


@dataclass(frozen=True, slots=True)
class Absent(Kind):
    """Holds when a metric that was present in all of the first 20 rows is missing for `rows` rows, or when a row is
    overdue.

    Overdue: more than `overdue` times the median interval of the last rows and at least `seconds` have passed since the
    newest row. It needs wall time in the rows and a caller that tells the time (`watch`, `serve`); unknown otherwise.

    absent: {metrics: [reward, grad_norm], rows: 3}
    absent: {overdue: 10, seconds: 600}
    """

    kind: ClassVar[str] = "absent"

    names: tuple[str, ...] = field(
        default=(), metadata={"help": "any one of these", "yaml": "metrics", "one_of_group": "what"}
    )
    rows: int = field(default=3, metadata={"help": "rows in which it is missing", "minimum": 1})
    overdue: float | None = field(default=None, metadata={"help": "median intervals without a row", "one_of_group": "what"})
    seconds: float = field(default=0.0, metadata={"help": "least seconds without a row", "minimum": 0})

    def problems(self) -> list[str]:
        """Either metrics or overdue."""
        if self.names and self.overdue is not None:
            return ["`metrics` and `overdue` are two conditions: write an `absent` for each"]
        return (
            [] if self.names or self.overdue is not None else ["nothing says what is missing: add `metrics` or `overdue`"]
        )

    def metrics(self) -> frozenset[str]:
        """The metrics that may go missing."""
        return frozenset(self.names)

    @property
    def every_row(self) -> bool:
        """Rows that lack the metrics are what it judges."""
        return True

    @property
    def timed(self) -> bool:
        """Overdue rows are seen by the clock alone."""
        return self.overdue is not None

    def bind(self, view: View) -> Check:
        """Compile for either form."""
        return self._overdue(view, self.overdue) if self.overdue is not None else self._missing(view)

    def _missing(self, view: View) -> Check:
        watched, rows = self._watched(view), self.rows

        def check() -> bool | None:
            if view.row_index() < SETTLING:
                return None
            verdict = None
            for presence, age in watched.values():
                if presence.early >= SETTLING:
                    if age() >= rows:
                        return True
                    verdict = False
            return verdict

        return check

    def _overdue(self, view: View, factor: float) -> Check:
        def check() -> bool | None:
            waited, interval = view.silence()
            if waited is None or interval is None:
                return None
            return waited > factor * interval and waited >= self.seconds

        return check

    def _watched(self, view: View) -> dict[str, tuple[Presence, Callable[[], int]]]:
        return {name: (view.track(name, ("presence",), lambda: Presence(view)), view.age(name)) for name in self.names}

    def explain(self, view: View) -> Verdict:
        """Which metrics are gone, or how long the run has been silent."""
        holds = view.check(self)()
        if self.overdue is not None:
            waited, interval = view.silence()
            reason = f"{text(waited)} s since the newest row, median interval {text(interval)} s (needs {self.overdue:g} x)"
            return Verdict(holds, known(waited=waited, interval=interval), reason)
        ages = {name: float(age()) for name, (presence, age) in self._watched(view).items() if presence.early >= SETTLING}
        gone = ", ".join(f"{name} for {age:g} rows" for name, age in ages.items() if age >= self.rows)
        return Verdict(holds, ages, f"missing: {gone}" if gone else "nothing is missing that used to be there")
