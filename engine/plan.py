"""Which rules a row is an observation of: worked out once per set of logged keys, then looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rltriage.engine.aggregates import Series
from rltriage.engine.history import History, Hook
from rltriage.engine.lifecycle import RuleState, unbound
from rltriage.engine.pushing import Known, Pair
from rltriage.rules.conditions.base import Condition
from rltriage.rules.conditions.logic import Any, Compound
from rltriage.rules.model import Rule

MOST = 64
"""Sets of keys whose plans are kept; a log with more of them pays for working them out again."""


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
    hooks: tuple[Hook, ...]
    rules: tuple[RuleState, ...]
    doubtful: tuple[tuple[tuple[Series, ...], RuleState], ...]
    doubtful_hooks: tuple[tuple[tuple[Series, ...], Hook], ...]
    facts: tuple[str, ...]
    checks: bool


class Planner:
    """The plans of one segment."""

    def __init__(
        self,
        history: History,
        states: Sequence[RuleState],
        stated: frozenset[str],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._history = history
        self._failed = failed
        self._states = states
        self._stated = stated
        self._plans: dict[object, Plan] = {}
        self._generation = history.generation

    def plan(self, names: tuple[str, ...], merged: frozenset[str] = frozenset()) -> Plan:
        """The plan of a row with these finite metrics; `merged` are those that the same step already had."""
        key: object = (names, merged) if merged else names
        found = self._plans.get(key)
        if found is None or found.epoch != self._history.epoch:
            if self._generation != self._history.generation:
                self._unbind()
            if len(self._plans) >= MOST:
                self._plans.clear()
            found = self._plans[key] = self._make(names, merged)
        return found

    def compiled(self, state: RuleState) -> bool:
        """Compile a rule's check if it was not; false if that failed."""
        if state.check is unbound:
            try:
                state.compile(self._history)
            except Exception as error:
                self._failed(state.rule.id, error)
        return state.check is not unbound

    def _unbind(self) -> None:
        """Compile idle rules again: while starts are unknown every part of a condition is asked, later few are."""
        self._generation = self._history.generation
        for state in self._states:
            if not state.busy:
                state.check = unbound

    def _make(self, names: tuple[str, ...], merged: frozenset[str]) -> Plan:
        history = self._history
        known = tuple(history.follow(names))
        new, present = frozenset(names), frozenset(names) | merged
        history.meet(names)
        seen = frozenset(history.names)
        rules: list[RuleState] = []
        doubtful: list[tuple[tuple[Series, ...], RuleState]] = []
        for state in self._states:
            if state.skipped or not state.declared:
                continue
            if not state.busy and self._cannot_hold(state.rule, seen):
                state.check = unbound
                continue
            if not self.compiled(state):
                continue
            reads, vetoes, every_row = state.reads
            if merged and not every_row and not (reads | vetoes) & new:
                continue
            certain = self._certain(reads, every_row, present, seen)
            if certain:
                rules.append(state)
            elif certain is None:
                doubtful.append((self._seen(reads), state))
        history.compiled()
        hooks, doubtful_hooks = self._hooks(new, present, seen, bool(merged))
        return Plan(
            epoch=history.epoch,
            names=names,
            known=known,
            pairs=tuple(history.pairs.values()),
            hooks=hooks,
            rules=tuple(rules),
            doubtful=tuple(doubtful),
            doubtful_hooks=doubtful_hooks,
            facts=tuple(name for name in names if name in self._stated),
            checks=any(name.startswith("check_") for name in names),
        )

    def _cannot_hold(self, rule: Rule, seen: frozenset[str]) -> bool:
        """Whether one of its metrics was never logged, or it can never hold again in this segment."""
        return bool(lacking(rule.when, seen)) or rule.when.settled(self._history)

    def _certain(
        self, reads: frozenset[str], every_row: bool, present: frozenset[str], seen: frozenset[str]
    ) -> bool | None:
        """Whether such a row is always an observation; None where it depends on which metric is sparsest."""
        if every_row or not reads:
            return True
        if not reads & present:
            return False
        return True if (reads & seen) <= present else None

    def _seen(self, reads: Iterable[str]) -> tuple[Series, ...]:
        found = (self._history.series[name] for name in sorted(reads))
        return tuple(found)

    def _hooks(
        self, new: frozenset[str], present: frozenset[str], seen: frozenset[str], merging: bool
    ) -> tuple[tuple[Hook, ...], tuple[tuple[tuple[Series, ...], Hook], ...]]:
        hooks: list[Hook] = []
        doubtful: list[tuple[tuple[Series, ...], Hook]] = []
        for hook in self._history.hooks:
            if merging and hook.metrics and not hook.metrics & new:
                continue
            certain = self._certain(hook.metrics, False, present, seen)
            if certain:
                hooks.append(hook)
            elif certain is None:
                doubtful.append((self._seen(hook.metrics), hook))
        return tuple(hooks), tuple(doubtful)


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
