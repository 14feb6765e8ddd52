"""Training reward rises while the held-out pass rate does not follow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from rltriage.rules.conditions.base import Check, Guards, Kind, Past, Reader, Verdict, View, known, text
from rltriage.rules.conditions.limits import renewed
from rltriage.rules.conditions.terms import Term, number


class Read(NamedTuple):
    """Compiled: what the gains are made of."""

    fresh: Callable[[Past], bool]
    training: Callable[[Past], bool]
    held: Reader
    now: Reader
    values: Callable[[Past], list[float]]


class Interval:
    """Gains of training and held-out since the first evaluation, renewed at each fresh one."""

    __slots__ = ("base", "began", "held_gain", "origin", "rows", "taken", "training_gain")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.began = self.taken = -1
        self.base: tuple[float, ...] = ()
        self.origin: float | None = None
        self.held_gain: float | None = None
        self.training_gain: float | None = None

    def update(self, read: Read, past: Past) -> None:
        """Take one row, maybe in two records: the first evaluation fixes the base, every later one the gains."""
        fresh = read.fresh(past)
        if not fresh and self.idle:
            return
        value, level = read.held(past), read.now(past)
        row, trained = past.index, read.training(past) and past.index != self.taken
        if self.origin is None:
            if fresh and value is not None:
                self.origin, self.base, self.began = value, tuple(read.values(past)), row
                self.taken = row if trained else self.taken
            return
        if trained and len(self.base) < self.rows:
            self.base = (*self.base, read.values(past)[-1])
            self.taken = row
        if fresh and row != self.began and value is not None and level is not None and self.base:
            self.held_gain = value - self.origin
            self.training_gain = level - sum(self.base) / len(self.base)

    def forget(self) -> None:
        """The gains since the first evaluation outlive a rewind."""

    @property
    def idle(self) -> bool:
        """Whether only an evaluation changes something."""
        return self.origin is None or len(self.base) >= self.rows


@dataclass(frozen=True, slots=True)
class HeldOut(Kind):
    """Holds at a fresh evaluation at which training has gained and held-out has not followed since the first evaluation.

    Training gain (mean of the last 5 rows less the mean of 3 at the first evaluation, over `scale`) >= `gain`, and training
    gain less held-out gain >= max(`gap`, `errors` * sqrt(2 * .25 / n)), n the logged `count` of evaluated episodes, else
    `otherwise` (30 makes it .39). Unknown before the second evaluation, and while `scale` is not positive. For two
    evaluations running use `for: 2`: an observation of the rule is an evaluation.

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
        interval, read, held_out = self._interval(view), self._read(view), self.held_out

        def update(gains: Interval, past: Past) -> None:
            gains.update(read, past)

        def rest(gains: Interval, past: Past) -> Guards | None:
            return (renewed(held_out),) if gains.idle else None  # until the next evaluation

        view.each_row(frozenset((self.training,)), interval, update, rest)
        view.each_row(frozenset((held_out,)), interval, update, rest)
        gain, needed, scale = self.gain.bind(view), self._needed(view), self.scale.bind(view)

        def check(past: Past) -> bool | None:
            gains = interval(past)
            gained, held = gains.training_gain, gains.held_gain
            least, apart, span = gain(past), needed(past), scale(past)
            if gained is None or held is None or span is None or not span > 0.0 or least is None or apart is None:
                return None
            return gained >= least * span and gained / span - held >= apart

        return check

    def _interval(self, view: View) -> Callable[[Past], Interval]:
        rows = self.start_rows
        return view.state(self, lambda past: Interval(rows))

    def _read(self, view: View) -> Read:
        training, held_out = self.training, self.held_out
        return Read(
            fresh=view.fresh(held_out),
            training=view.fresh(training),
            held=view.last(held_out),
            now=view.window(training, self.rows, "mean", 1),
            values=view.values(training, self.start_rows),
        )

    def _needed(self, view: View) -> Reader:
        """How far the gains must be apart."""
        gap, episodes = self.gap.bind(view), view.last(self.count)

        def needed(past: Past) -> float | None:
            floor, logged = gap(past), episodes(past)
            if floor is None:
                return None
            size = logged if logged is not None and logged >= 1 else float(self.otherwise)
            return max(floor, self.errors * math.sqrt(0.5 / size))

        return needed

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        interval, apart = self._interval(view)(past), self._needed(view)(past)
        gained, held, span = interval.training_gain, interval.held_gain, self.scale.bind(view)(past)
        gained = gained / span if gained is not None and span is not None and span > 0.0 else None
        values = known(training_gain=gained, held_out_gain=held, needed=apart)
        reason = (
            f"since the first evaluation {self.training} gained {text(gained)}, {self.held_out} {text(held)} "
            f"(needs {text(apart)} apart)"
        )
        return Verdict(view.check(self)(past), values, reason)
