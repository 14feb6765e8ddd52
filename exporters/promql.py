"""Rules as PromQL: on the engine's exported state, which fits every rule, or on the metrics, where that means the same.

Metrics alone say the same for one scraped value as for one row only in thresholds on the newest value, non-finite values,
and `all`, `any` and `unless` over them. `for`, windows and statistics count rows, Prometheus counts seconds; config facts
are labels, not numbers. Source: DESIGN section 8 (a scrape each second saw 1 of 30 one-step spikes, a counter all 30).
"""

from __future__ import annotations

import math

from rltriage.exporters.naming import Names, number, quoted
from rltriage.rules.conditions.base import Condition
from rltriage.rules.conditions.logic import All, Any
from rltriage.rules.conditions.nonfinite import Nonfinite
from rltriage.rules.conditions.terms import Term
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.model import Rule

LINGER_SECONDS = 60
"""How long an alert that came and went between two scrapes is shown: two evaluations at the usual intervals."""
_OPERATORS = {"above": ">", "at_least": ">=", "below": "<", "at_most": "<="}
_FALSE = {
    "above": "at_most",
    "at_least": "below",
    "below": "at_least",
    "at_most": "above",
    "equals": "differs",
    "differs": "equals",
}


class NotExact(Exception):
    """Means something else to Prometheus than to the engine; the message is the reason, for people."""


def one_of_replicas(family: str) -> str:
    """A run's value whoever exports it: two replicas of one service must not count twice, nor be two alerts."""
    return f"max without (instance, job) ({family})"


def in_state(state: str) -> str:
    """The runs in a state."""
    return f"max without (instance, job, state) (rltriage_run_state{{state={quoted(state)}}}) == 1"


def engine_expression(rule: Rule) -> str:
    """True while the engine says that the alert fires, or fired within the last LINGER_SECONDS, and nothing explains it."""
    chosen = f"{{rule={quoted(rule.id)}}}"
    firing = f"rltriage_alert_firing{chosen}"
    recent = f"{firing} and (time() - rltriage_alert_last_firing_timestamp_seconds{chosen} < {LINGER_SECONDS})"
    explained = one_of_replicas(f"rltriage_alert_explained{chosen} == 1")
    return f"{one_of_replicas(f'({firing} == 1) or ({recent})')} unless on (run) {explained}"


def metric_expression(rule: Rule, names: Names) -> str:
    """The rule's own condition over the gauges. Raises NotExact with the first reason why it would mean something else."""
    if rule.requires:
        raise NotExact(f"depends on config facts ({', '.join(rule.requires)}), which are no numbers to Prometheus")
    if rule.hold > 1 or rule.keep_firing_for or rule.after:
        raise NotExact("for, keep_firing_for and after count rows, Prometheus counts seconds")
    if rule.clear_when is not None:
        raise NotExact("clear_when needs the alert's own state")
    when = _condition(rule.when, names)
    return when if rule.unless is None else f"({when}) unless ({_condition(rule.unless, names)})"


def witness(condition: Condition, holds: bool) -> dict[str, float] | None:
    """Values of its metrics for which a translatable condition holds or does not; None where none is easily found."""
    if isinstance(condition, Nonfinite):
        return {name: math.nan if holds else 1.0 for name in condition.names[:1]}
    if isinstance(condition, Threshold):
        name, limit = condition.limit
        if limit.constant is None or condition.times == 0:
            return None
        value = _beyond(name if holds else _FALSE[name], limit.constant, condition.tolerance) / condition.times
        return {condition.metric: max(value, 0.0) if condition.abs else value}
    if isinstance(condition, Any) and holds:
        return witness(condition.of[0], True)
    if not isinstance(condition, (All, Any)):
        return None
    found: dict[str, float] = {}
    for part in condition.of:
        values = witness(part, holds)
        if values is None or any(found.get(metric, value) != value for metric, value in values.items()):
            return None
        found |= values
    return found


def _beyond(name: str, limit: float, tolerance: float) -> float:
    step = {"above": 1.0, "below": -1.0, "differs": 1.0}.get(name, 0.0)
    return limit + step * (abs(limit) + tolerance + 1)


def _condition(condition: Condition, names: Names) -> str:
    if isinstance(condition, Threshold):
        return _threshold(condition, names)
    if isinstance(condition, Nonfinite):
        return _nonfinite(condition, names)
    if isinstance(condition, (All, Any)):
        word = " and " if isinstance(condition, All) else " or "
        return word.join(f"({_condition(part, names)})" for part in condition.of)
    raise NotExact(f"{condition.kind} looks at the run's history")


def _threshold(condition: Threshold, names: Names) -> str:
    left = _operand(condition.left, names)
    name, limit = condition.limit
    right = _operand(limit, names)
    # The engine judges finite values only; comparisons filter, so that a second one on the same value is "and".
    if name in _OPERATORS:
        found = f"{left} {_OPERATORS[name]} {right} {'< Inf' if name in ('above', 'at_least') else '> -Inf'}"
    else:
        found = f"abs({left} - {right}) {'<=' if name == 'equals' else '>'} {number(condition.tolerance)} < Inf"
    return found if limit.constant is not None else f"{found} and (abs({right}) < Inf)"


def _nonfinite(condition: Nonfinite, names: Names) -> str:
    wanted = [name for name in condition.names if name not in condition.ignored]
    if not wanted or any(sign in name for name in wanted for sign in "*?["):
        raise NotExact("any metric may be non-finite: name them to translate")
    values = [_metric(name, names) for name in wanted]
    return " or ".join(f"({value} != {value}) or (abs({value}) == Inf)" for value in values)


def _operand(term: Term, names: Names) -> str:
    if term.constant is not None:
        return number(term.constant)
    if term.metric is None:
        raise NotExact("compares with a config fact, which is no number to Prometheus")
    if term.window is not None:
        raise NotExact("windows count rows, Prometheus' ranges seconds")
    if term.stat != "last" or term.max_age is not None:
        raise NotExact(
            f"needs {'the age' if term.stat == 'last' else term.stat} of {term.metric}, which only the engine keeps"
        )
    if term.plus is not None:
        raise NotExact("sums of operands are left to the engine")
    value = _metric(term.metric, names)
    value = f"abs({value})" if term.abs else value
    return value if term.times == 1 else f"({number(term.times)} * {value})"


def _metric(metric: str, names: Names) -> str:
    """The gauge with its run's labels alone, so that two metrics of one run match."""
    place = names.find(metric)
    if place is None:
        raise NotExact(f"{metric} has no gauge of its own")
    family, labels = place
    chosen = ",".join(f"{name}={quoted(value)}" for name, value in labels)
    dropped = ", ".join(("instance", "job", *(name for name, _ in labels)))
    return f"max without ({dropped}) ({family.sample_name}{f'{{{chosen}}}' if chosen else ''})"
