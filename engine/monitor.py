"""The monitor: the only stateful class of the engine, one per run. Rows come in, alerts and incidents come out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Protocol

from rltriage.engine.alerts import AlertBook
from rltriage.engine.history import History, Reference
from rltriage.engine.inference import INFERABLE, STATED, inferred, stated
from rltriage.engine.layout import EPISODES, layout_of
from rltriage.engine.lifecycle import RuleState
from rltriage.engine.plan import Counting, Plan, Planner, finite, observed
from rltriage.engine.reference import NONE_GIVEN
from rltriage.engine.report import Alert, Incident, State, StepReport
from rltriage.engine.resting import wake_all
from rltriage.engine.roster import Roster
from rltriage.engine.rows import Fact, Row, Run
from rltriage.rules.conditions.base import Verdict
from rltriage.rules.facts import Tell, by_option
from rltriage.rules.model import Catalogue, RulePack

PARTIAL = 0.5
"""A row with fewer than this share of the usual episodes is a last, partial batch: read but not judged."""


class Triage(Protocol):
    """Ranks suspects and explains alerts by one another (`engine.triage`)."""

    def update(
        self, run: Run, facts: Mapping[str, Fact], open_alerts: Sequence[Alert], row: Row, logged: frozenset[str]
    ) -> tuple[Mapping[str, str | None], Incident | None]:
        """Rule id -> id of the rule that explains it, and the incident where it changed; `logged` are the run's metrics."""

    def reload(self, catalogue: Catalogue, pack: RulePack) -> None:
        """The rules are others now."""


@dataclass(slots=True)
class Counters:
    """What the monitor did not judge, and why."""

    rows: int = 0
    repeats: int = 0
    merged: int = 0
    conflicts: int = 0
    partial: int = 0
    rewinds: int = 0
    segments: int = 1
    errors: int = 0


