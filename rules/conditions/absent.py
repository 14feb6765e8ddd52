"""A metric that is gone, or a run that went silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import (
    ROWS,
    Baseline,
    Check,
    Guard,
    Guards,
    Kind,
    Past,
    Rest,
    Verdict,
    View,
    known,
    text,
)

SETTLING = 20
"""Rows in all of which a metric must have been present before its absence means something."""


class Presence(Baseline):
    """Counts the observations of a metric among the first rows of the segment."""

    __slots__ = ("early", "past")

    def __init__(self, past: Past) -> None:
        self.past = past
        self.early = 0

    def push(self, value: float) -> None:
        """Take one observation."""
        if self.past.index < SETTLING:
            self.early += 1

    @property
    def done(self) -> bool:
        """The first rows are past."""
        return self.past.index >= SETTLING


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
        watched, rows = tuple(self._watched(view).values()), self.rows

        def check(past: Past) -> bool | None:
            if past.index < SETTLING:
                return None
            verdict = None
            for presence, age in watched:
                if presence(past).early >= SETTLING:
                    if age(past) >= rows:
                        return True
                    verdict = False
            return verdict

        return check

    def _overdue(self, view: View, factor: float) -> Check:
        def check(past: Past) -> bool | None:
            waited, interval = past.silence()
            if waited is None or interval is None:
                return None
            return waited > factor * interval and waited >= self.seconds

        return check

    def rest(self, view: View) -> Rest:
        """A row that has just come is not overdue, and the clock asks by itself (`timed`)."""
        if self.overdue is None:
            return self._rest_present(view)

        def rest(past: Past) -> Guards | None:
            waited, interval = past.silence()
            return () if waited == 0.0 and interval is not None else None

        return rest

    def _rest_present(self, view: View) -> Rest:
        """For as many rows as the metrics would have to be missing."""
        watched, rows = tuple(self._watched(view).values()), self.rows

        def rest(past: Past) -> Guards | None:
            if past.index < SETTLING:
                return None
            ages = [age(past) for presence, age in watched if presence(past).early >= SETTLING]
            if not ages:
                return ()
            left = rows - 1 - max(ages)
            return (Guard(ROWS, 0.0, float(left)),) if left > 0 else None

        return rest

    def _watched(self, view: View) -> dict[str, tuple[Callable[[Past], Presence], Callable[[Past], int]]]:
        return {name: (view.track(name, ("presence",), Presence), view.age(name)) for name in self.names}

    def explain(self, view: View, past: Past) -> Verdict:
        """Which metrics are gone, or how long the run has been silent."""
        holds = view.check(self)(past)
        if self.overdue is not None:
            waited, interval = past.silence()
            reason = f"{text(waited)} s since the newest row, median interval {text(interval)} s (needs {self.overdue:g} x)"
            return Verdict(holds, known(waited=waited, interval=interval), reason)
        watched = self._watched(view).items()
        ages = {name: float(age(past)) for name, (presence, age) in watched if presence(past).early >= SETTLING}
        gone = ", ".join(f"{name} for {age:g} rows" for name, age in ages.items() if age >= self.rows)
        return Verdict(holds, ages, f"missing: {gone}" if gone else "nothing is missing that used to be there")
