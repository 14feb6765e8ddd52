"""Compiled readers over a series: closures that compute once per observation and allocate nothing in between."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import ge, gt, le, lt
from typing import Any, Protocol

from rltriage.engine.aggregates import Head, Series, WindowFunction, window_function
from rltriage.engine.rows import Fact
from rltriage.rules.conditions.base import Check, Reader
from rltriage.rules.conditions.noise import median, scale_of, standard_error, z_score


class HasIndex(Protocol):
    """Whoever knows which row is being judged."""

    index: int


def fresh(series: Series, history: HasIndex) -> Callable[[], bool]:
    """Whether the newest observation is of the row that is being judged."""

    def read(series: Series = series, history: HasIndex = history) -> bool:
        return series.row == history.index

    return read


def window(series: Series, size: int, function: WindowFunction, minimum: int, skip: int) -> Reader:
    """A function of the last `size` observations before the newest `skip`; None below `minimum` of them."""
    if size == 1 and not skip:
        return series.newest
    if function is median:
        return _Median(series, size, minimum, skip).read
    return _Window(series, size, function, minimum, skip).read


class _Cached:
    """Computes once per version of a series. Slots and a bound method are a third of the size of a closure with cells."""

    __slots__ = ("cached", "series", "version")

    def __init__(self, series: Series) -> None:
        self.series = series
        self.version = -1
        self.cached: float | None = None

    def read(self) -> float | None:
        """The value at this row."""
        if self.series.version != self.version:
            self.version = self.series.version
            self.cached = self.compute()
        return self.cached

    def compute(self) -> float | None:
        """The value of a new version."""
        raise NotImplementedError


class _Median(_Cached):
    """The commonest function of a window, without a call in between."""

    __slots__ = ("minimum", "size", "skip")

    def __init__(self, series: Series, size: int, minimum: int, skip: int) -> None:
        super().__init__(series)
        self.size, self.minimum, self.skip = size, minimum, skip

    def read(self) -> float | None:
        """The value at this row."""
        series = self.series
        if series.version != self.version:
            self.version = series.version
            values = series.values
            seen = len(values) - self.skip
            if seen < self.minimum:
                self.cached = None
                return None
            ordered = sorted(values[max(0, seen - self.size) : seen])
            half = len(ordered) >> 1
            self.cached = ordered[half] if len(ordered) & 1 else 0.5 * (ordered[half - 1] + ordered[half])
        return self.cached


class _Window(_Cached):
    """Any function of any window."""

    __slots__ = ("function", "minimum", "size", "skip")

    def __init__(self, series: Series, size: int, function: WindowFunction, minimum: int, skip: int) -> None:
        super().__init__(series)
        self.size, self.function, self.minimum, self.skip = size, function, minimum, skip

    def compute(self) -> float | None:
        """None below the minimum."""
        values = self.series.values
        seen = len(values) - self.skip
        if seen < self.minimum:
            return None
        return self.function(values[max(0, seen - self.size) : seen])


NEVER = -2
"""A version that no series has had, nor the one before its first."""
BEYOND: Mapping[str, Callable[[float, float], bool]] = {"above": gt, "at_least": ge, "below": lt, "at_most": le}


def passes(series: Series, window: tuple[int, str, int], word: str, limit: float | Reader, absolute: bool) -> Check:
    """Whether a window (size, stat, minimum) is beyond a limit; not computed where the newest observation tells."""
    size, stat, minimum = window
    if stat == "median" and size % 2 and size > 1:
        return _Crossing(series, size, minimum, BEYOND[word], limit, absolute).check
    read = _Window(series, size, window_function(stat), minimum, 0).read
    if not absolute and (stat, word) in (("max", "at_most"), ("max", "below"), ("min", "at_least"), ("min", "above")):
        return _Extreme(series, read, minimum, BEYOND[word], limit).check
    return _Passing(read, BEYOND[word], limit, absolute).check


class _Passing:
    """A statistic against a limit."""

    __slots__ = ("absolute", "beyond", "limit", "read")

    def __init__(self, read: Reader, beyond: Callable[[float, float], bool], limit: float | Reader, absolute: bool) -> None:
        self.read, self.beyond, self.limit, self.absolute = read, beyond, limit, absolute

    def check(self) -> bool | None:
        """The comparison."""
        value, limit = self.read(), self.limit
        bound = limit if isinstance(limit, float) else limit()
        if value is None or bound is None:
            return None
        return self.beyond(abs(value) if self.absolute else value, bound)


class _Crossing:
    """A median of an odd window against a limit.

    One value moves such a median beyond a limit only if it is beyond itself, so that most rows need no sorting: while the
    median was not beyond one observation ago, a newest value that is not beyond either leaves it there. `quiet` is the
    newest version of the series at which the median was known not to be beyond `known`.
    """

    __slots__ = ("absolute", "beyond", "known", "limit", "minimum", "quiet", "series", "size")

    def __init__(
        self,
        series: Series,
        size: int,
        minimum: int,
        beyond: Callable[[float, float], bool],
        limit: float | Reader,
        absolute: bool,
    ) -> None:
        self.series, self.size, self.minimum = series, size, minimum
        self.beyond, self.limit, self.absolute = beyond, limit, absolute
        self.quiet = NEVER
        self.known: float | None = None

    def check(self) -> bool | None:
        """The comparison."""
        series, limit = self.series, self.limit
        bound = limit if isinstance(limit, float) else limit()
        if bound is None:
            return None
        version, value = series.version, series.last
        if bound == self.known and value is not None and version - self.quiet <= 1:
            if version == self.quiet:
                return False
            if not self.beyond(abs(value) if self.absolute else value, bound):
                self.quiet = version
                return False
        values = series.values[-self.size :]
        if len(values) < self.minimum:
            return None
        middle = median(values)
        holds = self.beyond(abs(middle) if self.absolute else middle, bound)
        self.quiet, self.known = NEVER if holds else version, bound
        return holds


class _Extreme:
    """A maximum that has to be low or a minimum that has to be high: one value on the wrong side is enough."""

    __slots__ = ("beyond", "limit", "minimum", "read", "series")

    def __init__(
        self, series: Series, read: Reader, minimum: int, beyond: Callable[[float, float], bool], limit: float | Reader
    ) -> None:
        self.series, self.read, self.minimum, self.beyond, self.limit = series, read, minimum, beyond, limit

    def check(self) -> bool | None:
        """The newest value first."""
        series, limit = self.series, self.limit
        bound = limit if isinstance(limit, float) else limit()
        if bound is None or series.last is None or len(series.values) < self.minimum:
            return None
        if not self.beyond(series.last, bound):
            return False
        value = self.read()
        return None if value is None else self.beyond(value, bound)


class _Start:
    """The median of the first observations before there are as many as it is made of."""

    __slots__ = ("head", "minimum")

    def __init__(self, head: Head, minimum: int) -> None:
        self.head, self.minimum = head, minimum

    def read(self) -> float | None:
        """The value at this row."""
        head = self.head
        if head.middle is not None:
            return head.middle
        return median(head.values) if len(head.values) >= self.minimum else None


class _Noise(_Cached):
    """None below three observations. The differences stay sorted from one observation to the next."""

    __slots__ = ("size", "steps")

    def __init__(self, series: Series, size: int) -> None:
        super().__init__(series)
        self.size = size
        self.steps: list[float] = []

    def read(self) -> float | None:
        """The value at this row."""
        series, steps = self.series, self.steps
        if series.version != self.version:
            values = series.values
            if series.version == self.version + 1 and len(values) > self.size:
                del steps[bisect_left(steps, abs(values[-self.size] - values[-self.size - 1]))]
                insort(steps, abs(values[-1] - values[-2]))
            else:
                kept = values[-self.size :]
                steps[:] = sorted([abs(new - old) for old, new in pairwise(kept)])
            self.version = series.version
            self.cached = scale_of(steps) if len(steps) >= 2 else None
        return self.cached


class _GainZ(_Cached):
    """(now - start) in standard errors; None before baseline + window observations."""

    __slots__ = ("begin", "enough", "now", "parts", "scale")

    def __init__(self, series: Series, begin: Reader, now: Reader, scale: Reader, baseline: int, size: int) -> None:
        super().__init__(series)
        self.begin, self.now, self.scale = begin, now, scale
        self.parts, self.enough = 1.0 / baseline + 1.0 / size, baseline + size

    def compute(self) -> float | None:
        """From the three readers, of which the noise is the dear one."""
        first, current = self.begin(), self.now()
        if first is None or current is None or self.series.count < self.enough:
            return None
        spread = self.scale()
        return None if spread is None else z_score(current - first, standard_error(spread, self.parts))


def start(head: Head, baseline: int, minimum: int) -> Reader:
    """The median of the first `baseline` observations, from `minimum` on."""
    return _Start(head, minimum).read if minimum < baseline else head.start


def noise_of(series: Series, size: int) -> Reader:
    """The noise over the last `size` observations; None below three."""
    return _Noise(series, size).read


def gain_z(series: Series, begin: Reader, now: Reader, scale: Reader, baseline: int, size: int) -> Reader:
    """(now - start) in standard errors; None before baseline + window observations."""
    return _GainZ(series, begin, now, scale, baseline, size).read


def fact_value(facts: Mapping[str, Fact], name: str) -> Callable[[], Any]:
    """A config fact as it is, None while unknown; `name.key` and `name.0` look into mappings and lists."""
    plain, _, path = name.partition(".")

    def read() -> Any:
        fact = facts.get(name)
        if fact is not None:
            return fact.value
        fact = facts.get(plain) if path else None
        return None if fact is None else _inside(fact.value, path)

    return read


def fact_number(facts: Mapping[str, Fact], name: str) -> Reader:
    """A config fact as a number; None while it is unknown or something else."""
    inside = fact_value(facts, name)

    def read(facts: Mapping[str, Fact] = facts, name: str = name, inside: Callable[[], Any] = inside) -> float | None:
        fact = facts.get(name)
        value = inside() if fact is None else fact.value
        if type(value) is float:
            return value
        return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)

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
