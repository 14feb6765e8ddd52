"""A run's history: the view that conditions bind to. One per segment; it owns every ring, tracker and reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from rltriage.engine import readers
from rltriage.engine.aggregates import Best, Extremes, Head, Series, window_function
from rltriage.engine.pushing import REWINDABLE, Known, Pair, PushError, push
from rltriage.engine.rows import Fact
from rltriage.engine.steps import Strides
from rltriage.rules.conditions.base import Check, Condition, Reader, Tracker
from rltriage.rules.conditions.noise import sorted_median

T = TypeVar("T", bound=Tracker)
S = TypeVar("S")
GRADIENT, RATE = "grad_norm", "lr"
SETTLING = frozenset((8, 16, 32, 64, 128, 256))
"""Rows at which starts are complete and first rows past, so that it pays to look again at what is still needed."""
COMPLETE = 32
"""Row at which the starts of what is logged in every row are known, and windows are full."""


class Reference(Protocol):
    """Healthy ranges; `bounds` is None where there are none or the run's config does not match: `why_not` says which."""

    why_not: str

    def learn(self, facts: Mapping[str, Fact]) -> None:
        """The run's config facts, as far as they are known now."""

    def bounds(self, metric: str, step: int) -> tuple[float, float] | None:
        """(low, high) of a metric so many steps after the start of the run."""


class Hook(NamedTuple):
    """Something to run at every row that is an observation of `metrics`, before the rules are checked."""

    metrics: frozenset[str]
    update: Callable[[], None]
    forget: Callable[[], None] | None
    owner: str


