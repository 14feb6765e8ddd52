"""Rules that rest: nobody asks them while the newest values stay where their verdicts do not change.

A rule that is idle and does not hold, or is firing and holds, may say, by its condition's `rest`, within which values of
which metrics that stays so. It then sleeps on those series: a row costs one comparison per metric, not a check per rule,
and only rules whose interval was left are asked again. New config facts, names that were never logged before, a step back,
a resume and other rules wake everybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from rltriage.rules.conditions.base import ALIKE, ROWS, Guards

if TYPE_CHECKING:
    from rltriage.engine.aggregates import Series
    from rltriage.engine.history import History

PATIENCE = 8
"""Rows after a failed attempt before a rule tries to rest again: falling asleep costs more than a check. A sleep of so
many rows was worth it, and the rule may try again at once, ..."""
LONGER = 16
"""... but has to wait so many rows more after every attempt that failed or was followed by a shorter sleep, ..."""
LONGEST = 128
"""... up to about this."""


class Sleeper:
    """Something that need not be asked while its guards hold. `guards` is None while it is awake."""

    __slots__ = ("again", "guards", "patience")

    def __init__(self, place: int = 0) -> None:
        self.guards: Guards | None = None
        self.patience = PATIENCE + place % LONGER  # so that not all of them try at the same row
        self.again = self.patience  # in the first rows of a run few can

    def rest(self, past: History) -> Guards | None:
        """While which guards nothing changes; None if nobody can tell."""
        raise NotImplementedError

    def try_to_rest(self, past: History) -> None:
        """Fall asleep if it can; otherwise it tries again after a while."""
        guards = self.rest(past)
        if guards is None:
            self._lose_patience(past)
            return
        self.guards, self.again = guards, past.index
        past.stirs += 1
        for metric, low, high in guards:
            if metric == ROWS:
                past.alarms.setdefault(past.index + int(high) + 1, []).append(self)
                continue
            if metric == ALIKE:
                past.alike.append(self)
                continue
            series = past.own(metric)
            series.sleepers = (*series.sleepers, self, low, high)
            series.low, series.high = max(series.low, low), min(series.high, high)

    def wake(self, past: History) -> None:
        """It is asked again, and may rest again after some rows."""
        slept = past.index - self.again
        if not self._rise(past):
            return
        if slept >= PATIENCE:
            self.calm_down()
            self.again = past.index + 1
        else:
            self._lose_patience(past)

    def calm_down(self) -> None:
        """Back to the patience of the beginning."""
        self.patience = PATIENCE + (self.patience - PATIENCE) % LONGER

    def ring(self, past: History) -> None:
        """Its rows are over, which was worth it if they were enough: it may rest again at once."""
        slept = past.index - self.again
        if not self._rise(past):
            return
        if slept >= PATIENCE:
            self.calm_down()
        self.again = past.index

    def _rise(self, past: History) -> bool:
        """Leave the series that it sleeps on; false if it is awake."""
        if self.guards is None:
            return False
        for guard in self.guards:
            if guard.metric == ALIKE:
                past.alike.remove(self)
            elif guard.metric != ROWS:
                leave(past.series[guard.metric], self)
        self.guards = None
        past.stirs += 1
        return True

    def _lose_patience(self, past: History) -> None:
        self.again = past.index + self.patience
        if self.patience < LONGEST:
            self.patience += LONGER


def leave(series: Series, sleeper: Sleeper) -> None:
    """Take a sleeper off a series. Triples of sleeper, low and high are kept flat, for there are many."""
    flat = series.sleepers
    while sleeper in (sleepers := flat[::3]):
        place = 3 * sleepers.index(sleeper)
        tight = flat[place + 1] == series.low or flat[place + 2] == series.high
        flat = flat[:place] + flat[place + 3 :]
        if tight:
            series.low, series.high = max(flat[1::3], default=-inf), min(flat[2::3], default=inf)
    series.sleepers = flat


def disturb(series: Series, past: History) -> None:
    """The newest value left somebody's interval: wake whom it concerns."""
    value = series.last
    assert value is not None
    flat = series.sleepers
    for sleeper, low, high in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
        if not low <= value <= high:
            sleeper.wake(past)


def wake_all(sleepers: Iterable[Sleeper], past: History) -> None:
    """What everybody relied on has changed."""
    past.stirs += 1
    for sleeper in sleepers:
        sleeper.guards = None
        sleeper.calm_down()
        sleeper.again = sleeper.patience
    past.alike.clear()
    for series in past.series.values():
        series.sleepers = ()
        series.low, series.high = -inf, inf
