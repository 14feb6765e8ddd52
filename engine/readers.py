"""Compiled readers: what conditions read of a run's history. They hold no state of a run, so that all runs share them.

What is dear to compute is remembered in the run's `memo` until the series has another observation.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from rltriage.engine.aggregates import Head, Series, WindowFunction, window_function
from rltriage.engine.rows import Fact
from rltriage.rules.conditions.base import ROWS, Guard, Guards, Passing, Reader
from rltriage.rules.conditions.limits import side
from rltriage.rules.conditions.noise import NORMAL, median, scale_of, standard_error, z_score

if TYPE_CHECKING:
    from rltriage.engine.history import History


def last(metric: str) -> Reader:
    """The newest observation."""

    def read(past: History) -> float | None:
        return past.series[metric].last

    return read


def fresh(metric: str) -> Callable[[History], bool]:
    """Whether the newest observation is of the row that is being judged."""

    def read(past: History) -> bool:
        return past.series[metric].row == past.index

    return read


def count(metric: str) -> Callable[[History], int]:
    """Observations of the segment."""

    def read(past: History) -> int:
        series = past.series[metric]
        return series.version - series.lost

    return read


def age(metric: str) -> Callable[[History], int]:
    """Rows since the newest observation."""

    def read(past: History) -> int:
        return past.index - past.series[metric].row

    return read


class _Remembered:
    """Computes once per observation of a series."""

    __slots__ = ("metric",)

    def __init__(self, metric: str) -> None:
        self.metric = metric

    def __call__(self, past: History) -> float | None:
        """The value at this row."""
        series = past.series[self.metric]
        kept = past.memo.get(self)
        if kept is not None and kept[0] == series.version:
            value: float | None = kept[1]
            return value
        value = self.compute(series, past)
        past.memo[self] = (series.version, value)
        return value

    def compute(self, series: Series, past: History) -> float | None:
        """The value of a new version."""
        raise NotImplementedError


class _Window:
    """A function of the last `size` observations before the newest `skip`; None below `minimum` of them."""

    __slots__ = ("function", "metric", "minimum", "size", "skip")

    def __init__(self, metric: str, size: int, function: WindowFunction, minimum: int, skip: int) -> None:
        self.metric = metric
        self.size, self.function, self.minimum, self.skip = size, function, minimum, skip

    def __call__(self, past: History) -> float | None:
        """The value at this row."""
        values = past.series[self.metric].values
        seen = len(values) - self.skip
        if seen < self.minimum:
            return None
        return self.function(values[max(0, seen - self.size) : seen])


class _Median(_Window):
    """The commonest function of a window, without a call in between."""

    __slots__ = ()

    def __call__(self, past: History) -> float | None:
        """The value at this row."""
        values = past.series[self.metric].values
        seen = len(values) - self.skip
        if seen < self.minimum:
            return None
        first = seen - self.size
        ordered = sorted(values[first if first > 0 else 0 : seen])
        half = len(ordered) >> 1
        return ordered[half] if len(ordered) & 1 else 0.5 * (ordered[half - 1] + ordered[half])


def _statistic(metric: str, size: int, stat: str, minimum: int, skip: int) -> _Window:
    return (_Median if stat == "median" else _Window)(metric, size, window_function(stat), minimum, skip)


def window(metric: str, size: int, stat: str, minimum: int, skip: int) -> Reader:
    """A function of a window, which is cheap enough to compute for each rule that asks."""
    if size == 1 and not skip:
        return last(metric)
    return _statistic(metric, size, stat, minimum, skip)


BEYOND: Mapping[str, Callable[[float, float], bool]] = {"above": gt, "at_least": ge, "below": lt, "at_most": le}
ONE_IS_ENOUGH = frozenset((("max", "at_most"), ("max", "below"), ("min", "at_least"), ("min", "above")))
"""A maximum that has to be low or a minimum that has to be high: one value on the wrong side refutes it."""


class Comparison:
    """A statistic of a window against a limit."""

    __slots__ = ("beyond", "extreme", "limit", "passing", "read")

    def __init__(self, passing: Passing, limit: float | Reader) -> None:
        metric, size, stat, minimum, word, absolute = passing
        self.passing, self.limit = passing, limit
        self.read = _statistic(metric, size, stat, minimum, 0)
        self.beyond = BEYOND[word]
        self.extreme = not absolute and (stat, word) in ONE_IS_ENOUGH

    def check(self, past: History) -> bool | None:
        """The comparison; where one value is enough the newest is looked at first."""
        limit = self.limit
        bound = limit if isinstance(limit, float) else limit(past)
        if bound is None:
            return None
        if self.extreme:
            series = past.series[self.passing.metric]
            newest = series.last
            if newest is not None and len(series.values) >= self.passing.minimum and not self.beyond(newest, bound):
                return False
        value = self.read(past)
        if value is None:
            return None
        return self.beyond(abs(value) if self.passing.absolute else value, bound)

    def rest(self, past: History) -> Guards | None:
        """While new values lie where the statistic is now, if those in the window do not carry it away.

        A median follows most of its values, a maximum rises with one and falls with all, a mean lies between its values.
        """
        metric, size, stat, _, word, absolute = self.passing
        limit, values = self.limit, past.series[metric].values[-size:]
        bound = limit if isinstance(limit, float) else limit(past)
        value = self.read(past)
        if bound is None or value is None:
            return None
        low, high = side(word, bound, value, absolute)
        if stat == "mean":
            margin = 1e-9 * abs(bound) + 1e-300  # the mean of equal numbers may be rounded beyond them
            low, high = low + margin, high - margin
        outside = _outside(values, low, high)
        if (stat == "max" and high == inf) or (stat == "min" and low == -inf):
            stays = low <= values[-1] <= high
        elif stat == "median":
            stays = 2 * outside < len(values)
        else:
            stays = stat in ("mean", "max", "min", "first") and not outside
        return (Guard(metric, low, high),) if stays else None


def _outside(values: Iterable[float], low: float, high: float) -> int:
    """How many lie there; a median stays inside while less than half do."""
    return sum(not low <= value <= high for value in values)


class Start:
    """The median of the first `baseline` observations, from `minimum` on."""

    __slots__ = ("head", "minimum")

    def __init__(self, head: Callable[[Any], Head], minimum: int) -> None:
        self.head, self.minimum = head, minimum

    def __call__(self, past: History) -> float | None:
        """The value at this row."""
        head = self.head(past)
        if head.middle is not None:
            return head.middle
        return median(head.values) if len(head.values) >= self.minimum else None


class _Steps:
    """The differences of a run's newest observations, sorted."""

    __slots__ = ("ordered", "scale", "version")

    def __init__(self) -> None:
        self.version = -1
        self.ordered: list[float] = []
        self.scale: float | None = None


