"""Training reward rises while the held-out pass rate does not follow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from rltriage.rules.conditions.base import Check, Kind, Reader, Verdict, View, known, text
from rltriage.rules.conditions.terms import Term, number


class Interval:
    """Gains of training and held-out since the first evaluation, renewed at each fresh one."""

    __slots__ = (
        "base",
        "began",
        "fresh",
        "held",
        "held_gain",
        "index",
        "now",
        "origin",
        "rows",
        "taken",
        "training",
        "training_gain",
        "values",
    )

    def __init__(self, view: View, held: str, training: str, start_rows: int, rows: int) -> None:
        self.fresh: Callable[[], bool] = view.fresh(held)
        self.training: Callable[[], bool] = view.fresh(training)
        self.held: Reader = view.last(held)
        self.now: Reader = view.window(training, rows, "mean", 1)
        self.values: Callable[[], list[float]] = lambda: view.values(training, start_rows)
        self.index: Callable[[], int] = view.row_index
        self.rows = start_rows
        self.began = self.taken = -1
        self.base: list[float] = []
        self.origin: float | None = None
        self.held_gain: float | None = None
        self.training_gain: float | None = None

    def update(self) -> None:
        """Take one row, maybe in two records: the first evaluation fixes the base, every later one the gains."""
        if not self.fresh() and (self.origin is None or len(self.base) >= self.rows):
            return
        value, level = self.held(), self.now()
        row, trained = self.index(), self.training() and self.index() != self.taken
        if self.origin is None:
            if self.fresh() and value is not None:
                self.origin, self.base, self.began = value, self.values(), row
                self.taken = row if trained else self.taken
            return
        if trained and len(self.base) < self.rows:
            self.base = [*self.base, self.values()[-1]]
            self.taken = row
        if self.fresh() and row != self.began and value is not None and level is not None and self.base:
            self.held_gain = value - self.origin
            self.training_gain = level - sum(self.base) / len(self.base)


@dataclass(frozen=True, slots=True)
class HeldOut(Kind):
    """Holds at a fresh evaluation at which training has gained and held-out has not followed since the first evaluation.

    Training gain (mean of the last 5 rows less the mean of 3 at the first evaluation, over `scale`) >= `gain`, and training
    gain less held-out gain >= max(`gap`, `errors` * sqrt(2 * .25 / n)), n the logged `count` of evaluated episodes, else
    `otherwise` (30 makes it .39). Unknown before the second evaluation. For two evaluations running use `for: 2`: an
    observation of the rule is an evaluation.

    held_out: {training: reward, held_out: eval_pass, gain: 0.2, gap: 0.25}
    """

    kind: ClassVar[str] = "held_out"

    training: str = field(metadata={"help": "the metric of the training tasks"})
    held_out: str = field(metadata={"help": "the metric of the held-out tasks"})
    gain: Term = field(default_factory=lambda: number(0.2), metadata={"help": "the least gain of training"})
    gap: Term = field(default_factory=lambda: number(0.25), metadata={"help": "the least difference of the gains"})
    scale: Term = field(default_factory=lambda: number(1.0), metadata={"help": "the range of training (of held-out: 1)"})
    errors: float = field(default=3.0, metadata={"help": "standard errors of a difference of differences", "minimum": 0})
    count: str = field(default="eval_n", metadata={"help": "the metric that counts evaluated episodes"})
    otherwise: int = field(default=30, metadata={"help": "evaluated episodes where not logged", "minimum": 1})
    start_rows: int = field(default=3, metadata={"help": "rows of training at the first evaluation", "minimum": 1})
    rows: int = field(default=5, metadata={"help": "rows of training at the later ones", "minimum": 1, "maximum": 512})

    def metrics(self) -> frozenset[str]:
        """Both metrics, the count and those of the limits."""
        parts = (term.metrics() for term in (self.gain, self.gap, self.scale))
        return frozenset((self.training, self.held_out)).union(*parts)

    def patterns(self) -> tuple[str, ...]:
        """The count is read where it is logged; it does not make a row an observation."""
        return (self.count,)

    def bind(self, view: View) -> Check:
        """Compile; the gains change only at fresh evaluations."""
        interval = self._interval(view)
        view.each_row(frozenset((self.training,)), interval.update)
        view.each_row(frozenset((self.held_out,)), interval.update)
        gain, needed, scale = self.gain.bind(view), self._needed(view), self.scale.bind(view)

        def check() -> bool | None:
            gained, held, span = interval.training_gain, interval.held_gain, scale()
            least, apart = gain(), needed()
            if gained is None or held is None or not span or least is None or apart is None:
                return None
            return gained >= least * span and gained / span - held >= apart

        return check

    def _interval(self, view: View) -> Interval:
        return view.state(self, lambda: Interval(view, self.held_out, self.training, self.start_rows, self.rows))

    def _needed(self, view: View) -> Reader:
        """How far the gains must be apart."""
        gap, episodes = self.gap.bind(view), view.last(self.count)

        def needed() -> float | None:
            floor, logged = gap(), episodes()
            if floor is None:
                return None
            size = logged if logged is not None and logged >= 1 else float(self.otherwise)
            return max(floor, self.errors * math.sqrt(0.5 / size))

        return needed

    def explain(self, view: View) -> Verdict:
        """The numbers that the check compares."""
        interval, apart = self._interval(view), self._needed(view)()
        gained, held, span = interval.training_gain, interval.held_gain, self.scale.bind(view)()
        gained = gained / span if gained is not None and span else None
        values = known(training_gain=gained, held_out_gain=held, needed=apart)
        reason = (
            f"since the first evaluation {self.training} gained {text(gained)}, {self.held_out} {text(held)} "
            f"(needs {text(apart)} apart)"
        )
        return Verdict(view.check(self)(), values, reason)
