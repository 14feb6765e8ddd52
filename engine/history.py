"""One run's history: every ring, tracker and counter of a segment, and how rows enter it. Compiled checks read it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from rltriage.engine.aggregates import Series
from rltriage.engine.pushing import REWINDABLE, Known, Pair, PushError, feed, known_of, push
from rltriage.engine.readers import fact_number
from rltriage.engine.resting import Sleeper, disturb
from rltriage.engine.rows import Fact
from rltriage.engine.steps import Strides
from rltriage.rules.conditions.noise import sorted_median

if TYPE_CHECKING:
    from rltriage.engine.layout import Layout

SETTLING = frozenset((8, 16, 32, 64, 128, 256))
"""Rows at which starts are complete and first rows past, so that it pays to look for trackers that have learnt all."""
MOST_MATCHED = 256
"""Metrics of a run that a pattern stands for: a log that names one per task or prompt does not slow its run down."""
MOST_NAMES = 4096
"""Names of a run that are remembered beside those that rules name."""
TRIMMED = 16
"""Rows after which rings let go of what nobody needs."""
_resumed_at = fact_number("resumed_at")


class Reference(Protocol):
    """Healthy ranges; `bounds` is None where there are none or the run's config does not match: `why_not` says which."""

    why_not: str

    def learn(self, facts: Mapping[str, Fact]) -> None:
        """The run's config facts, as far as they are known now."""

    def bounds(self, metric: str, step: int) -> tuple[float, float] | None:
        """(low, high) of a metric so many steps after the start of the run."""


