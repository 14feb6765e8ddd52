"""Rank the suspects of a run: a sum of log-likelihood ratios, one per cluster of evidence, turned into probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rltriage.engine.report import Alert, Suspect
from rltriage.engine.rows import Fact
from rltriage.engine.triage.decode import Decoding
from rltriage.engine.triage.facts import impossible
from rltriage.engine.triage.symptoms import Symptom, cluster
from rltriage.rules.model import Fault

Evidence = Mapping[str, Mapping[str, tuple[float, float]]]
"""rule id -> fault id -> (p, q): how often the rule fires under the fault, and how often without it."""

_CLIP = 4.0
_BASE_RATE = 0.05
"""q of a rule that nobody measured: the share of runs in which a suspect of weight w is named without being the fault."""
_SEVERITY_WEIGHT = {"critical": 1.0, "warning": 0.9, "info": 0.4}
_OPEN_QUESTION = 0.35
"""An alert whose config fact is unknown may be normal for this run: less than a note whose facts are known. At .3 it no
longer puts the second suspect of a public report (B54) where all facts known put it."""
_DECODED = 2 * _CLIP
_OUTSIDE = 3.5


@dataclass(frozen=True, slots=True)
class Ranked:
    """A suspect with the sum that its probability was made of."""

    fault: Fault
    total: float
    score: float

    def suspect(self) -> Suspect:
        """The public form."""
        return Suspect(self.fault.id, self.fault.title, round(self.score, 4), self.fault.number)


def rank(
    alerts: Sequence[Alert],
    explained: Mapping[str, str | None],
    symptoms: Mapping[str, Symptom | None],
    faults: Mapping[str, Fault],
    facts: Mapping[str, Fact],
    decoding: Decoding | None,
    evidence: Evidence,
) -> list[Ranked]:
    """Suspects of the open alerts, most probable first; ties keep the catalogue's order.

    Who is a suspect is said by alerts of `warning` and above and by the invariants; notes (`info`) only support or not.

    `score = exp(total) / (1 + sum of exp(total))`: a softmax in which an unknown cause takes part with total 0, so that
    one weak alert never makes a certain suspect.
    """
    counted = {alert.rule: _counted(alert, alerts, explained) for alert in alerts}
    clusters = _strongest(alerts, counted, symptoms, evidence)
    named = {suspect.fault for alert in alerts if alert.severity != "info" for suspect in counted[alert.rule]}
    candidates = named | set(decoding.faults if decoding is not None else ())
    totals = {
        name: faults[name].prior + sum(best.get(name, 0.0) for best in clusters.values()) + _checked(faults[name], decoding)
        for name in faults
        if name in candidates and not impossible(faults[name], facts)
    }
    top = max(totals.values(), default=0.0)
    mass = math.exp(-top) + sum(math.exp(total - top) for total in totals.values())
    ranked = [Ranked(faults[name], total, math.exp(total - top) / mass) for name, total in totals.items()]
    return sorted(ranked, key=lambda entry: -entry.total)


def _counted(alert: Alert, alerts: Sequence[Alert], explained: Mapping[str, str | None]) -> tuple[Suspect, ...]:
    """The suspects for which an alert counts: a consequence of another alert supports only that one's leading suspect."""
    cause = explained.get(alert.rule)
    if cause is None:
        return alert.suspects
    leading = next((other.suspects[0].fault for other in alerts if other.rule == cause and other.suspects), None)
    return tuple(suspect for suspect in alert.suspects if suspect.fault == leading)


def _strongest(
    alerts: Sequence[Alert],
    counted: Mapping[str, tuple[Suspect, ...]],
    symptoms: Mapping[str, Symptom | None],
    evidence: Evidence,
) -> dict[str, dict[str, float]]:
    """Per cluster and fault the strongest support: metrics of one cluster move together and count once."""
    clusters: dict[str, dict[str, float]] = {}
    for alert in alerts:
        seen = symptoms.get(alert.rule)
        best = clusters.setdefault(cluster(seen.metric) if seen else alert.rule, {})
        measured = evidence.get(alert.rule, {})
        weight = _OPEN_QUESTION if alert.question else _SEVERITY_WEIGHT[alert.severity]
        for suspect in counted[alert.rule]:
            support = _support(suspect, measured) * weight
            best[suspect.fault] = max(best.get(suspect.fault, -_CLIP), support)
    return clusters


def _support(suspect: Suspect, measured: Mapping[str, tuple[float, float]]) -> float:
    """log(p/q), clipped; where nobody measured, p is the rule's own weight of the suspect."""
    p, q = measured.get(suspect.fault, (suspect.score, _BASE_RATE))
    return max(-_CLIP, min(_CLIP, math.log(max(p, 1e-3) / max(q, 1e-3))))


def _checked(fault: Fault, decoding: Decoding | None) -> float:
    """What the invariants say of one fault: decoded weighs double, outside the failed set or contradicted loses 3.5."""
    if decoding is None:
        return 0.0
    if decoding.failed:
        return _DECODED - math.log(len(decoding.sets)) if fault.id in decoding.faults else -_OUTSIDE
    contradicted = fault.number is not None and bool(fault.failing_checks & decoding.passed)
    return -_OUTSIDE if contradicted else 0.0
