"""Intervals of values on one side of a limit, which is what conditions rest on."""

from __future__ import annotations

from math import inf, nextafter

from rltriage.rules.conditions.base import Guard


def side(word: str, bound: float, value: float, absolute: bool = False) -> tuple[float, float]:
    """The interval around a value in which all are, or are not, `above`, `at_least`, `below` or `at_most` a bound.

    With `absolute` sizes are compared, and the interval stays on the value's side of 0 where it has to.
    """
    size = abs(value) if absolute else value
    if word in ("above", "at_most"):
        up = size > bound
        edge = nextafter(bound, inf) if up else bound
    else:
        up = size >= bound
        edge = bound if up else nextafter(bound, -inf)
    if absolute:
        return (-edge, edge) if not up else (edge, inf) if value > 0 else (-inf, -edge)
    return (edge, inf) if up else (-inf, edge)


def unequal(value: float, bound: float) -> tuple[float, float]:
    """The values on the same side of a bound as one, of which only the bound itself is equal to it."""
    if value == bound:
        return bound, bound
    return (nextafter(bound, inf), inf) if value > bound else (-inf, nextafter(bound, -inf))


def apart(value: float, bound: float, tolerance: float) -> tuple[float, float]:
    """Values that are all within the tolerance of a bound, or all beyond it on the same side, as one is.

    A little less than all of them, so that no rounding of the difference matters.
    """
    margin = 1e-12 * max(abs(bound), tolerance)
    if abs(value - bound) <= tolerance:
        low, high = bound - tolerance + margin, bound + tolerance - margin
    elif value > bound:
        low, high = bound + tolerance + margin, inf
    else:
        low, high = -inf, bound - tolerance - margin
    return min(low, value), max(high, value)


def renewed(metric: str) -> Guard:
    """Left by the next observation, whatever it is."""
    return Guard(metric, inf, -inf)
