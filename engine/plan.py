"""Which rules a row is an observation of: worked out once per set of logged keys, then looked up.

What depends on the keys alone is shared by the runs of a pack (`Shape`); a run's own plan holds its series and rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rltriage.engine.aggregates import Series
from rltriage.engine.history import History
from rltriage.engine.layout import Bound, Hook, Layout
from rltriage.engine.lifecycle import RuleState
from rltriage.engine.pushing import Known, Pair
from rltriage.engine.resting import Sleeper
from rltriage.rules.conditions.base import Condition, Guards
from rltriage.rules.conditions.logic import Any, Compound

MOST = 64
"""Sets of keys whose plans are kept; a log with more of them pays for working them out again."""
MOST_SHAPES = 512
"""The same for what all runs of a pack share."""
Doubtful = tuple[int, tuple[str, ...]]
"""A rule or hook by its place, and the metrics of which the sparsest decides."""


class Shape(NamedTuple):
    """What a row of some keys is to the rules of a pack, by their places: observed in every such row, or perhaps."""

    rules: tuple[int, ...]
    doubtful: tuple[Doubtful, ...]
    hooks: tuple[int, ...]
    doubtful_hooks: tuple[Doubtful, ...]


class Counting(Sleeper):
    """A hook of one run: a counter that is updated at its rows, unless it rests."""

    __slots__ = ("hook",)

    def __init__(self, hook: Hook, place: int) -> None:
        super().__init__(place)
        self.hook = hook

    def update(self, past: History) -> None:
        """Take the row."""
        self.hook.update(self.hook.counter(past), past)
        if past.index >= self.again:
            self.try_to_rest(past)

    def rest(self, past: History) -> Guards | None:
        """While which guards further updates change nothing."""
        return self.hook.rest(self.hook.counter(past), past)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a row of these keys.

    `rules` are observed in every such row; of `doubtful` ones some metric is missing here, so whether the row is an
    observation depends on how often that one is logged. `facts` are config facts that the row states, `checks` says that
    it has results of invariants.
    """

    epoch: int
    names: tuple[str, ...]
    known: Known
    pairs: tuple[Pair, ...]
    hooks: tuple[Counting, ...]
    rules: tuple[RuleState, ...]
    doubtful: tuple[tuple[tuple[Series, ...], RuleState], ...]
    doubtful_hooks: tuple[tuple[tuple[Series, ...], Counting], ...]
    facts: tuple[str, ...]
    checks: bool


class Planner:
    """The plans of one segment."""

    def __init__(self, history: History, states: Sequence[RuleState], stated: frozenset[str]) -> None:
        self._history = history
        self._states = states
        self._stated = stated
        self._plans: dict[object, Plan] = {}
        self._awake: tuple[Plan | None, int, list[RuleState]] = (None, 0, [])
        self.hooks = tuple(Counting(hook, place) for place, hook in enumerate(history.layout.hooks))

    def plan(self, names: tuple[str, ...], merged: frozenset[str] = frozenset()) -> Plan:
        """The plan of a row with these finite metrics; `merged` are those that the same step already had."""
        key: object = (names, merged) if merged else names
        found = self._plans.get(key)
        if found is None or found.epoch != self._history.epoch:
            if len(self._plans) >= MOST:
                self._plans.clear()
            found = self._plans[key] = self._make(names, merged, found)
        return found

    def awake(self, plan: Plan) -> list[RuleState]:
        """Those of a plan's rules that do not rest: few, and in most rows the same as in the row before."""
        before, stirs, awake = self._awake
        if before is not plan or stirs != self._history.stirs:
            awake = [state for state in plan.rules if state.guards is None]
            self._awake = (plan, self._history.stirs, awake)
        return awake

    def _make(self, names: tuple[str, ...], merged: frozenset[str], before: Plan | None) -> Plan:
        history, states, hooks = self._history, self._states, self.hooks
        with history.layout.lock:
            known = history.follow(names, None if before is None else before.known)
        history.meet(names)
        shape = shape_of(history.layout, names, merged, history.names)
        on = {state.rule.id for state in states if not state.skipped}
        return Plan(
            epoch=history.epoch,
            names=names,
            known=known,
            pairs=tuple(history.pairs.values()),
            hooks=tuple(hooks[place] for place in shape.hooks if not on.isdisjoint(hooks[place].hook.owners)),
            rules=tuple(states[place] for place in shape.rules if not states[place].skipped),
            doubtful=tuple((self._series(of), states[place]) for place, of in shape.doubtful if not states[place].skipped),
            doubtful_hooks=tuple(
                (self._series(of), hooks[place])
                for place, of in shape.doubtful_hooks
                if not on.isdisjoint(hooks[place].hook.owners)
            ),
            facts=tuple(name for name in names if name in self._stated),
            checks=any(name.startswith("check_") for name in names),
        )

    def _series(self, names: Iterable[str]) -> tuple[Series, ...]:
        return tuple(self._history.series[name] for name in names)


