"""A window's second half against its first."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rltriage.rules.conditions.base import Check, Guards, Kind, Observer, Past, Rest, Verdict, View, text
from rltriage.rules.conditions.noise import median, noise, standard_error, z_score

NOISE_SIZE = 30


class Course(Observer):
    """The last values of a metric with their steps, and from the start the first half and the extremes since."""

    __slots__ = (
        "begun",
        "cached",
        "count",
        "first_half",
        "from_start",
        "highest",
        "kept",
        "lowest",
        "past",
        "size",
        "steps",
        "values",
        "window_steps",
    )

    def __init__(self, size: int, window_steps: int | None, from_start: bool, past: Past) -> None:
        self.size = size
        self.window_steps = window_steps
        self.from_start = from_start
        self.kept = max(size, NOISE_SIZE) if from_start else size
        self.past = past
        self.values = array("d")
        self.steps = array("q")
        self.first_half = array("d")
        self.count = 0
        self.highest = float("-inf")
        self.lowest = float("inf")
        self.begun: float | None = None
        self.cached: tuple[float, float] | None = None

    def push(self, value: float) -> None:
        """Take one observation."""
        self.count += 1
        self.cached = None
        self.values.append(value)
        if len(self.values) > self.kept:
            del self.values[0]
        if self.window_steps is not None:
            self.steps.append(self.past.step)
            if len(self.steps) > self.kept:
                del self.steps[0]
            while self.steps[0] <= self.steps[-1] - self.window_steps:
                del self.steps[0], self.values[0]
        if self.from_start:
            if len(self.first_half) < self.size // 2:
                self.first_half.append(value)
            else:
                self.highest = max(self.highest, value)
                self.lowest = min(self.lowest, value)

    @property
    def reach(self) -> int:
        """The values that a new one would be compared with."""
        return self.kept

    def rewind(self, values: Sequence[float], step: int) -> None:
        """Drop what the run went back over; the first half and the extremes since are kept."""
        self.cached = None
        self.values = array("d", values)
        if self.window_steps is not None:
            while self.steps and self.steps[-1] >= step:
                del self.steps[-1]
            self.values = self.values[len(self.values) - len(self.steps) :]

    def halves(self) -> tuple[float, float] | None:
        """The medians of both halves; None while the window is not full (or, in steps, holds fewer than 4)."""
        if self.cached is None:
            size = self._size()
            if size < 4 or self.count < size:
                return None
            half = size // 2
            if len(self.values) < (half if self.from_start else size):
                return None  # a run that went back several times has seen more than what is left
            if self.begun is None:
                self.begun = median(self.first_half) if self.from_start else None
            first = median(self.values[-size : -size + half]) if self.begun is None else self.begun
            self.cached = (first, median(self.values[-half:]))
        return self.cached

    def came_back(self, sign: float, start_min: float) -> bool:
        """Whether a later value was back beyond the first half's median, which no newer one undoes."""
        first = self.begun
        if first is None or self.count < self.size or abs(first) < start_min:
            return False
        return self.highest > first if sign < 0 else self.lowest < first

    def z(self) -> float:
        """The difference of the halves, which the caller has seen, in standard errors."""
        first, second = self.cached or (0.0, 0.0)
        if first == second:
            return 0.0
        size = self._size()
        scale = noise(self.values if self.from_start else self.values[-size:])
        return z_score(second - first, standard_error(scale, 4.0 / size))

    def _size(self) -> int:
        return len(self.values) if self.window_steps is not None else self.size


