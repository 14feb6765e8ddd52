"""The alerts of one run: how one is worded when a rule fires, and the book of those that are open."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rltriage.engine.history import History
from rltriage.engine.lifecycle import Event, RuleState
from rltriage.engine.report import Alert, State, Suspect
from rltriage.engine.rows import Fact, Row
from rltriage.rules.conditions.base import Verdict
from rltriage.rules.model import Catalogue, Rule
from rltriage.rules.templates import render


class AlertBook:
    """The open alerts of a run, by rule, in the order in which they fired. `catalogue` names the faults."""

    def __init__(self, run: str, catalogue: Catalogue, facts: Mapping[str, Fact]) -> None:
        self.open: dict[str, Alert] = {}
        self.catalogue = catalogue
        self._run = run
        self._facts = facts

    def take(self, state: RuleState, event: Event, row: Row, history: History, segment: int) -> Alert:
        """The alert of a transition."""
        rule = state.rule
        if event == "firing":
            alert = self._fired(state, row, history, segment)
            history.capture(rule.id)
        else:
            alert = replace(self.open.pop(rule.id), state=event, step=row.step, time=row.time)
        if event != "resolved":
            self.open[rule.id] = alert
        return alert

    def close(self, rule: RuleState, state: State, step: int) -> list[Alert]:
        """Close a rule's alert from outside, if one is open."""
        rule.close()
        alert = self.open.pop(rule.rule.id, None)
        return [] if alert is None else [replace(alert, state=state, step=step)]

    def silenced(self, step: int) -> list[Alert]:
        """The run's rows have stopped: what was open is stale, and stays open."""
        gone = [rule for rule, alert in self.open.items() if alert.state != "stale"]
        self.open.update({rule: replace(self.open[rule], state="stale", step=step) for rule in gone})
        return [self.open[rule] for rule in gone]

    def revived(self, states: Sequence[RuleState], row: Row) -> list[Alert]:
        """Rows come again: the stale alerts that this one has not resolved are what they were."""
        alerts = []
        for state in states:
            alert = self.open.get(state.rule.id)
            if alert is not None and alert.state == "stale":
                status: State = "flapping" if state.status == "flapping" else "firing"
                self.open[state.rule.id] = replace(alert, state=status, step=row.step, time=row.time)
                alerts.append(self.open[state.rule.id])
        return alerts

    def explained(self, alerts: Sequence[Alert], by: Mapping[str, str | None]) -> list[Alert]:
        """The alerts, open ones with the rule that explains each away."""
        for rule, alert in self.open.items():
            if alert.explained_by != by.get(rule):
                self.open[rule] = replace(alert, explained_by=by.get(rule))
        return [replace(one, explained_by=by.get(one.rule)) if one.rule in self.open else one for one in alerts]

    def requestioned(self, states: Sequence[RuleState], row: Row) -> list[Alert]:
        """Open alerts whose severity or question changed with the facts."""
        alerts = []
        for state in states:
            alert = self.open.get(state.rule.id)
            if alert is not None and alert.question != state.question:
                severity = "info" if state.question else state.rule.severity
                changed = replace(alert, severity=severity, question=state.question, step=row.step, time=row.time)
                self.open[state.rule.id] = changed
                alerts.append(changed)
        return alerts

    def _fired(self, state: RuleState, row: Row, history: History, segment: int) -> Alert:
        rule, verdict = state.rule, state.rule.when.explain(history.layout, history)
        return Alert(
            id=identity(self._run, rule.id, segment, state.since_step),
            run=self._run,
            rule=rule.id,
            state="firing",
            severity="info" if state.question else rule.severity,
            group=rule.group,
            step=row.step,
            since_step=state.since_step,
            segment=segment,
            summary=render(rule.summary, self._shown(state, verdict, row, history)),
            values=dict(verdict.values),
            suspects=self._suspects(rule),
            first_test=rule.first_test,
            time=row.time,
            question=state.question,
            labels=rule.labels,
        )

    def _shown(self, state: RuleState, verdict: Verdict, row: Row, history: History) -> dict[str, object]:
        """What a summary may name: metrics, config facts, observations, step."""
        shown: dict[str, object] = {name: series.last for name, series in history.series.items() if series.count}
        shown |= history.row
        shown |= {f"config.{name}": fact.value for name, fact in self._facts.items()}
        observations = verdict.values.get("observations", state.held)
        return shown | {"observations": int(observations), "step": row.step}

    def _suspects(self, rule: Rule) -> tuple[Suspect, ...]:
        found = []
        for name, score in rule.suspects.items():
            fault = self.catalogue.faults.get(name)
            title, number = (fault.title, fault.number) if fault is not None else (name, None)
            found.append(Suspect(name, title, score, number))
        return tuple(found)


def identity(run: str, rule: str, segment: int, since_step: int) -> str:
    """The id of an alert: the same after a restart."""
    return hashlib.sha256(f"{run}\0{rule}\0{segment}\0{since_step}".encode()).hexdigest()[:16]
