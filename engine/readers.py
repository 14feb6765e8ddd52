"""Compiled readers over a series: closures that compute once per observation and allocate nothing in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from rltriage.engine.aggregates import Head, Series, WindowFunction
from rltriage.engine.rows import Fact
from rltriage.rules.conditions.base import Reader
from rltriage.rules.conditions.noise import median, noise, standard_error, z_score


class HasIndex(Protocol):
    """Whoever knows which row is being judged."""

    index: int


def last(series: Series) -> Reader:
    """The newest observation."""

    def read(series: Series = series) -> float | None:
        return series.last

    return read


def fresh(series: Series, history: HasIndex) -> Callable[[], bool]:
    """Whether the newest observation is of the row that is being judged."""

    def read(series: Series = series, history: HasIndex = history) -> bool:
        return series.row == history.index

    return read


def count(series: Series) -> Callable[[], int]:
    """Observations of the segment."""

    def read(series: Series = series) -> int:
        return series.version - series.lost

    return read


def window(series: Series, size: int, function: WindowFunction, minimum: int, skip: int) -> Reader:
    """A function of the last `size` observations before the newest `skip`; None below `minimum` of them."""
    if size == 1 and not skip:
        return last(series)
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


class _Start:
    """The median of the first observations; computed until the head is full."""

    __slots__ = ("baseline", "cached", "head", "minimum", "seen")

    def __init__(self, head: Head, baseline: int, minimum: int) -> None:
        self.head, self.baseline, self.minimum = head, baseline, minimum
        self.seen = -1
        self.cached: float | None = None

    def read(self) -> float | None:
        """The value at this row."""
        if self.seen == self.baseline:
            return self.cached
        seen = min(len(self.head.values), self.baseline)
        if seen != self.seen:
            self.seen = seen
            self.cached = median(self.head.values[:seen]) if seen >= self.minimum else None
        return self.cached


class _Noise(_Cached):
    """None below three observations."""

    __slots__ = ("size",)

    def __init__(self, series: Series, size: int) -> None:
        super().__init__(series)
        self.size = size

    def compute(self) -> float | None:
        """Over the last observations."""
        values = self.series.values[-self.size :]
        return noise(values) if len(values) >= 3 else None


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
    return _Start(head, baseline, minimum).read


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
    read_any = fact_value(facts, name)

    def read() -> float | None:
        value = read_any()
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value)

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