class History:
    """The run's history as conditions see it (`rules.conditions.base.View`), and how rows enter it.

    Only metrics that something asked for are kept. Readers and checks are shared: the same request returns the same object.
    """

    __slots__ = (
        "_bad",
        "_cache",
        "_fired",
        "_globs",
        "_gradient",
        "_log",
        "_log_steps",
        "_moved",
        "_moving",
        "_noises",
        "_rate",
        "_resumed_at",
        "_row",
        "_states",
        "_step",
        "asked",
        "eager",
        "epoch",
        "facts",
        "generation",
        "hooks",
        "index",
        "names",
        "now",
        "owner",
        "pairs",
        "private",
        "reference",
        "series",
        "strides",
    )

    def __init__(self, facts: Mapping[str, Fact], reference: Reference | None = None) -> None:
        self.facts = facts
        self.reference = reference
        self.series: dict[str, Series] = {}
        self.hooks: list[Hook] = []
        self.pairs: dict[str, Pair] = {}
        self.names: frozenset[str] = frozenset()
        self.owner = ""
        self.private = ""
        self.epoch = 0
        self.generation = 0
        self.eager = False
        self.asked: set[tuple[int, object]] | None = None
        self.strides = Strides()
        self.now: float | None = None
        self._cache: dict[tuple[Any, ...], Any] = {}
        self._noises: dict[tuple[Any, ...], Reader] = {}
        self._states: dict[tuple[str, Condition], Any] = {}
        self._globs: dict[tuple[str, ...], list[str]] = {}
        self._fired: dict[tuple[str, str, int], float | None] = {}
        self._log: deque[Known] = deque(maxlen=REWINDABLE)
        self._log_steps: deque[int] = deque(maxlen=REWINDABLE)
        self.index = -1
        self._step = 0
        self._row: Mapping[str, float] = {}
        self._bad: dict[str, float] = {}
        self._gradient, self._rate = self._series(GRADIENT), self._series(RATE)
        self._moved = self._moving = False
        self._resumed_at = self.fact("resumed_at")

    # How rows enter.

    def begin(self, step: int, time: float | None) -> None:
        """Open the next row. Readers are shared by what is bound in one row, see `compiled`."""
        if self._cache:
            self._cache.clear()
        self._moved = self._moving
        self.index += 1
        self._step = step
        self._row = {}
        self._bad = {}
        self.strides.take(step, time, self.index, self._resumed_at())
        if self.index in SETTLING:
            self._settle()

    def _settle(self) -> None:
        """Stop feeding trackers that have learnt all they can, and let plans drop rules that cannot hold any more."""
        for series in self.series.values():
            series.retire()
        for pair in self.pairs.values():
            pair.series.retire()
        self.epoch += 1
        if self.index == COMPLETE:
            self.generation += 1

    def take(
        self,
        row: Mapping[str, float],
        good: Mapping[str, float],
        known: Known,
        pairs: Iterable[Pair],
        bad: Mapping[str, float],
    ) -> list[tuple[tuple[int, object], Exception]]:
        """Add metrics to the open row: the finite `known` ones of `good` to their series; `bad` are not finite.

        Returns the trackers that failed, which are not fed any more (see `asked`).
        """
        self._row = {**self._row, **row} if self._row else row
        if bad:
            self._bad.update(bad)
        index = self.index
        failed: list[tuple[tuple[int, object], Exception]] = []
        items = iter(known)
        while True:
            try:
                push(good, items, index)
                break
            except PushError as error:
                failed.append(((id(error.series), error.series.drop(error.tracker)), error.reason))
        for pair in pairs:
            pair.update(index, self._step)
        self._log.append(known)
        self._log_steps.append(self._step)
        if not self._moving and self._gradient.row == index and self._rate.row == index:
            self._moving = (self._gradient.last or 0.0) > 0.0 and (self._rate.last or 0.0) > 0.0
        return failed

    def rewind(self, step: int) -> None:
        """The run went back to `step`: drop the history from there, keep the baselines."""
        dropped: dict[int, tuple[Series, int]] = {}
        while self._log_steps and self._log_steps[-1] >= step:
            self._log_steps.pop()
            for series in self._log.pop():
                dropped[id(series)] = (series, dropped.get(id(series), (series, 0))[1] + 1)
        for series, count in dropped.values():
            series.rewind(count, step)
        for pair in self.pairs.values():
            pair.rewind(step)
        for hook in self.hooks:
            if hook.forget is not None:
                hook.forget()
        self.strides.rewind(step, self.index + 1)

    def follow(self, names: Iterable[str]) -> list[Series]:
        """The series of those of a row's metrics that something reads; new names are matched with the patterns."""
        for name in names:
            for globs, found in self._globs.items():
                if name not in found and any(fnmatchcase(name, glob) for glob in globs):
                    found.append(name)
                    self._series(name)
        return [self.series[name] for name in names if name in self.series]

    def drop_hooks(self, owner: str) -> None:
        """Stop running the updates of a rule that failed."""
        self.hooks = [hook for hook in self.hooks if hook.owner != owner]
        self.epoch += 1

    def meet(self, names: Iterable[str]) -> None:
        """Remember names that were logged, also without a finite value; other plans must look again at new ones."""
        known = joined(self.names, frozenset(names))
        if known is not self.names:
            self.names = known
            self.epoch += 1

    def capture(self, owner: str) -> None:
        """Remember the levels that `at_firing` readers of a rule compare with."""
        for key in self._fired:
            if key[0] == owner:
                values = sorted(self.values(key[1], key[2]))
                self._fired[key] = sorted_median(values) if values else None

    # What conditions ask for.

    def _series(self, metric: str) -> Series:
        pair = self.pairs.get(metric)
        if pair is not None:
            return pair.series
        found = self.series.get(metric)
        if found is None:
            found = self.series[metric] = Series(metric)
            self.epoch += 1
        return found

    def _once(self, key: tuple[Any, ...], make: Callable[[], T | Any]) -> Any:
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = make()
        return found

    def _dear(self, key: tuple[Any, ...], make: Callable[[], Reader]) -> Reader:
        """A reader that costs more to compute twice than to remember, whenever it is asked for."""
        found = self._noises.get(key)
        if found is None:
            found = self._noises[key] = make()
        return found

    def last(self, metric: str) -> Reader:
        """See View."""
        return self._series(metric).newest

    def age(self, metric: str) -> Callable[[], int]:
        """See View."""
        series = self._series(metric)
        return lambda: self.index - series.row

    def fresh(self, metric: str) -> Callable[[], bool]:
        """See View."""
        series = self._series(metric)
        return cast(Callable[[], bool], self._once(("fresh", metric), lambda: readers.fresh(series, self)))

    def raw(self, metric: str) -> Reader:
        """See View."""
        self._series(metric)
        return lambda: self._row.get(metric)

    def count(self, metric: str) -> Callable[[], int]:
        """See View."""
        return self._series(metric).observations

    def window(self, metric: str, size: int, stat: str, minimum: int | None = None, skip: int = 0) -> Reader:
        """See View."""
        series = self._series(metric)
        series.need(size + skip)
        enough = size if minimum is None else minimum
        key = ("window", metric, size, stat, enough, skip)
        return cast(Reader, self._once(key, lambda: readers.window(series, size, window_function(stat), enough, skip)))

    def passes(
        self, metric: str, window: tuple[int, str, int | None], word: str, limit: float | Reader, absolute: bool = False
    ) -> Check:
        """See View."""
        size, stat, minimum = window
        series = self._series(metric)
        series.need(size)
        return readers.passes(series, (size, stat, size if minimum is None else minimum), word, limit, absolute)

    def start(self, metric: str, baseline: int = 5, minimum: int | None = None) -> Reader:
        """See View."""
        head = self.track(metric, ("head", baseline), lambda: Head(baseline))
        enough = baseline if minimum is None else minimum
        key = ("start", metric, baseline, enough)
        return cast(Reader, self._once(key, lambda: readers.start(head, baseline, enough)))

    def first(self, metric: str) -> Reader:
        """See View."""
        return self.start(metric, 1)

    def _extremes(self, metric: str) -> Extremes:
        return self.track(metric, ("extremes",), Extremes)

    def lowest(self, metric: str) -> Reader:
        """See View."""
        extremes = self._extremes(metric)
        return lambda: extremes.lowest

    def highest(self, metric: str) -> Reader:
        """See View."""
        extremes = self._extremes(metric)
        return lambda: extremes.highest

    def trough(self, metric: str) -> Reader:
        """See View."""
        extremes = self._extremes(metric)
        return lambda: extremes.trough

    def noise(self, metric: str, size: int = 30) -> Reader:
        """See View."""
        series = self._series(metric)
        series.need(size + 1)
        return self._dear((metric, size), lambda: readers.noise_of(series, size))

    def gain_z(self, metric: str, baseline: int = 5, window: int = 5) -> Reader:
        """See View."""

        begin, now, scale = self.start(metric, baseline), self.window(metric, window, "median"), self.noise(metric)
        series = self._series(metric)
        return self._dear((metric, baseline, window), lambda: readers.gain_z(series, begin, now, scale, baseline, window))

    def best(self, metric: str, size: int = 5) -> Reader:
        """See View."""
        best = self.track(metric, ("best", size), lambda: Best(size))
        return lambda: best.best

    def at_firing(self, metric: str, size: int = 5) -> Reader:
        """See View."""
        self._series(metric).need(size)
        key, fired = (self.private, metric, size), self._fired
        fired.setdefault(key, None)
        return lambda: fired[key]

    def values(self, metric: str, size: int) -> list[float]:
        """See View."""
        series = self._series(metric)
        series.need(size)
        return list(series.values[-size:])

    def resolution(self, metric: str) -> Reader:
        """See View: the config fact `resolution`, one number for the log or a mapping from metric to number."""
        whole, own = self.fact("resolution"), self.fact(f"resolution.{metric}")

        def read() -> float | None:
            step = whole()
            return own() if step is None else step

        return cast(Reader, self._once(("resolution", metric), lambda: read))

    def track(self, metric: str, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """See View."""
        series = self._series(metric)
        tracker = series.tracker(key)
        if tracker is None:
            tracker = make()
            series.track(key, tracker)
        if self.asked is not None:
            self.asked.add((id(series), key))
        return cast(T, tracker)

    def check(self, condition: Condition) -> Check:
        """See View."""
        key = ("check", self.private, condition)
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = condition.bind(self)
        return cast(Check, found)

    def state(self, condition: Condition, make: Callable[[], S]) -> S:
        """See View."""
        key = (self.private, condition)
        if key not in self._states:
            self._states[key] = make()
        return cast(S, self._states[key])

    def compiled(self) -> None:
        """Everything that a batch of conditions asked for has been bound: let go of what only made them share readers.

        Trackers and states stay; who asks again gets new readers over them.
        """
        self._cache.clear()

    def derived(self, left: str, right: str, mode: str) -> str:
        """See View."""
        ratio = mode == "ratio"
        name = f"{left} / {right}" if ratio else f"{left} - {right}"
        if name not in self.pairs:
            self.pairs[name] = Pair(self._series(left), self._series(right), ratio)
            self.epoch += 1
        return name

    def each_row(
        self, metrics: frozenset[str], update: Callable[[], None], forget: Callable[[], None] | None = None
    ) -> None:
        """See View."""
        if not any(hook.update == update and hook.metrics == metrics for hook in self.hooks):
            self.hooks.append(Hook(metrics, update, forget, self.owner))
            self.epoch += 1

    def matching(self, patterns: Iterable[str]) -> Callable[[], tuple[str, ...]]:
        """See View."""
        key = tuple(patterns)
        if key not in self._globs:
            self._globs[key] = []
            self.epoch += 1
        found = self._globs[key]
        return lambda: tuple(found)

    def settled(self) -> None:
        """See View."""
        self.epoch += 1

    def moved(self) -> bool | None:
        """See View."""
        if self._moved:
            return True
        if self._gradient.count and self._rate.count:
            return False
        seen = self._gradient if self._gradient.count else self._rate
        return False if seen.count and (seen.last or 0.0) <= 0.0 else None

    def row_index(self) -> int:
        """See View."""
        return self.index

    def step(self) -> int:
        """See View."""
        return self._step

    def since_resume(self) -> int | None:
        """See View."""
        resumed = self.strides.resumed_row
        return None if resumed is None else self.index - resumed

    def nonfinite(self) -> Mapping[str, float]:
        """See View."""
        return self._bad

    def row(self) -> Mapping[str, float]:
        """See View."""
        return self._row

    def silence(self) -> tuple[float | None, float | None]:
        """See View."""
        newest = self.strides.time
        waited = None if newest is None or self.now is None else self.now - newest
        return waited, self.strides.interval

    def bounds(self, metric: str) -> Callable[[], tuple[float, float] | None]:
        """See View."""
        reference, strides = self.reference, self.strides

        def read() -> tuple[float, float] | None:
            if reference is None or strides.first is None:
                return None
            return reference.bounds(metric, self._step - strides.first)

        return read

    def fact(self, name: str) -> Reader:
        """See View."""
        return cast(Reader, self._once(("fact", name), lambda: readers.fact_number(self.facts, name)))

    def fact_text(self, name: str) -> Callable[[], object]:
        """See View."""
        return readers.fact_value(self.facts, name)


@lru_cache(maxsize=64)
def joined(names: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    """Both sets of names; one object for all runs that log the same."""
    return names if more <= names else names | more
