"""Which open alert is a consequence of which: causal, by what the suspected fault does downstream, never by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rltriage.engine.report import Alert
from rltriage.engine.triage.symptoms import Symptom
from rltriage.rules.model import Fault

_NEVER_EXPLAINED = frozenset(
    {"nonfinite", "stalled_run", "reward_hacking", "train_eval_mismatch", "truncation_cap", "eos_mismatch"}
)
"""Leading suspects whose alerts stand on their own: NaN, a dead run, train against an independent signal, truncation."""


def explain(
    alerts: Sequence[Alert], symptoms: Mapping[str, Symptom | None], faults: Mapping[str, Fault]
) -> dict[str, str | None]:
    """For each open alert's rule the rule that explains it away, or None.

    An explainer is a firing critical alert whose leading suspect declares the target's symptom in `Fault.explains` and
    whose evidence began no later. Of several the earliest wins, then the first in the order of the alerts, and nothing
    that is itself explained explains.
    """
    causes = sorted((alert for alert in alerts if alert.severity == "critical" and alert.suspects), key=_began)
    explained: dict[str, str | None] = {alert.rule: None for alert in alerts}
    for cause in causes:
        if explained[cause.rule] is not None:
            continue
        fault = faults.get(cause.suspects[0].fault)
        if fault is None or not fault.explains:
            continue
        for target in alerts:
            if explained[target.rule] is None and _is_consequence(target, cause, symptoms.get(target.rule), fault):
                explained[target.rule] = cause.rule
    return explained


def _began(alert: Alert) -> tuple[int, bool]:
    """The earliest first; on one row a broken identity comes before a dynamic that it can imitate (chapter, 18.7)."""
    return alert.since_step, alert.group != "consistency"


def _is_consequence(target: Alert, cause: Alert, seen: Symptom | None, fault: Fault) -> bool:
    if target.rule == cause.rule or seen is None or cause.since_step > target.since_step:
        return False
    if target.group == "liveness" or (target.suspects and target.suspects[0].fault in _NEVER_EXPLAINED):
        return False
    if target.suspects and target.suspects[0].fault == fault.id:
        return False  # the same diagnosis from another side is support, not a consequence
    return any(
        seen.metric == metric and (seen.direction is None or seen.direction == direction)
        for metric, direction in fault.explains
    )
