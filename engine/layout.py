"""What is compiled of a rule pack: once for all runs that are watched with it.

A layout is the view that conditions bind to (`rules.conditions.base.View`). It gives them readers and checks, which take a
run's history as their argument, and notes what every run has to keep for them: how many observations of which metric, which
trackers, which counters. A run holds only that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from fnmatch import fnmatchcase
from threading import RLock
from typing import Any, Generic, NamedTuple, TypeVar, cast

from rltriage.engine import readers
from rltriage.engine.aggregates import Best, Extremes, Head, Need, Series
from rltriage.engine.history import History
from rltriage.engine.perpack import PerPack
from rltriage.rules.conditions.base import Check, Condition, Counter, Guards, Passing, Reader, Rest, Tracker
from rltriage.rules.model import Rule, RulePack
from rltriage.rules.templates import BUILT_IN, fields

T = TypeVar("T", bound=Tracker)
S = TypeVar("S")
EPISODES = "n_episodes"
ALWAYS = ("grad_norm", "lr", EPISODES)
"""Metrics that the engine itself reads."""
MOST_NAMES = 10_000
"""Metric names whose patterns are remembered."""


class Kept(Generic[S]):
    """What every run keeps for a condition: one object a run, made when it is first asked for."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[Any], S]) -> None:
        self.make = make

    def __call__(self, past: History) -> S:
        """The run's own."""
        found = past.kept.get(self)
        if found is None:
            found = past.kept[self] = self.make(past)
        return cast(S, found)


class Hook(NamedTuple):
    """A counter to update at every row that is an observation of `metrics`, before the rules are checked."""

    metrics: frozenset[str]
    counter: Callable[[Any], Counter]
    update: Callable[[Any, Any], None]
    rest: Callable[[Any, Any], Guards | None]
    owners: set[str]
    """The rules that read the counter."""


class Derived(NamedTuple):
    """A series that is the ratio or the difference of two metrics."""

    left: str
    right: str
    ratio: bool


class Bound(NamedTuple):
    """A compiled rule. `metrics` are those that `when` reads, `vetoes` those of `unless` and `clear_when`."""

    rule: Rule
    check: Check
    rest: Rest
    unless: Check | None
    stays_vetoed: Rest
    clear: Check | None
    metrics: frozenset[str]
    vetoes: frozenset[str]
    every_row: bool
    error: Exception | None = None