class Noise:
    """The noise over the last `size` observations; None below three.

    The differences stay sorted from one observation to the next.
    """

    __slots__ = ("metric", "size")

    def __init__(self, metric: str, size: int) -> None:
        self.metric, self.size = metric, size

    def __call__(self, past: History) -> float | None:
        """The value at this row."""
        series = past.series[self.metric]
        steps: _Steps | None = past.memo.get(self)
        if steps is None:
            steps = past.memo[self] = _Steps()
        if steps.version != series.version:
            self._renew(steps, series)
        return steps.scale

    def span(self, past: History, rows: int) -> tuple[float, float] | None:
        """The least and the greatest that the noise can be in the next `rows` observations, whatever they are.

        Each takes one of the sorted differences away and adds another, so that the middle moves by one place at most. None
        while there are fewer than `size` observations, or where it could get among those that are 0.
        """
        if self(past) is None:
            return None
        ordered = past.memo[self].ordered
        low, high = (len(ordered) - 1) // 2 - rows, len(ordered) // 2 + rows
        if len(ordered) < self.size - 1 or low < 0 or ordered[low] == 0.0:
            return None
        return NORMAL * ordered[low], NORMAL * ordered[high]

    def _renew(self, steps: _Steps, series: Series) -> None:
        values, ordered = series.values, steps.ordered
        if series.version == steps.version + 1 and len(values) > self.size:
            del ordered[bisect_left(ordered, abs(values[-self.size] - values[-self.size - 1]))]
            insort(ordered, abs(values[-1] - values[-2]))
        else:
            ordered[:] = sorted([abs(new - old) for old, new in pairwise(values[-self.size :])])
        steps.version = series.version
        steps.scale = scale_of(ordered) if len(ordered) >= 2 else None