def shape_of(layout: Layout, names: tuple[str, ...], merged: frozenset[str], seen: frozenset[str]) -> Shape:
    """What a row with these finite metrics is, where `seen` are all that the run has logged so far."""
    new = layout.reads.intersection(names)
    # A second record of a step that adds nothing to read is still no first record.
    key = (new, merged & layout.reads, bool(merged), seen & layout.reads)
    found: Shape | None = layout.shapes.get(key)
    if found is None:
        if len(layout.shapes) >= MOST_SHAPES:
            layout.shapes.clear()
        found = layout.shapes[key] = _shape(layout, new, merged, seen & layout.reads)
    return found


def _shape(layout: Layout, new: frozenset[str], merged: frozenset[str], seen: frozenset[str]) -> Shape:
    present = new | merged
    rules: list[int] = []
    doubtful: list[Doubtful] = []
    for place, bound in enumerate(layout.rules):
        if lacking(bound.rule.when, seen) or (merged and not _reads(bound, new)):
            continue
        certain = _certain(bound.metrics, bound.every_row, present, seen)
        if certain:
            rules.append(place)
        elif certain is None:
            doubtful.append((place, tuple(sorted(bound.metrics))))
    hooks: list[int] = []
    doubtful_hooks: list[Doubtful] = []
    for place, hook in enumerate(layout.hooks):
        if merged and hook.metrics and not hook.metrics & new:
            continue
        certain = _certain(hook.metrics, False, present, seen)
        if certain:
            hooks.append(place)
        elif certain is None:
            doubtful_hooks.append((place, tuple(sorted(hook.metrics))))
    return Shape(tuple(rules), tuple(doubtful), tuple(hooks), tuple(doubtful_hooks))


def _reads(bound: Bound, new: frozenset[str]) -> bool:
    """Whether a second record of a step with these metrics concerns a rule."""
    return bound.every_row or not (bound.metrics | bound.vetoes).isdisjoint(new)


def _certain(reads: frozenset[str], every_row: bool, present: frozenset[str], seen: frozenset[str]) -> bool | None:
    """Whether such a row is always an observation; None where it depends on which metric is sparsest."""
    if every_row or not reads:
        return True
    if not reads & present:
        return False
    return True if (reads & seen) <= present else None


def lacking(condition: Condition, seen: frozenset[str] | set[str]) -> frozenset[str]:
    """The metrics without which a condition can never hold; empty if it can hold on those seen."""
    if isinstance(condition, Any):
        missing = [lacking(part, seen) for part in condition.of]
        return min(missing, key=len, default=frozenset())
    if isinstance(condition, Compound):
        return frozenset().union(*(lacking(part, seen) for part in condition.parts()))
    if condition.every_row:
        return frozenset() if not condition.metrics() or condition.metrics() & seen else condition.metrics()
    return condition.metrics() - seen


def observed(series: Sequence[Series], row: int) -> bool:
    """Whether the sparsest of the metrics ever logged is in this row (one of them, where several are as sparse)."""
    fewest = -1
    fresh = False
    for one in series:
        count = one.version - one.lost
        if count and (fewest < 0 or count < fewest):
            fewest, fresh = count, one.row == row
        elif count == fewest and one.row == row:
            fresh = True
    return fresh


def finite(metrics: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """A row's metrics as floats: the finite ones, and those that are NaN or infinite (or no numbers at all)."""
    good: dict[str, float] = {}
    bad: dict[str, float] = {}
    for name, value in metrics.items():
        number = as_float(value)
        if number is not None:
            (good if number - number == 0.0 else bad)[name] = number
    return good, bad


def as_float(value: object) -> float | None:
    """A logged value as a float: an integer beyond its range is an infinity, None and text are nothing."""
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    return None