class Layout:
    """A rule pack, compiled. Grows only while something new is asked for, and `version` says so."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self.needs: dict[str, Need] = {}
        self.derivations: dict[str, Derived] = {}
        self.hooks: list[Hook] = []
        self.version = 0
        self._globs: dict[tuple[str, ...], list[Callable[[str], None]]] = {}
        self._matches: dict[str, tuple[tuple[str, ...], ...]] = {}
        self._met: set[tuple[tuple[str, ...], str]] = set()
        self._cache: dict[Hashable, Any] = {}
        self.shapes: dict[object, Any] = {}
        """What `plan` worked out about rows of some keys."""
        self._owner = self._private = ""
        self._asked: list[set[str]] | None = None
        """The owners of what the condition that is being compiled asks for; None between conditions."""
        self.lock = RLock()
        """Held while the layout grows, and by runs that take over what it has grown by: they may be watched in threads."""
        self.blank = History(self, {}, series={})
        """The history of a run that has logged nothing, for metrics that a run has not logged."""
        for name in ALWAYS:
            self._need(name)
        self.rules = tuple(self._bind(rule) for rule in rules)
        self.episodes = self.window(EPISODES, 21, "median", 3)
        self.most_episodes = self.highest(EPISODES)
        self.reads = frozenset[str]().union(*(bound.metrics | bound.vetoes for bound in self.rules))
        self.reads = self.reads.union(*(hook.metrics for hook in self.hooks))
        """The metrics that rules and counters name. Of what else a run logs only patterns speak."""

    def _bind(self, rule: Rule) -> Bound:
        """Compile a rule; a condition that fails to is reported by whoever watches a run with it."""
        others = [part.metrics() for part in (rule.unless, rule.clear_when) if part is not None]
        metrics, vetoes, every_row = rule.when.metrics(), frozenset[str]().union(*others), rule.when.every_row
        self._owner = rule.id
        try:
            check, rest = self.check(rule.when), self.rest(rule.when)
            unless = None if rule.unless is None else self.check(rule.unless)
            stays_vetoed = _restless if rule.unless is None else self.rest(rule.unless)
            clear = None if rule.clear_when is None else self._clear(rule.id, rule.clear_when)
        except Exception as error:
            return Bound(rule, _unknown, _restless, None, _restless, None, metrics, vetoes, every_row, error)
        finally:
            self._owner = ""
        for name in fields(rule.summary):
            if not name.startswith("config.") and name not in BUILT_IN:
                self._need(name)
        return Bound(rule, check, rest, unless, stays_vetoed, clear, metrics, vetoes, every_row)

    def _clear(self, rule: str, condition: Condition) -> Check:
        """`clear_when` sees the levels at which this very rule fired."""
        self._private = rule
        try:
            return self.check(condition)
        finally:
            self._private = ""

    # What runs ask.

    def patterns_of(self, name: str) -> tuple[tuple[str, ...], ...]:
        """The groups of patterns that a metric's name matches."""
        found = self._matches.get(name)
        if found is None:
            found = tuple(globs for globs in self._globs if any(fnmatchcase(name, glob) for glob in globs))
            if len(self._matches) < MOST_NAMES:
                self._matches[name] = found
        return found

    def meet(self, globs: tuple[str, ...], name: str) -> None:
        """A run keeps a metric that matches patterns: ask for what they need of it."""
        with self.lock:
            if (globs, name) not in self._met:
                self._met.add((globs, name))
                for met in self._globs.get(globs, ()):
                    met(name)

    def states(self) -> dict[Hashable, Kept[Any]]:
        """What conditions keep, by a key that another layout has too if it has an equal condition."""
        with self.lock:
            return {key: made for key, made in self._cache.items() if isinstance(made, Kept)}

    # What conditions ask for.

    def _need(self, metric: str, size: int = 0) -> Need:
        found = self.needs.get(metric)
        if found is not None and size <= found.keep:
            return found
        with self.lock:
            found = self.needs.get(metric)
            if found is None:
                found = Need(metric)
                self.blank.series[metric] = Series(found, self.blank)
                self.needs[metric] = found
                self.version += 1
            if size > found.keep:
                found.keep = size
                self.version += 1
        return found

    def once(self, key: Hashable, make: Callable[[], S]) -> S:
        """See View."""
        found = self._cache.get(key)
        if found is None:
            with self.lock:
                found = self._cache.get(key)
                if found is None:
                    found = self._cache[key] = make()
        return cast(S, found)

    def last(self, metric: str) -> Reader:
        """See View."""
        self._need(metric)
        return self.once(("last", metric), lambda: readers.last(metric))

    def age(self, metric: str) -> Callable[[Any], int]:
        """See View."""
        self._need(metric)
        return self.once(("age", metric), lambda: readers.age(metric))

    def fresh(self, metric: str) -> Callable[[Any], bool]:
        """See View."""
        self._need(metric)
        return self.once(("fresh", metric), lambda: readers.fresh(metric))

    def count(self, metric: str) -> Callable[[Any], int]:
        """See View."""
        self._need(metric)
        return self.once(("count", metric), lambda: readers.count(metric))

    def window(self, metric: str, size: int, stat: str, minimum: int | None = None, skip: int = 0) -> Reader:
        """See View."""
        self._need(metric, size + skip)
        enough = size if minimum is None else minimum
        key = ("window", metric, size, stat, enough, skip)
        return self.once(key, lambda: readers.window(metric, size, stat, enough, skip))

    def passes(self, window: Passing, limit: float | Reader) -> Check:
        """See View."""
        return self._comparison(window, limit).check

    def keeps(self, window: Passing, limit: float | Reader) -> Rest:
        """See View."""
        return self._comparison(window, limit).rest

    def _comparison(self, window: Passing, limit: float | Reader) -> readers.Comparison:
        self._need(window.metric, window.size)
        return readers.Comparison(window, limit)

    def start(self, metric: str, baseline: int = 5, minimum: int | None = None) -> Reader:
        """See View."""
        head = self.track(metric, ("head", baseline), lambda past: Head(baseline))
        enough = baseline if minimum is None else minimum
        return self.once(("start", metric, baseline, enough), lambda: readers.Start(head, enough))

    def first(self, metric: str) -> Reader:
        """See View."""
        return self.start(metric, 1)

    def _extremes(self, metric: str) -> Callable[[Any], Extremes]:
        return self.track(metric, ("extremes",), lambda past: Extremes())

    def lowest(self, metric: str) -> Reader:
        """See View."""
        extremes = self._extremes(metric)
        return lambda past: extremes(past).lowest

    def highest(self, metric: str) -> Reader:
        """See View."""
        extremes = self._extremes(metric)
        return lambda past: extremes(past).highest

    def trough(self, metric: str) -> Reader:
        """See View."""
        extremes = self._extremes(metric)
        return lambda past: extremes(past).trough

    def noise(self, metric: str, size: int = 30) -> readers.Noise:
        """See View."""
        self._need(metric, size + 1)
        return self.once(("noise", metric, size), lambda: readers.Noise(metric, size))

    def gain_z(self, metric: str, baseline: int = 5, window: int = 5) -> Reader:
        """See View."""
        return self._gain(metric, baseline, window)

    def gain_keeps(self, metric: str, baseline: int, window: int, limit: Reader) -> Rest:
        """See View."""
        return self._gain(metric, baseline, window).keeps(limit)

    def _gain(self, metric: str, baseline: int, window: int) -> readers.GainZ:
        begin, now, scale = self.start(metric, baseline), self.window(metric, window, "median"), self.noise(metric)
        key = ("gain_z", metric, baseline, window)
        return self.once(key, lambda: readers.GainZ(metric, begin, now, scale, baseline, window))

    def best(self, metric: str, size: int = 5) -> Reader:
        """See View."""
        best = self.track(metric, ("best", size), lambda past: Best(size))
        return lambda past: best(past).best

    def at_firing(self, metric: str, size: int = 5) -> Reader:
        """See View."""
        self._need(metric, size)
        key = (self._private, metric, size)
        self.once("at_firing", lambda: dict[tuple[str, str, int], None]())[key] = None
        return lambda past: past.fired.get(key)

    def levels_of(self, rule: str) -> list[tuple[str, str, int]]:
        """What has to be remembered when a rule fires, for the readers of `at_firing`."""
        return [key for key in self._cache.get("at_firing", ()) if key[0] == rule]

    def values(self, metric: str, size: int) -> Callable[[Any], list[float]]:
        """See View."""
        self._need(metric, size)
        return lambda past: list(past.series[metric].values[-size:])

    def resolution(self, metric: str) -> Reader:
        """See View: the config fact `resolution`, one number for the log or a mapping from metric to number."""
        whole, own = self.fact("resolution"), self.fact(f"resolution.{metric}")

        def read(past: History) -> float | None:
            step = whole(past)
            return own(past) if step is None else step

        return read

    def track(self, metric: str, key: tuple[object, ...], make: Callable[[Any], T]) -> Callable[[Any], T]:
        """See View."""
        need = self._need(metric)
        with self.lock:
            if key not in need.keys:
                self._need(metric, make(self.blank).reach)
                need.keys[key] = len(need.makes)
                need.makes.append(make)
                need.owners.append(set())
                self.blank.series[metric].fit(need, self.blank)
                self.version += 1
            index = need.keys[key]
            self._ask(need.owners[index])

        def tracked(past: History) -> T:
            try:
                return cast(T, past.series[metric].trackers[index])
            except IndexError:  # asked for since the run's last row, by somebody who wants an explanation
                past.fit()
                return cast(T, past.series[metric].trackers[index])

        return self.once(("tracked", metric, key), lambda: tracked)

    def check(self, condition: Condition) -> Check:
        """See View."""
        with self.lock:
            key = ("check", self._private, condition)
            found = self._cache.get(key)
            if found is None:
                outer, asked = self._asked, list[set[str]]()
                self._asked = asked
                try:
                    found = self._cache[key] = (condition.bind(self), asked)
                finally:
                    self._asked = outer
            check, asked = found
            for owners in asked:  # what another rule has asked for already serves this one too
                self._ask(owners)
        return cast(Check, check)

    def _ask(self, owners: set[str]) -> None:
        if self._asked is not None:
            self._asked.append(owners)
        if self._owner:
            owners.add(self._owner)

    def rest(self, condition: Condition) -> Rest:
        """See View."""
        return self.once(("rest", self._private, condition), lambda: condition.rest(self))

    def state(self, condition: Condition, make: Callable[[Any], S]) -> Callable[[Any], S]:
        """See View."""
        return self.once(("state", self._private, condition), lambda: Kept(make))

    def derived(self, left: str, right: str, mode: str) -> str:
        """See View."""
        ratio = mode == "ratio"
        name = f"{left} / {right}" if ratio else f"{left} - {right}"
        with self.lock:
            if name not in self.derivations:
                self._need(left), self._need(right), self._need(name)
                self.derivations[name] = Derived(left, right, ratio)
                self.version += 1
        return name

    def each_row(
        self,
        metrics: frozenset[str],
        counter: Callable[[Any], Any],
        update: Callable[[Any, Any], None],
        rest: Callable[[Any, Any], Guards | None],
    ) -> None:
        """See View."""
        found = next((hook for hook in self.hooks if hook.counter is counter and hook.metrics == metrics), None)
        if found is None:
            found = Hook(metrics, counter, update, rest, set())
            self.hooks.append(found)
        self._ask(found.owners)

    def matching(self, patterns: Iterable[str], met: Callable[[str], None]) -> Callable[[Any], Sequence[str]]:
        """See View."""
        key = tuple(patterns)
        self._globs.setdefault(key, []).append(met)
        self._matches.clear()
        return lambda past: past.matched.get(key, ())

    def bounds(self, metric: str) -> Callable[[Any], tuple[float, float] | None]:
        """See View."""

        def read(past: History) -> tuple[float, float] | None:
            reference, first = past.reference, past.strides.first
            return None if reference is None or first is None else reference.bounds(metric, past.step - first)

        return read

    def fact(self, name: str) -> Reader:
        """See View."""
        return self.once(("fact", name), lambda: readers.fact_number(name))

    def fact_text(self, name: str) -> Callable[[Any], object]:
        """See View."""
        return self.once(("fact_text", name), lambda: readers.fact_value(name))


def _unknown(past: History) -> bool | None:
    return None


def _restless(past: History) -> Guards | None:
    return None


def _compiled(pack: RulePack) -> Layout:
    return Layout(pack.rules)


layout_of = PerPack(_compiled)
"""The compiled rules of a pack; the same object for every run that is watched with this very pack."""
