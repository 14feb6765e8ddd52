"""Compiled readers over a series: closures that compute once per observation and allocate nothing in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rltriage.engine.aggregates import Head, Series, WindowFunction
from rltriage.engine.rows import Fact
from rltriage.rules.conditions.base import Reader
from rltriage.rules.conditions.noise import noise, sorted_median, standard_error, z_score


def last(series: Series) -> Reader:
    """The newest observation."""
    return lambda: series.last


def window(series: Series, size: int, function: WindowFunction, minimum: int, skip: int) -> Reader:
    """A function of the last `size` observations before the newest `skip`; None below `minimum` of them."""
    version, cached = -1, None
    reach = size + skip

    def read() -> float | None:
        nonlocal version, cached
        if series.version != version:
            version = series.version
            values = series.values
            seen = len(values) - skip
            if seen < minimum:
                cached = None
            elif skip:
                cached = function(values[max(0, len(values) - reach) : seen])
            else:
                cached = function(values[-size:])
        return cached

    return read


def start(head: Head, baseline: int, minimum: int) -> Reader:
    """The median of the first `baseline` observations, from `minimum` on."""
    seen, cached = -1, None

    def read() -> float | None:
        nonlocal seen, cached
        if seen == baseline:
            return cached
        count = min(len(head.values), baseline)
        if count != seen:
            seen = count
            cached = sorted_median(sorted(head.values[:count])) if count >= minimum else None
        return cached

    return read


def noise_of(series: Series, size: int) -> Reader:
    """The noise over the last `size` observations; None below three."""
    version, cached = -1, None

    def read() -> float | None:
        nonlocal version, cached
        if series.version != version:
            version = series.version
            values = series.values[-size:]
            cached = noise(values) if len(values) >= 3 else None
        return cached

    return read


def gain_z(series: Series, begin: Reader, now: Reader, scale: Reader, baseline: int, size: int) -> Reader:
    """(now - start) in standard errors; None before baseline + window observations."""
    version, cached = -1, None
    parts, enough = 1.0 / baseline + 1.0 / size, baseline + size

    def read() -> float | None:
        nonlocal version, cached
        if series.version != version:
            version = series.version
            first, current, spread = begin(), now(), scale()
            if first is None or current is None or spread is None or series.count < enough:
                cached = None
            else:
                cached = z_score(current - first, standard_error(spread, parts))
        return cached

    return read


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