RESTING = 8
"""Rows for which a gain may rest."""


class GainZ(_Remembered):
    """(now - start) in standard errors; None before baseline + window observations."""

    __slots__ = ("begin", "enough", "now", "parts", "scale", "size")

    def __init__(self, metric: str, begin: Reader, now: Reader, scale: Noise, baseline: int, size: int) -> None:
        super().__init__(metric)
        self.begin, self.now, self.scale, self.size = begin, now, scale, size
        self.parts, self.enough = 1.0 / baseline + 1.0 / size, baseline + size

    def compute(self, series: Series, past: History) -> float | None:
        """From the three readers, of which the noise is the dear one."""
        first, current = self.begin(past), self.now(past)
        if first is None or current is None or series.count < self.enough:
            return None
        spread = self.scale(past)
        return None if spread is None else z_score(current - first, standard_error(spread, self.parts))

    def keeps(self, limit: Reader) -> Callable[[History], Guards | None]:
        """How a comparison with a limit rests: while values lie where they do if that decides, else for a few rows."""

        def rest(past: History) -> Guards | None:
            bound, z = limit(past), self(past)
            if bound is None or z is None:
                return None
            values = past.series[self.metric].values[-self.scale.size :]
            first = self.begin(past)
            assert first is not None
            edges = self._decided(bound, first, min(values), max(values))
            if edges is not None:
                return (Guard(self.metric, *edges),)
            edges = self._near(bound, first, past)
            if edges is None or 2 * _outside(values[-self.size :], *edges) >= self.size:
                return None
            return Guard(self.metric, *edges), Guard(ROWS, 0.0, RESTING)

        return rest

    def _decided(self, bound: float, first: float, low: float, high: float) -> tuple[float, float] | None:
        """Within which values the gain stays on its side of the limit for good, if those of late span `low` to `high`.

        One of the other sign, however small the noise is; one that is beyond it, though the noise be as large as
        differences within these edges can make it.
        """
        if bound > 0.0 and high <= first:
            return -inf, first
        if bound < 0.0 and low >= first:
            return first, inf
        room = (high - low) / 4.0
        low, high = low - room, high + room
        shift = bound * standard_error(NORMAL * (high - low), self.parts)
        margin = 1e-9 * (abs(first) + abs(shift)) + 1e-300
        if (bound >= 0.0 and low > first + shift + margin) or (bound <= 0.0 and high < first + shift - margin):
            return low, high
        return None

    def _near(self, bound: float, first: float, past: History) -> tuple[float, float] | None:
        """The side of the level at which the gain is the limit, for any noise that there may be in the next few rows."""
        noise, current = self.scale.span(past, RESTING), self.now(past)
        if noise is None or current is None:
            return None
        shifts = [bound * standard_error(scale, self.parts) for scale in noise]
        margin = 1e-9 * (abs(first) + max(map(abs, shifts))) + 1e-300
        low, high = first + min(shifts) - margin, first + max(shifts) + margin
        return (high, inf) if current > high else (-inf, low) if current < low else None


NUMBERS = (int, float)


def fact_value(name: str) -> Callable[[History], Any]:
    """A config fact as it is, None while unknown; `name.key` and `name.0` look into mappings and lists."""
    plain, _, path = name.partition(".")

    def read(past: History) -> Any:
        fact: Fact | None = past.facts.get(name)
        if fact is not None:
            return fact.value
        fact = past.facts.get(plain) if path else None
        return None if fact is None else _inside(fact.value, path)

    return read


def fact_number(name: str) -> Reader:
    """A config fact as a number; None while it is unknown or something else."""
    inside = fact_value(name)

    def read(past: History) -> float | None:
        fact = past.facts.get(name)
        value = inside(past) if fact is None else fact.value
        if type(value) is float:
            return value
        return float(value) if isinstance(value, NUMBERS) and not isinstance(value, bool) else None

    return read


def _inside(value: Any, path: str) -> Any:
    """The element of nested mappings and lists that a dotted path names, None where there is none."""
    for key in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, Sequence) and not isinstance(value, str) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value
