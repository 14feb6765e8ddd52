"""What is wrong with one run now: one incident of the open alerts, with the first test and what to do meanwhile."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from rltriage.engine.report import Alert, ConfigChange, Incident, Note
from rltriage.engine.triage.rank import Ranked
from rltriage.rules.model import SEVERITIES, Catalogue, Fault, FirstTest

_TIERS = ("rows", "dump", "trainer")
_SHOWN = 5
_WORTH_SHOWING = 0.02
_CLOSE = 1.0


def identity(run: str, segment: int, onset: int) -> str:
    """The id of a run's incident: the same after a restart, and while its suspects change."""
    return hashlib.sha1(f"incident/{run}/{segment}/{onset}".encode(), usedforsecurity=False).hexdigest()[:16]


def build(
    identifier: str,
    alerts: Sequence[Alert],
    explained: Mapping[str, str | None],
    ranked: Sequence[Ranked],
    catalogue: Catalogue,
    step: int,
    time: float | None,
    changed: Sequence[ConfigChange] = (),
    logged: Collection[str] = (),
) -> Incident:
    """One incident of the open `alerts` (not empty); `ranked` may be empty where no rule knows a suspect.

    `logged` are the metrics of the run so far: another one can decide only once it is logged.
    """
    leader = ranked[0].fault if ranked else None
    candidates = _tests(alerts, explained, leader, catalogue)
    shown = [entry for index, entry in enumerate(ranked[:_SHOWN]) if index < 2 or entry.score >= _WORTH_SHOWING]
    return Incident(
        id=identifier,
        run=alerts[0].run,
        step=step,
        onset_step=min(alert.since_step for alert in _evidence(alerts)),
        severity=max((alert.severity for alert in alerts), key=SEVERITIES.index),
        suspects=tuple(entry.suspect() for entry in shown),
        first_test=min(candidates, key=lambda test: _TIERS.index(test.tier)).id if candidates else alerts[0].first_test,
        best_test=min(candidates, key=_order_of_cost).id if candidates else alerts[0].first_test,
        action=leader.action if leader else "continue",
        rules=tuple(alert.rule for alert in alerts if _bears_on(alert, explained, leader)),
        unexplained=_unexplained(alerts, explained, leader),
        rivals_told_apart_by=told_apart(ranked, candidates, logged),
        time=time,
        notes=notes(alerts, explained, [entry.fault.id for entry in shown]),
        changed=tuple(changed),
    )


def _evidence(alerts: Sequence[Alert]) -> Sequence[Alert]:
    """The alerts that hang on no open question, if there are any: the run need not go back to before the others."""
    return [alert for alert in alerts if not alert.question] or alerts


def notes(alerts: Iterable[Alert], explained: Mapping[str, str | None], suspects: Sequence[str]) -> tuple[Note, ...]:
    """What `info` alerts add: a suspect that is not among `suspects`, or, after those, a question that would decide."""
    found = [
        Note(alert.rule, alert.suspects[0].fault if alert.suspects else "", alert.question)
        for alert in alerts
        if alert.severity == "info"
        and explained.get(alert.rule) is None
        and (alert.question or (alert.suspects and alert.suspects[0].fault not in suspects))
    ]
    return tuple(sorted(found, key=lambda note: bool(note.question)))


def told_apart(ranked: Sequence[Ranked], tests: Sequence[FirstTest], logged: Collection[str]) -> str:
    """What would decide between the first two suspects when their sums are closer than 1, else the empty text."""
    if len(ranked) < 2 or ranked[0].total - ranked[1].total >= _CLOSE:
        return ""
    first, second = ranked[0].fault, ranked[1].fault
    for test in tests:
        outcomes = {fault: outcome for outcome, fault in reversed(list(test.decides.items()))}
        if first.id in outcomes and second.id in outcomes:
            return f"{test.title}: {outcomes[first.id]} ({first.id}), {outcomes[second.id]} ({second.id})"
    checks = _check_that_differs(first, second) or _check_that_differs(second, first)
    if checks:
        return checks
    metric = _metric_that_differs(first, second, logged)
    own = f"first test of {first.id}: {first.first_test}" if first.first_test else ""
    return metric or own


def _check_that_differs(one: Fault, other: Fault) -> str:
    only = sorted(one.failing_checks - other.failing_checks - other.may_fail)
    return f"the invariant {only[0]}: it fails under {one.id}, not under {other.id}" if only else ""


def _metric_that_differs(first: Fault, second: Fault, logged: Collection[str]) -> str:
    """What only one of them moves; a metric that is logged before one that has to be logged for it."""
    found = [
        (name, f"{name}: it goes {_way(direction)} under {one.id}, not under {other.id}")
        for one, other in ((first, second), (second, first))
        for name, direction in one.explains
        if (name, direction) not in other.explains
    ]
    seen = next((text for name, text in found if name in logged), "")
    return seen or (f"log {found[0][1]}" if found else "")


def _way(direction: str) -> str:
    return "to zero" if direction == "zero" else direction


def _tests(
    alerts: Sequence[Alert], explained: Mapping[str, str | None], leader: Fault | None, catalogue: Catalogue
) -> list[FirstTest]:
    """The tests that bear on the first suspect: of the rules that name it, the strongest first, and the fault's own."""
    weights: dict[str, float] = {}
    for alert in alerts:
        share = next((s.score for s in alert.suspects if leader is not None and s.fault == leader.id), 0.0)
        if explained.get(alert.rule) is None and (share > 0 or leader is None):
            weights[alert.first_test] = max(weights.get(alert.first_test, 0.0), share)
    names = sorted(weights, key=lambda name: -weights[name])
    if leader is not None and leader.first_test:
        names.append(leader.first_test)
    return [catalogue.first_tests[name] for name in dict.fromkeys(names) if name in catalogue.first_tests]


def _order_of_cost(test: FirstTest) -> tuple[int, int]:
    """The chapter's order (18.7): an invariant, then consistency read from the rows, then what needs a dump or a rerun."""
    return (0, test.check) if test.check is not None else (1 + _TIERS.index(test.tier), 0)


def _bears_on(alert: Alert, explained: Mapping[str, str | None], leader: Fault | None) -> bool:
    """Whether an alert names the first suspect or follows from another alert; any does where nobody is suspected.

    One that asks for a config fact is no evidence yet: it is among the notes.
    """
    if explained.get(alert.rule) is not None:
        return True
    if alert.question or leader is None:
        return not alert.question
    return any(suspect.fault == leader.id for suspect in alert.suspects)


def _unexplained(alerts: Sequence[Alert], explained: Mapping[str, str | None], leader: Fault | None) -> tuple[str, ...]:
    """Rules at warning or above that neither name the first suspect nor follow from another alert."""
    return tuple(
        alert.rule
        for alert in alerts
        if alert.severity != "info"
        and explained.get(alert.rule) is None
        and (leader is None or not _bears_on(alert, explained, leader))
    )
