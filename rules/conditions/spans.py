"""Comparisons whose both sides move: what they can become while every metric that they read stays where it has been.

The new values of each metric are taken to lie around those that it had lately (`Box`), which bounds both sides (`Span`).
Where the bounds already decide, the comparison rests until a value leaves its box. Products and sums of floats are
monotone, so that the bounds are exact: they are computed as the operand itself is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rltriage.rules.conditions.base import Guard, Guards, Past, Reader, Rest, View

if TYPE_CHECKING:
    from rltriage.rules.conditions.terms import Term

Span = tuple[float, float]
"""The least and the greatest value."""
Box = Mapping[str, Span]
"""Where each metric stays."""
Bounds = Callable[[Past, Box], Span | None]
"""Between what an operand stays while its metrics stay in their boxes; None if nobody can tell."""

RECENT = 10
"""Observations, at least, that say where a metric stays."""
ENOUGH = 5
"""With fewer nobody can tell."""
ROOM = (0.6, 0.2)
"""How far beyond them it may go, as a share of how far they lie apart: the wider box is tried first."""
BETWEEN = frozenset(("median", "min", "max", "first"))
"""Statistics of a window that lie between its least and its greatest value, whatever is rounded."""


def rest_apart(word: str, left: Term, right: Term, view: View) -> Rest:
    """While the metrics of both sides stay in boxes in which the left is, or is not, `word` the right."""
    one, other = bounds(left, view), bounds(right, view)
    sizes: dict[str, int] = {}
    for term in (*chain(left), *chain(right)):
        if term.metric is not None:
            sizes[term.metric] = max(sizes.get(term.metric, RECENT), reach(term))
    recent = {metric: view.values(metric, size) for metric, size in sizes.items()}

    def rest(past: Past) -> Guards | None:
        values = {metric: read(past) for metric, read in recent.items()}
        if min(map(len, values.values())) < ENOUGH:
            return None
        for room in ROOM:
            box = {metric: widened(found, room) for metric, found in values.items()}
            if decided(word, one(past, box), other(past, box)):
                return tuple(Guard(metric, low, high) for metric, (low, high) in box.items())
        return None

    return rest


def decided(word: str, left: Span | None, right: Span | None) -> bool:
    """Whether `left word right` has one answer for all values of both."""
    if left is None or right is None:
        return False
    if word in ("below", "at_most"):
        left, right = right, left
    if word in ("above", "below"):
        return left[0] > right[1] or left[1] <= right[0]
    return left[0] >= right[1] or left[1] < right[0]


def widened(values: list[float], room: float) -> Span:
    """The range of values and a share of it on both sides."""
    low, high = min(values), max(values)
    return low - room * (high - low), high + room * (high - low)


def chain(term: Term) -> list[Term]:
    """An operand and those that are added to it."""
    return [term] if term.plus is None else [term, *chain(term.plus)]


def reach(term: Term) -> int:
    """The observations that its value is made of."""
    if term.window is not None:
        return term.window.last + term.window.skip
    return term.recent if term.stat in ("now", "best") else 1


def bounds(term: Term, view: View) -> Bounds:
    """Those of an operand: its source, scaled and shifted as `Term.bind` does it."""
    source = _source(term, view)
    plus = None if term.plus is None else bounds(term.plus, view)
    times, absolute = term.times, term.abs

    def spans(past: Past, box: Box) -> Span | None:
        found, added = source(past, box), (0.0, 0.0) if plus is None else plus(past, box)
        if found is None or added is None:
            return None
        low, high = _sizes(*found) if absolute else found
        low, high = (times * low, times * high) if times >= 0 else (times * high, times * low)
        return low + added[0], high + added[1]

    return spans


def _sizes(low: float, high: float) -> Span:
    return (0.0 if low <= 0.0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _source(term: Term, view: View) -> Bounds:
    """Bounds of the operand before it is scaled."""
    read, metric, stat = term.source(view), term.metric, term.stat
    lasting = replace(term, plus=None).lasting(view)
    if lasting is not None:
        return _fixed(read, lasting)
    if metric is None or term.max_age is not None:
        return _unbounded
    if term.window is not None:
        return _within(read, metric) if term.window.stat in BETWEEN else _unbounded
    if stat in ("last", "now"):
        return _within(read, metric)
    if stat in ("best", "highest"):
        return _risen(read, metric)
    if stat == "trough":
        return _fallen(read, metric, view.highest(metric))
    return _fallen(read, metric) if stat == "lowest" else _unbounded


def _unbounded(past: Past, box: Box) -> Span | None:
    return None


def _fixed(read: Reader, lasting: Callable[[Past], bool]) -> Bounds:
    def spans(past: Past, box: Box) -> Span | None:
        value = read(past) if lasting(past) else None
        return None if value is None else (value, value)

    return spans


def _within(read: Reader, metric: str) -> Bounds:
    """What is made of values in the box lies in it, once it is known."""

    def spans(past: Past, box: Box) -> Span | None:
        return None if read(past) is None else box[metric]

    return spans


def _risen(read: Reader, metric: str) -> Bounds:
    """A highest value stays or rises to what the box allows."""

    def spans(past: Past, box: Box) -> Span | None:
        value = read(past)
        return None if value is None else (value, max(value, box[metric][1]))

    return spans


def _fallen(read: Reader, metric: str, highest: Reader | None = None) -> Bounds:
    """A lowest value stays or falls to what the box allows; one since the highest only where the box allows no higher."""

    def spans(past: Past, box: Box) -> Span | None:
        value, (low, high) = read(past), box[metric]
        top = math.inf if highest is None else highest(past)
        return None if value is None or top is None or high >= top else (min(value, low), value)

    return spans
