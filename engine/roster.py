"""The rules of one run: which of them are on, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rltriage.engine.layout import Layout
from rltriage.engine.lifecycle import RuleState
from rltriage.engine.plan import lacking
from rltriage.engine.reference import needs_reference
from rltriage.engine.rows import Fact
from rltriage.rules.facts import Tell, by_option, judge
from rltriage.rules.model import Rule


class Roster:
    """The states of a pack's rules in the pack's order. `broken` are rules that failed, each with what went wrong.

    `tell` says in questions how somebody answers them.
    """

    def __init__(self, layout: Layout, tell: Tell = by_option) -> None:
        self._tell = tell
        self.states: Sequence[RuleState] = [RuleState(bound, place) for place, bound in enumerate(layout.rules)]
        self.broken: dict[str, str] = {}

    def reset(self) -> None:
        """All rules back to inactive, as at the start of a segment."""
        for state in self.states:
            state.reset()

    def find(self, rule_id: str) -> RuleState | None:
        """The state of a rule."""
        return next((state for state in self.states if state.rule.id == rule_id), None)

    def judge(self, facts: Mapping[str, Fact]) -> list[RuleState]:
        """Switch rules on and off by what they require, and ask for what is unknown; those whose requirement is not met."""
        values = {name: fact.value for name, fact in facts.items()}
        ruled_out = []
        for state in self.states:
            rule = state.rule
            judgement = judge(rule.requires, values, self._tell)
            state.question = judgement.question if judgement.holds is None else ""
            state.skipped = self.broken.get(rule.id, "")
            if judgement.holds is False:
                state.skipped = "config: " + ", ".join(f"{name} is {values.get(name)}" for name in judgement.violated)
                ruled_out.append(state)
        return ruled_out

    def uncompiled(self) -> list[tuple[str, Exception]]:
        """Rules that are on although they could not be compiled, and why."""
        return [
            (state.rule.id, state.bound.error)
            for state in self.states
            if state.bound.error is not None and not state.skipped
        ]

    def take(self, layout: Layout) -> list[RuleState]:
        """Other rules: those with the same content keep their state. Gives the states of those that are gone or changed."""
        old = {state.rule.id: state for state in self.states}
        kept: list[RuleState] = []
        for place, bound in enumerate(layout.rules):
            state = old.get(bound.rule.id)
            if state is not None and _content(state.rule) == _content(bound.rule):
                state.bind(bound)
                kept.append(old.pop(bound.rule.id))
            else:
                kept.append(RuleState(bound, place))
        self.states = kept
        self.broken = {rule: why for rule, why in self.broken.items() if rule not in old}
        return list(old.values())

    def skipped(self, seen: frozenset[str] | set[str], no_reference: str) -> dict[str, str]:
        """Rule -> why it could not have fired on the metrics seen; `no_reference` says why none fits, if none does."""
        found = {}
        for state in self.states:
            why = state.skipped
            if not why:
                missing = lacking(state.rule.when, seen)
                why = f"never logged: {', '.join(sorted(missing))}" if missing else ""
            if not why and no_reference and needs_reference(state.rule.when):
                why = no_reference
            if why:
                found[state.rule.id] = why
        return found


def _content(rule: Rule) -> tuple[object, ...]:
    """What decides about a rule's alerts and what identifies them; texts may change without a restart."""
    return (
        rule.group,
        next(iter(rule.suspects), ""),
        rule.first_test,
        dict(rule.labels),
        rule.when,
        rule.unless,
        rule.clear_when,
        rule.hold,
        rule.keep_firing_for,
        rule.after,
        rule.severity,
        rule.requires,
    )