class Monitor:
    """Watches one run. Live, replay and rule tests all go through `observe`; time comes in as an argument.

    `facts` are the config facts known by now. Never raises on odd rows: a rule whose condition fails is switched
    off for the run, counted and listed in `rules_skipped`. `tell` says in questions how somebody answers them.
    """

    def __init__(
        self,
        run: Run,
        pack: RulePack,
        catalogue: Catalogue,
        *,
        triage: Triage | None = None,
        reference: Reference | None = None,
        log: logging.Logger | None = None,
        tell: Tell = by_option,
    ) -> None:
        self.run = run
        self.pack = pack
        self.counters = Counters()
        self.facts: dict[str, Fact] = dict(run.facts)
        self.segment = 0
        self._alerts = AlertBook(run.id, catalogue, self.facts)
        self._triage = triage
        self._reference = reference
        self._log = log or logging.getLogger("rltriage.engine")
        self._closed: list[Alert] = []
        self._seen: set[str] = set()
        self._asked_again = False
        self._silent = False
        self._ticks = 0
        self._last: int | None = None
        self._first = 0
        self._layout = layout_of(pack)
        self._roster = Roster(self._layout, tell)
        self._begin_segment()

    @property
    def failed_rules(self) -> Mapping[str, str]:
        """Rules that are switched off because they failed, each with what went wrong."""
        return self._roster.broken

    @property
    def row_interval(self) -> float | None:
        """Median seconds between the last rows; None while too few have carried a time."""
        return self._history.strides.interval

    @property
    def newest(self) -> float | None:
        """When the newest row was written (unix seconds), None where rows carry no time."""
        return self._history.strides.time

    @property
    def pace(self) -> float | None:
        """Median seconds between the rows so far, however few: less sure than `row_interval`. None before the second."""
        return self._history.strides.pace

    @property
    def age(self) -> int | None:
        """Steps from the first to the newest; None before the first row."""
        first = self._history.strides.first
        return None if first is None or self._last is None else self._last - first

    def healthy(self, metrics: Iterable[str]) -> dict[str, tuple[float, float]]:
        """(low, high), as far as it can be, of those metrics that a reference that fits the run knows at its step."""
        reference, age = self._reference, self.age
        if reference is None or reference.why_not or age is None:
            return {}
        found = {}
        for metric in metrics:
            bounds = reference.bounds(metric, age)
            if bounds is not None:
                info = self._alerts.catalogue.metrics.get(metric)
                found[metric] = bounds if info is None else info.within(*bounds)
        return found

    # Rows.

    def observe(self, row: Row) -> StepReport:
        """Take one row and say what it changed."""
        history, step = self._history, row.step
        metrics: Mapping[str, float] = row.metrics
        merged: frozenset[str] = frozenset()
        alerts: list[Alert] = []
        self.counters.rows += 1
        if self._last is not None and step <= self._last:
            if step == self._last:
                metrics, merged = self._same_step(row)
                if not metrics:
                    self.counters.repeats += 1
                    return StepReport(step)
            elif step <= self._first:
                alerts += self._next_segment(step)
                history = self._history
            else:
                self.counters.rewinds += 1
                history.rewind(step)
                self._wake_all()
        if not merged:
            resumed = history.strides.resumed_row
            history.begin(step, row.time)
            if history.strides.resumed_row != resumed:
                self._wake_all()
        if self._last is None:
            self._first = step
        self._last = step
        plan, bad = self._read(metrics, merged)
        if plan.facts or self._may_infer or self._asked_again:
            alerts += self._learn(plan, metrics, row)
        if plan.epoch != history.epoch:
            plan = self._planner.plan(plan.names, merged)
        if self._partial():
            self.counters.partial += 1
        else:
            self._judge(plan, row, alerts)
        if self._silent:
            self._silent = False
            alerts += self._alerts.revived(self._roster.states, row)
        return self._finish(row, alerts, plan.checks or bool(bad))

    def _same_step(self, row: Row) -> tuple[dict[str, float], frozenset[str]]:
        """The metrics that a second record adds to the step: none for a repeat; the first value of a metric stays."""
        present = self._history.row
        new = {name: value for name, value in row.metrics.items() if name not in present}
        for name, value in row.metrics.items():
            old = present.get(name)
            if name in present and old != value and not (old != old and value != value):
                self.counters.conflicts += 1
        if new:
            self.counters.merged += 1
        return new, frozenset(present)

    def _read(self, metrics: Mapping[str, float], merged: frozenset[str]) -> tuple[Plan, Mapping[str, float]]:
        """Push a row's values into the history."""
        good, bad = metrics, _NONE
        try:
            plain = isfinite(sum(metrics.values()))
        except (TypeError, OverflowError):
            plain = False
        if not plain:
            good, bad = finite(metrics)
            self._history.meet(bad)
        names = self._history.names
        plan = self._planner.plan(tuple(good), merged)
        if self._history.names is not names:
            self._wake_all()
        if bad or plan.names is not self._history.keys:
            self._history.compare(plan.names, bad)
        for owners, error in self._history.take(metrics, good, plan.known, plan.pairs, bad):
            for rule_id in owners:
                self._switch_off(rule_id, error)
        return plan, bad

    def _judge(self, plan: Plan, row: Row, alerts: list[Alert]) -> None:
        """Run the checks of every rule that this row is an observation of and that does not rest."""
        history = self._history
        index = history.index
        for hook in plan.hooks:
            if hook.guards is None:
                self._count(hook)
        for series, hook in plan.doubtful_hooks:
            if observed(series, index):
                hook.wake(history)
                self._count(hook)
        for state in self._planner.awake(plan):
            try:
                holds = state.check(history)
                if holds or state.busy:
                    self._advance(state, holds, row, alerts)
                if index >= state.again and state.is_settled(holds):
                    state.try_to_rest(history)
            except Exception as error:
                self._switch_off(state.rule.id, error)
        for series, state in plan.doubtful:
            if state.guards is None and observed(series, index):
                try:
                    self._advance(state, state.check(history), row, alerts)
                except Exception as error:
                    self._switch_off(state.rule.id, error)

    def _count(self, hook: Counting) -> None:
        try:
            hook.update(self._history)
        except Exception as error:
            for rule_id in hook.hook.owners:
                self._switch_off(rule_id, error)

    def _advance(
        self, state: RuleState, holds: bool | None, row: Row, alerts: list[Alert], index: int | None = None
    ) -> None:
        """Tell a rule its verdict in the row `index`, and take note of a transition."""
        history = self._history
        event = state.advance(holds, history, history.index if index is None else index)
        if event is not None:
            alerts.append(self._alerts.take(state, event, row, history, self.segment))

    def _finish(self, row: Row, alerts: list[Alert], checked: bool) -> StepReport:
        """Let the triage explain what changed."""
        if self._closed:
            alerts += self._closed
            self._closed = []
        if not alerts and not checked:
            return StepReport(row.step)
        incident = None
        if self._triage is not None:
            try:
                logged = self._history.names | self._seen
                explained, incident = self._triage.update(
                    self.run, self.facts, tuple(self._alerts.open.values()), row, logged
                )
            except Exception as error:
                self.counters.errors += 1
                self._log.warning("triage failed at step %s: %r", row.step, error)
            else:
                alerts = self._alerts.explained(alerts, explained)
        return StepReport(row.step, tuple(alerts), incident)

    # Time, the end, and questions.

    def tick(self, now: float) -> StepReport:
        """Tell the time (unix seconds): only rules about overdue rows are judged."""
        self._history.now = now
        self._ticks += 1
        row = Row(self._last if self._last is not None else 0, _NONE, now)
        alerts: list[Alert] = []
        for state in self._timed:
            if not state.skipped:
                state.wake(self._history)
                try:
                    self._advance(state, state.check(self._history), row, alerts, -1 - self._ticks)
                except Exception as error:
                    self._switch_off(state.rule.id, error)
        return self._finish(row, alerts, False)

    def close(self, state: State = "ended") -> StepReport:
        """The run ended: open alerts close as such, never as resolved. When it went `stale` they stay open as stale:
        a later row, which may resolve them, makes them fire again under the ids that they have.
        """
        step = self._last if self._last is not None else 0
        if state == "stale":
            self._silent = True
            alerts = self._alerts.silenced(step)
        else:
            alerts = self._closed_all(state, step)
            self._wake_all()
        return self._finish(Row(step, _NONE, self._history.strides.time), alerts, False)

    def explain(self, rule_id: str) -> Verdict:
        """Why a rule does or does not hold at the newest row. Raises KeyError for an unknown rule."""
        state = self._roster.find(rule_id)
        if state is None:
            raise KeyError(rule_id)
        if state.skipped:
            return Verdict(None, {}, f"off: {state.skipped}")
        layout, history = self._layout, self._history
        verdict = state.rule.when.explain(layout, history)
        unless = state.rule.unless
        if verdict.holds and unless is not None and layout.check(unless)(history):
            reason = f"{verdict.reason}; but not judged while {unless.explain(layout, history).reason}"
            return Verdict(None, verdict.values, reason)
        return verdict

    @property
    def open_alerts(self) -> tuple[Alert, ...]:
        """Firing and flapping alerts, in the order in which they fired."""
        return tuple(self._alerts.open.values())

    @property
    def pending(self) -> tuple[str, ...]:
        """Rules whose condition holds, but not yet for long enough."""
        return tuple(state.rule.id for state in self._roster.states if state.status == "pending")

    @property
    def rules_evaluated(self) -> int:
        """How many rules could have fired on the metrics seen so far."""
        return len(self._roster.states) - len(self.rules_skipped)

    @property
    def rules_skipped(self) -> dict[str, str]:
        """Rule -> why it could not have fired: a config fact rules it out, a metric was never logged, it failed, or it
        needs a healthy reference and none fits."""
        no_reference = NONE_GIVEN if self._reference is None else self._reference.why_not
        return self._roster.skipped(self._seen | self._history.names, no_reference)

    def reload(self, pack: RulePack) -> StepReport:
        """Take other rules: unchanged ones keep their state, changed ones start from the history that is kept.

        `pack.catalogue` replaces the catalogue, if there is one in the pack.
        """
        step = self._last if self._last is not None else 0
        self._layout = layout_of(pack)
        gone = self._roster.take(self._layout)
        alerts = [alert for state in gone for alert in self._alerts.close(state, "superseded", step)]
        self.pack = pack
        if pack.catalogue.faults:
            self._alerts.catalogue = pack.catalogue
        if self._triage is not None:
            self._triage.reload(self._alerts.catalogue, pack)
        self._history.adopt(self._layout)
        self._plan_again()
        self._judge_facts(step)
        return self._finish(Row(step, _NONE, self._history.strides.time), alerts, False)

    # Segments and facts.

    def _begin_segment(self) -> None:
        self._history = History(self._layout, self.facts, self._reference)
        self._last = None
        self._roster.reset()
        self._plan_again()
        self._judge_facts(0)

    def _plan_again(self) -> None:
        history, layout = self._history, self._layout
        self._planner = Planner(history, self._roster.states, STATED)
        self._timed = [state for state in self._roster.states if state.rule.when.timed]
        self._episodes, self._most_episodes = layout.episodes, layout.most_episodes

    def _wake_all(self) -> None:
        """What resting rules relied on has changed."""
        wake_all((*self._roster.states, *self._planner.hooks), self._history)

    def _next_segment(self, step: int) -> list[Alert]:
        """The run started over: histories restart, open alerts close."""
        alerts = self._closed_all("superseded", step)
        self._seen |= self._history.names
        self.segment += 1
        self.counters.segments += 1
        self._begin_segment()
        return alerts

    def learn(self, facts: Mapping[str, Fact]) -> None:
        """Facts found out since the run was opened (by a profile, in the log's header); they count from the next row on."""
        found = {name: fact for name, fact in facts.items() if self.facts.get(name) != fact}
        if found:
            self.facts.update(found)
            self._judge_facts(self._last or 0)
            self._asked_again = True

    def _learn(self, plan: Plan, metrics: Mapping[str, float], row: Row) -> list[Alert]:
        """Facts that this row states or proves; rules that depend on them are judged again."""
        found = stated(plan.facts, metrics, self.facts) if plan.facts else {}
        if self._may_infer:
            found |= inferred(metrics, self.facts)
        if found:
            self.facts.update(found)
            self._judge_facts(row.step)
        elif not self._asked_again:
            return []
        self._asked_again = False
        return self._alerts.requestioned(self._roster.states, row)

    def _judge_facts(self, step: int) -> None:
        """Switch rules on and off by what they require, and bind those that are on."""
        self._may_infer = not self.facts.keys() >= INFERABLE
        if self._reference is not None:
            self._reference.learn(self.facts)
        for state in self._roster.judge(self.facts):
            self._closed += self._alerts.close(state, "superseded", step)
        for rule_id, error in self._roster.uncompiled():
            self._switch_off(rule_id, error)
        self._wake_all()
        self._history.epoch += 1

    def _partial(self) -> bool:
        """Whether this row is a last batch with under half the usual episodes."""
        episodes = self._history.series[EPISODES]
        if episodes.row != self._history.index or episodes.last is None:
            return False
        most = self._most_episodes(self._history)
        if most is not None and episodes.last >= PARTIAL * most:
            return False  # the usual number is at most that
        usual = self._episodes(self._history)
        return usual is not None and episodes.last < PARTIAL * usual

    def _closed_all(self, state: State, step: int) -> list[Alert]:
        return [alert for rule in self._roster.states for alert in self._alerts.close(rule, state, step)]

    # Failures.

    def _switch_off(self, rule_id: str, error: Exception) -> None:
        """A condition failed: the rule is off for the rest of the run, and the run goes on."""
        self.counters.errors += 1
        why = f"failed: {type(error).__name__}: {error}"
        self._log.warning("rule %s is switched off: %s", rule_id, why)
        self._roster.broken[rule_id] = why
        state = self._roster.find(rule_id)
        if state is not None:
            state.skipped = why
            self._closed += self._alerts.close(state, "superseded", self._last or 0)
        self._history.epoch += 1


_NONE: Mapping[str, float] = MappingProxyType({})