class History:
    """What one run has logged in one segment (`rules.conditions.base.Past`), as far as its layout needs it.

    Metrics that the run has not logged are the layout's blank series, which nobody pushes into. `memo` holds what readers
    computed, `kept` the counters of conditions, `fired` the levels at which rules fired, `alarms` who wakes at which row,
    `alike` who wakes when a row has other finite metrics than `keys`, those of the newest one, or some that are not finite;
    `stirs` counts who fell asleep or woke.
    """

    __slots__ = (
        "_log",
        "_log_steps",
        "_moved",
        "_moving",
        "alarms",
        "alike",
        "bad",
        "epoch",
        "facts",
        "fired",
        "index",
        "kept",
        "keys",
        "layout",
        "matched",
        "memo",
        "names",
        "now",
        "pairs",
        "reference",
        "row",
        "series",
        "step",
        "stirs",
        "strides",
        "version",
    )

    def __init__(
        self,
        layout: Layout,
        facts: Mapping[str, Fact],
        reference: Reference | None = None,
        *,
        series: dict[str, Series] | None = None,
    ) -> None:
        self.layout = layout
        self.version = layout.version
        self.facts = facts
        self.reference = reference
        self.series: dict[str, Series] = dict(layout.blank.series) if series is None else series
        self.pairs: dict[str, Pair] = {}
        self.matched: dict[tuple[str, ...], list[str]] = {}
        self.memo: dict[object, Any] = {}
        self.kept: dict[object, Any] = {}
        self.fired: dict[tuple[str, str, int], float | None] = {}
        self.alarms: dict[int, list[Sleeper]] = {}
        self.alike: list[Sleeper] = []
        self.keys: tuple[str, ...] = ()
        self.names: frozenset[str] = frozenset()
        self.epoch = self.stirs = 0
        self.strides = Strides()
        self.now: float | None = None
        self.index = -1
        self.step = 0
        self.row: Mapping[str, float] = {}
        self.bad: Mapping[str, float] = {}
        self._log: deque[tuple[Series, ...]] = deque(maxlen=REWINDABLE)
        self._log_steps: deque[int] = deque(maxlen=REWINDABLE)
        self._moved = self._moving = False

    # How rows enter.

    def begin(self, step: int, time: float | None) -> None:
        """Open the next row."""
        if self.layout.version != self.version:
            self.fit()
        self._moved = self._moving
        self.index += 1
        self.step = step
        self.row = self.bad = _NONE
        self.now = time
        self.strides.take(step, time, self.index, _resumed_at(self) if "resumed_at" in self.facts else None)
        due = self.alarms.pop(self.index, None)
        if due is not None:
            for sleeper in due:
                sleeper.ring(self)
        if not self.index % TRIMMED:
            for series in self.series.values():
                series.trim()
        if self.index in SETTLING:
            self.epoch += 1
            for series in self.series.values():
                series.retire()

    def take(
        self,
        row: Mapping[str, float],
        good: Mapping[str, float],
        known: Known,
        pairs: Iterable[Pair],
        bad: Mapping[str, float],
    ) -> list[tuple[set[str], Exception]]:
        """Add metrics to the open row: the finite `known` ones of `good` to their series; `bad` are not finite.

        Returns the failures of trackers, which are not fed any more, each with the rules that read it.
        """
        self.row = {**self.row, **row} if self.row else row
        if bad:
            self.bad = {**self.bad, **bad}
        index = self.index
        failed: list[tuple[set[str], Exception]] = []
        left: list[Series] = []
        push(known, good, index, left)
        tracked = iter(known.tracked)
        while True:
            try:
                feed(tracked)
                break
            except PushError as error:
                failed.append((error.series.drop(error.tracker), error.reason))
        for pair in pairs:
            if not pair.update(index, self.step):
                left.append(pair.series)
        for series in left:
            disturb(series, self)
        self._log.append(known.series)
        self._log_steps.append(self.step)
        if not self._moving:
            gradient, rate = self.series["grad_norm"], self.series["lr"]
            if gradient.row == index and rate.row == index:
                self._moving = (gradient.last or 0.0) > 0.0 and (rate.last or 0.0) > 0.0
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
        for hook in self.layout.hooks:
            hook.counter(self).forget()
        self.strides.rewind(step, self.index + 1)

    # What is kept.

    def own(self, metric: str) -> Series:
        """The run's own series of a metric that the layout needs, made when it is first logged or waited for."""
        found = self.series[metric]
        if found is self.layout.blank.series[metric]:
            with self.layout.lock:
                found = self.series[metric] = Series(self.layout.needs[metric], self)
            self.epoch += 1
        return found

    def follow(self, names: Iterable[str], before: Known | None = None) -> Known:
        """The series of those of a row's metrics that something reads; new names are matched with the patterns."""
        layout = self.layout
        for name in names:
            for globs in layout.patterns_of(name):
                self._match(globs, name)
        if layout.version != self.version:
            self.fit()
        known = tuple(self.own(name) for name in names if name in layout.needs and name not in layout.derivations)
        for name, (left, right, ratio) in layout.derivations.items():
            if name not in self.pairs and self._is_own(left) and self._is_own(right):
                self.pairs[name] = Pair(self.own(left), self.own(right), ratio, self.own(name))
        return known_of(known, before)

    def _match(self, globs: tuple[str, ...], name: str) -> None:
        found = self.matched.setdefault(globs, [])
        if name not in found and len(found) < MOST_MATCHED:
            self.layout.meet(globs, name)
            found.append(name)

    def _is_own(self, metric: str) -> bool:
        return self.series[metric] is not self.layout.blank.series[metric]

    def fit(self) -> None:
        """Keep what the layout needs by now."""
        layout = self.layout
        with layout.lock:
            self.version = layout.version
            for name, need in layout.needs.items():
                blank = layout.blank.series[name]
                mine = self.series.setdefault(name, blank)
                if mine is not blank:
                    mine.fit(need, self)
        self.epoch += 1

    def adopt(self, layout: Layout) -> None:
        """Go on with other rules: equal conditions keep their counters, what is new starts from what was kept."""
        old, self.layout = self.layout, layout
        self._match_again()
        self.series = {
            name: series
            for name, series in self.series.items()
            if name in layout.needs and series is not old.blank.series[name]
        }
        self.pairs = {name: pair for name, pair in self.pairs.items() if name in layout.derivations}
        self.memo.clear()
        states = layout.states()
        self.kept = {
            states[key]: self.kept[made] for key, made in old.states().items() if key in states and made in self.kept
        }
        self.fit()

    def _match_again(self) -> None:
        """Which of the known metrics the patterns of other rules stand for: in the order that they had, else the row's."""
        before, self.matched = self.matched, {}
        order = dict.fromkeys((*(name for names in before.values() for name in names), *self.row, *sorted(self.names)))
        for name in order:
            for globs in self.layout.patterns_of(name):
                if name in self.names:
                    self._match(globs, name)

    def meet(self, names: Iterable[str]) -> None:
        """Remember names that were logged, also without a finite value; other plans must look again at new ones."""
        more = frozenset(names)
        known = joined(self.names, more if len(self.names) < MOST_NAMES else more & self.layout.reads)
        if known is not self.names:
            self.names = known
            self.epoch += 1

    def compare(self, names: tuple[str, ...], bad: Mapping[str, float]) -> None:
        """Wake those who sleep while rows are alike, if a row with these finite metrics, and bad ones, is not."""
        if bad or names != self.keys:
            self.keys = names
            for sleeper in tuple(self.alike):
                sleeper.wake(self)

    def capture(self, rule: str) -> None:
        """Remember the levels that `at_firing` readers of a rule compare with."""
        for key in self.layout.levels_of(rule):
            values = sorted(self.series[key[1]].values[-key[2] :])
            self.fired[key] = sorted_median(values) if values else None

    # What compiled checks ask beyond series.

    def moved(self) -> bool | None:
        """See Past."""
        if self._moved:
            return True
        gradient, rate = self.series["grad_norm"], self.series["lr"]
        if gradient.count and rate.count:
            return False
        seen = gradient if gradient.count else rate
        return False if seen.count and (seen.last or 0.0) <= 0.0 else None

    def since_resume(self) -> int | None:
        """See Past."""
        resumed = self.strides.resumed_row
        return None if resumed is None else self.index - resumed

    def silence(self) -> tuple[float | None, float | None]:
        """See Past."""
        newest = self.strides.time
        waited = None if newest is None or self.now is None else self.now - newest
        return waited, self.strides.interval

    def has_reference(self) -> bool:
        """See Past."""
        return self.reference is not None and not self.reference.why_not


@lru_cache(maxsize=64)
def joined(names: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    """Both sets of names; one object for all runs that log the same."""
    return names if more <= names else names | more


_NONE: Mapping[str, float] = {}
