"""Values that a training loop logs and that are no numbers: counted, and said once for each name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from rltriage.engine.sources.base import to_float
from rltriage.saying import warn

MOST_NAMES = 20
"""Of so many names it is said; a loop that makes up names must not fill the log."""
DEEPEST = 16
"""Levels of mappings in a row; one that contains itself has no end."""
MOST_VALUES = 10_000
"""Values of a row that are read: a tenth of a second's work at most, where a loop logs one for each sample."""
MOST_ITEMS = 32
"""Of a list that are kept. A configuration in a row may hold short ones; a list is never a metric."""
_OTHERS = "others"
_TOO_MANY = object()
_KEPT = (str, bool, int, float, type(None))


class Odd(NamedTuple):
    """A value of a row that no rule can read."""

    name: str
    value: Any


def read(metrics: Mapping[str, Any]) -> tuple[dict[str, Any], list[Odd]]:
    """A row with Python's own numbers in place of arrays, tensors and the like, each asked for its value once.

    Nothing of it is the training loop's own, so nothing changes or stays in memory when that goes on. Texts and None stay
    in the row, for a framework may mean something by them, and of a list the texts and numbers among its first MOST_ITEMS;
    other objects, what comes after MOST_VALUES, and a mapping within itself are left out.
    """
    odd: list[Odd] = []
    return _read(metrics, odd, [MOST_VALUES], "", (id(metrics),)), odd


def _read(
    metrics: Mapping[str, Any], odd: list[Odd], left: list[int], prefix: str, inside: tuple[int, ...]
) -> dict[str, Any]:
    """One mapping of a row: `left` is how many values may still be read, `inside` are the mappings around."""
    row: dict[str, Any] = {}
    for name, value in metrics.items():
        if left[0] <= 0:
            odd.append(Odd(_OTHERS, _TOO_MANY))
            break
        left[0] -= 1
        if type(name) is not str:
            name = _text(name)
        if type(value) is float or type(value) is int:
            row[name] = value
            continue
        try:
            if isinstance(value, Mapping) and len(inside) <= DEEPEST and id(value) not in inside:
                row[name] = _read(value, odd, left, f"{prefix}{name}/", (*inside, id(value)))
                continue
            number = to_float(value)
        except Exception:  # not even its type can be asked
            number = None
        if number is None:
            odd.append(Odd(f"{prefix}{name}", value))
        if type(value) in _KEPT:
            row[name] = value
        elif type(value) is list or type(value) is tuple:
            row[name] = [item for item in value[:MOST_ITEMS] if _is_plain(item)]
        elif number is not None:
            row[name] = float(number)
    return row


def _is_plain(item: Any) -> bool:
    """Whether it is of a type that cannot change. By identity: a foreign type may raise when it is compared."""
    kind = type(item)
    return kind is float or kind is int or kind is str or kind is bool or item is None


def _text(name: Any) -> str:
    try:
        return str(name)
    except Exception:  # a name that cannot be written is another one's __str__ that failed
        return type(name).__name__


class NonNumbers:
    """How often each name had a value that no rule can read."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def note(self, run: str, odd: Iterable[Odd]) -> None:
        """Take note of names with values that cannot be read."""
        for name, value in odd:
            self._note(run, name, value)

    def _note(self, run: str, name: str, value: Any) -> None:
        new = name not in self.counts
        if new and len(self.counts) >= MOST_NAMES:
            name, new = _OTHERS, False
        self.counts[name] = self.counts.get(name, 0) + 1
        if not new:
            return
        with suppress(Exception):  # a value that cannot be described
            warn("run=%s: %s is %s, which no rule can read: %s (said once)", run, name, *_words(value))


def _words(value: Any) -> tuple[str, str]:
    """What it is, and what to log instead."""
    if value is _TOO_MANY:
        return f"what comes after {MOST_VALUES} values of a row", "log their mean, or another number that sums them up"
    if value is None:
        return "None", "leave the name out of rows that have no value for it"
    if isinstance(value, str):
        return "text", "log a number, and give what never changes as config={...}"
    if isinstance(value, (list, tuple, set)) or hasattr(value, "shape"):
        return f"a {type(value).__name__} of several values", "log its mean, or another number that sums it up"
    return f"a {type(value).__name__}", "log a number"