@dataclass(frozen=True, slots=True)
class Trend(Kind):
    """Holds when a window's second half lies above, below or level with its first half, in units of its own noise.

    z = (median(second half) - median(first half)) / (1.2533 * s * sqrt(4 / w)), s the noise of the window. `up` z >=
    `z`, `down` z <= -`z`, `flat` |z| < `flat`. Without noise equal halves are flat and others a trend. The window is
    the last `window` observations, or those of the last `window_steps` steps (at least 4, at most `window`), or with
    `from_start` the first `window`/2 observations of the segment against the last `window`/2 (s over at most the last
    30). `ratio`: the second half must also be at most (down) or at least (up) that times the first. `monotone` (with
    `from_start`): no later value above (down) or below (up) the first half's median. Unknown while |first half| is
    below `start_min`.

    trend: {metric: reward, direction: down, window: 8, from_start: true, z: 4, ratio: 0.5, monotone: true, start_min: 0.05}
    """

    kind: ClassVar[str] = "trend"

    metric: str = field(metadata={"help": "the metric that is judged"})
    direction: Literal["up", "down", "flat"] = field(metadata={"help": "where the second half lies"})
    window: int = field(default=20, metadata={"help": "observations", "minimum": 4, "maximum": 512})
    window_steps: int | None = field(default=None, metadata={"help": "steps instead of observations", "minimum": 2})
    from_start: bool = field(default=False, metadata={"help": "compare with the first half window of the segment"})
    z: float = field(default=3.0, metadata={"help": "standard errors that make a trend", "minimum": 0})
    flat: float = field(default=1.0, metadata={"help": "standard errors below which it is level", "minimum": 0})
    ratio: float | None = field(default=None, metadata={"help": "second half at most (down) or at least (up) this x first"})
    monotone: bool = field(default=False, metadata={"help": "no later value back beyond the first half's median"})
    start_min: float | None = field(default=None, metadata={"help": "unknown while |first half| is below this"})

    def problems(self) -> list[str]:
        """Fields that need one another."""
        found = []
        if self.monotone and not self.from_start:
            found.append("monotone needs from_start")
        if self.window_steps is not None and self.from_start:
            found.append("give window_steps or from_start, not both")
        if self.direction == "flat" and (self.ratio is not None or self.monotone):
            found.append("ratio and monotone need direction up or down")
        return found

    def metrics(self) -> frozenset[str]:
        """The judged metric."""
        return frozenset((self.metric,))

    @property
    def cost(self) -> int:
        """Two medians."""
        return 3

    def bind(self, view: View) -> Check:
        """Compile; the halves are computed once per observation and shared."""
        tracked = self._course(view)
        direction, limit, flat, ratio, monotone = self.direction, self.z, self.flat, self.ratio, self.monotone
        start_min = 0.0 if self.start_min is None else self.start_min
        sign = -1.0 if direction == "down" else 1.0

        def check(past: Past) -> bool | None:
            course = tracked(past)
            if monotone and course.came_back(sign, start_min):
                return False
            halves = course.halves()
            if halves is None:
                return None
            first, second = halves
            if abs(first) < start_min:
                return None
            if direction == "flat":
                return abs(course.z()) < flat
            if sign * second < sign * first or (ratio is not None and sign * second < sign * ratio * first):
                return False
            return sign * course.z() >= limit

        return check

    def rest(self, view: View) -> Rest:
        """For good, once a later value was back where a monotone trend began."""
        tracked, sign = self._course(view), -1.0 if self.direction == "down" else 1.0
        start_min = 0.0 if self.start_min is None else self.start_min

        def rest(past: Past) -> Guards | None:
            return () if self.monotone and tracked(past).came_back(sign, start_min) else None

        return rest

    def _course(self, view: View) -> Callable[[Past], Course]:
        size, steps, from_start = self.window, self.window_steps, self.from_start
        key = ("course", size, steps, from_start)
        return view.track(self.metric, key, lambda past: Course(size, steps, from_start, past))

    def explain(self, view: View, past: Past) -> Verdict:
        """The numbers that the check compares."""
        course = self._course(view)(past)
        halves = course.halves()
        if halves is None:
            return Verdict(None, {}, f"{self.metric}: {course.count} observations are too few")
        (first, second), z = halves, course.z()
        values = {"first": first, "second": second, "z": z}
        reason = f"{self.metric}: half medians {text(first)} -> {text(second)}, z {text(z)}"
        if self.start_min is not None and abs(first) < self.start_min:
            reason += f"; a start below {self.start_min:g} cannot be judged"
        return Verdict(view.check(self)(past), values, reason)
