"""Operands: what a condition compares with. A number, a config fact or a statistic of a metric, scaled and shifted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from rltriage.rules.conditions.base import Past, Reader, View

Stat = Literal[
    "last",
    "first",
    "start",
    "now",
    "best",
    "gain_z",
    "noise",
    "lowest",
    "highest",
    "trough",
    "change",
    "count",
    "at_firing",
]
WindowStat = Literal["mean", "median", "min", "max", "first", "stdev", "spread", "q05", "q10", "q25", "q75", "q90", "q95"]


@dataclass(frozen=True, slots=True)
class Window:
    """The last observations of a metric and what is taken of them.

    window: {last: 16, stat: median}
    """

    last: int = field(metadata={"help": "how many observations", "minimum": 1, "maximum": 512})
    stat: WindowStat = field(default="median", metadata={"help": "what is taken of them; spread is max - min"})
    min: int | None = field(default=None, metadata={"help": "enough observations to judge (default: `last`)", "minimum": 1})
    skip: int = field(default=0, metadata={"help": "leave the newest ones out", "minimum": 0, "maximum": 512})

    def problems(self) -> list[str]:
        """A minimum above the size could never be met."""
        return ["min must be at most last"] if self.min is not None and self.min > self.last else []

    def __str__(self) -> str:
        skipped = f" before the newest {self.skip}" if self.skip else ""
        return f"{self.stat} of {self.last}{skipped}"


@dataclass(frozen=True, slots=True)
class Term:
    """A number, a config fact or a statistic of a metric: `times * x + plus`, with |x| for `abs`.

    above: 0.05
    above: {config: lr, times: 1.2}
    below: {metric: reward, window: {last: 10, skip: 3}, plus: {metric: reward, stat: noise, times: -4}}
    """

    metric: str | None = field(default=None, metadata={"help": "a metric", "one_of_group": "source"})
    config: str | None = field(default=None, metadata={"help": "a numeric config fact", "one_of_group": "source"})
    value: float | None = field(default=None, metadata={"help": "a number", "one_of_group": "source"})
    stat: Stat = field(default="last", metadata={"help": "a statistic over the segment so far"})
    window: Window | None = field(default=None, metadata={"help": "a statistic over the last rows that have it: {last: 5}"})
    baseline: int = field(default=5, metadata={"help": "observations that make `start`", "minimum": 1, "maximum": 512})
    recent: int = field(
        default=5, metadata={"help": "observations of `now`, `best`, `gain_z`", "minimum": 1, "maximum": 512}
    )
    min: int | None = field(default=None, metadata={"help": "`start` from fewer observations already", "minimum": 1})
    max_age: int | None = field(default=None, metadata={"help": "unknown when older than this many rows", "minimum": 0})
    abs: bool = field(default=False, metadata={"help": "take the absolute value"})
    times: float = field(default=1.0, metadata={"help": "a factor"})
    plus: Term | None = field(default=None, metadata={"help": "another operand to add"})
    default: float | None = field(default=None, metadata={"help": "the value of a config fact that is unknown"})

    def problems(self) -> list[str]:
        """Exactly one source; a statistic needs a metric, a default a config fact."""
        found = []
        given = [name for name in ("metric", "config", "value") if getattr(self, name) is not None]
        if not given:
            found.append("there is nothing to compare with: write a number, {metric: NAME} or {config: FACT}")
        elif len(given) > 1:
            found.append(
                f"{' and '.join(f'`{name}`' for name in given)} are several sources: keep one, add others by `plus`"
            )
        if self.metric is None and (self.stat != "last" or self.window is not None):
            found.append("stat and window need a metric")
        if self.window is not None and self.stat != "last":
            found.append("give stat or window, not both")
        if self.default is not None and self.config is None:
            found.append("default needs config")
        return found

    def metrics(self) -> frozenset[str]:
        """The metrics that the operand reads."""
        own = frozenset() if self.metric is None else frozenset((self.metric,))
        return own | self.plus.metrics() if self.plus is not None else own

    @property
    def cost(self) -> int:
        """As a condition's: nothing for a number, much for what needs the noise."""
        own = 0 if self.value is not None else 4 if self.stat in ("gain_z", "noise") else 2 if self._windowed else 1
        return own if self.plus is None else own + self.plus.cost

    @property
    def _windowed(self) -> bool:
        return self.stat == "now" or (self.window is not None and self.window.last > 1)

    @property
    def constant(self) -> float | None:
        """The value of a plain number, None for everything that can change."""
        return None if self.value is None or self.plus is not None or self.abs else self.value * self.times

    def lasting(self, view: View) -> Callable[[Past], bool] | None:
        """Whether the value stays as it is until config facts change; None if it never does."""
        plus = None if self.plus is None else self.plus.lasting(view)
        if self.plus is not None and plus is None:
            return None
        if self.metric is None:
            return plus or _always
        if self.stat not in ("first", "start") or self.window is not None or self.max_age is not None:
            return None
        complete = view.start(self.metric, 1 if self.stat == "first" else self.baseline)
        return lambda past: complete(past) is not None and (plus is None or plus(past))

    def bind(self, view: View) -> Reader:
        """A reader of the operand's value, unknown while any part is."""
        read = self.source(view)
        if self.abs:
            read = _absolute(read)
        plus = self.plus
        if plus is not None and plus.constant is not None:
            return _affine(read, self.times, plus.constant)
        if plus is not None:
            return _sum(read, self.times, plus.bind(view))
        return read if self.times == 1.0 else _affine(read, self.times, 0.0)

    def source(self, view: View) -> Reader:
        """A reader of the number, fact or statistic itself, before it is scaled and shifted."""
        if self.metric is not None:
            read = self._statistic(view, self.metric)
            return read if self.max_age is None else _young(read, view, self.metric, self.max_age)
        if self.config is not None:
            fact, default = view.fact(self.config), self.default
            return fact if default is None else _default(fact, default)
        constant = self.value
        return lambda past: constant

    def _statistic(self, view: View, metric: str) -> Reader:
        """The reader of the statistic that the parameters name."""
        if self.window is not None:
            return view.window(metric, self.window.last, self.window.stat, self.window.min, self.window.skip)
        if self.stat == "start":
            return view.start(metric, self.baseline, self.min)
        if self.stat == "now":
            return view.window(metric, self.recent, "median", self.min)
        if self.stat == "best":
            return view.best(metric, self.recent)
        if self.stat == "gain_z":
            return view.gain_z(metric, self.baseline, self.recent)
        if self.stat == "noise":
            return view.noise(metric)
        if self.stat == "at_firing":
            return view.at_firing(metric, self.recent)
        if self.stat == "change":
            return _difference(view.last(metric), view.window(metric, 1, "median", None, 1))
        if self.stat == "count":
            return view.count(metric)
        plain = {"last": view.last, "first": view.first, "lowest": view.lowest, "highest": view.highest}
        return plain.get(self.stat, view.trough)(metric)

    def __str__(self) -> str:
        """As reasons print it: `1.5 x start of entropy`."""
        if self.value is not None:
            body = f"{self.value * self.times:.4g}"
        else:
            name = f"config.{self.config}" if self.config is not None else str(self.metric)
            if self.window is not None:
                name = f"{self.window} of {name}"
            elif self.stat != "last":
                name = f"{self.stat.replace('_', ' ')} of {name}"
            name = f"|{name}|" if self.abs else name
            body = name if self.times == 1.0 else f"{self.times:.4g} x {name}"
        return body if self.plus is None else f"{body} + {self.plus}"


def number(value: float) -> Term:
    """The operand of a plain number."""
    return Term(value=value)


def _always(past: Past) -> bool:
    return True


def _absolute(read: Reader) -> Reader:
    def absolute(past: Past) -> float | None:
        value = read(past)
        return None if value is None else abs(value)

    return absolute


def _affine(read: Reader, times: float, plus: float) -> Reader:
    def affine(past: Past) -> float | None:
        value = read(past)
        return None if value is None else times * value + plus

    return affine


def _sum(read: Reader, times: float, other: Reader) -> Reader:
    def total(past: Past) -> float | None:
        value, addend = read(past), other(past)
        return None if value is None or addend is None else times * value + addend

    return total


def _difference(read: Reader, other: Reader) -> Reader:
    def difference(past: Past) -> float | None:
        value, subtrahend = read(past), other(past)
        return None if value is None or subtrahend is None else value - subtrahend

    return difference


def _default(read: Reader, default: float) -> Reader:
    def with_default(past: Past) -> float:
        value = read(past)
        return default if value is None else value

    return with_default


def _young(read: Reader, view: View, metric: str, max_age: int) -> Reader:
    age = view.age(metric)

    def young(past: Past) -> float | None:
        return read(past) if age(past) <= max_age else None

    return young
