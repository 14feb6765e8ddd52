"""Intervals of values that do not reach a limit, which is what conditions rest on."""

from __future__ import annotations

from math import inf, nextafter

from rltriage.rules.conditions.base import Guard


def short_of(word: str, bound: float, absolute: bool = False) -> tuple[float, float] | None:
    """The values that are not `above`, `at_least`, `below` or `at_most` a bound; None where those are no interval."""
    if word in ("above", "at_least"):
        high = bound if word == "above" else nextafter(bound, -inf)
        return (-high if absolute else -inf), high
    return None if absolute else (bound if word == "below" else nextafter(bound, inf), inf)


def unequal(value: float, bound: float) -> tuple[float, float]:
    """The values on the same side of a bound as one that is not equal to it."""
    return (nextafter(bound, inf), inf) if value > bound else (-inf, nextafter(bound, -inf))


def renewed(metric: str) -> Guard:
    """Left by the next observation, whatever it is."""
    return Guard(metric, inf, -inf)
