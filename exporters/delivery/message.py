"""What a receiver is told about one transition of one alert: the same labels and the same words everywhere.

Labels identify and never change while an alert lives; everything that moves (step, values, ranking) is an annotation,
because a value in a label makes Alertmanager see a new alert (measured, DESIGN section 8).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rltriage.engine.report import Alert, Incident, State, Suspect
from rltriage.exporters.naming import label_value, run_labels
from rltriage.rules.model import Catalogue, Severity

OPEN: frozenset[State] = frozenset({"firing", "flapping", "stale"})
"""States in which the fault is still there as far as anybody knows; `stale` is no evidence that it went away."""
CLOSED: frozenset[State] = frozenset({"resolved", "ended", "superseded"})
MAX_TEXT = 4000
"""Characters of an annotation. Alertmanager bounds nothing, but chat services cut at about this length."""
SHOWN_SUSPECTS = 3


@dataclass(frozen=True, slots=True)
class Message:
    """One transition, ready to be sent. Times are unix seconds; `starts` is never later than `observed`.

    `title` is one line, `text` the whole block; `page` is true for a critical alert with a named first suspect.
    """

    alert: str
    run: str
    rule: str
    state: State
    severity: Severity
    fault: str
    title: str
    text: str
    starts: float
    observed: float
    step: int
    page: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether the alert is still active after this transition."""
        return self.state in OPEN

    @property
    def series(self) -> str:
        """What Alertmanager takes for one alert: its labels, sorted. Two alert ids can share one series over time."""
        return json.dumps(sorted(self.labels.items()))

    @property
    def grouping(self) -> str:
        """Alerts with this in common are one notification: the fault, or the rule where no fault is suspected."""
        return self.fault or f"rule:{self.rule}"

    def public(self) -> dict[str, Any]:
        """The message as a webhook's JSON sees it."""
        return {
            "id": self.alert,
            "state": self.state,
            "severity": self.severity,
            "run": self.run,
            "rule": self.rule,
            "fault": self.fault,
            "title": self.title,
            "step": self.step,
            "page": self.page,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
        }

    def to_json(self) -> str:
        """One line that `from_json` reads back."""
        return json.dumps(asdict(self), ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str) -> Message:
        """The message that `to_json` wrote. Raises ValueError, TypeError or KeyError for anything else."""
        return cls(**json.loads(text))


def compose(
    alert: Alert,
    now: float,
    *,
    catalogue: Catalogue | None = None,
    labels: Mapping[str, str] | None = None,
    incident: Incident | None = None,
) -> Message:
    """The message of one transition, seen at `now`. `labels` are the run's own; titles come from `catalogue` if given."""
    identity = identity_labels(alert, {**(labels or {}), **alert.labels})
    command = first_test_command(alert, catalogue)
    title = _title(alert, catalogue)
    text = describe(alert, catalogue, incident)
    # A trainer's clock may run ahead of ours; an alert that starts in the future would be shown as not started.
    starts = min(now, alert.time) if alert.time is not None else now
    ranking = incident.suspects if incident is not None else alert.suspects
    annotations = {
        "summary": alert.summary or title,
        "description": text,
        "suspects": _ranking(ranking),
        "first_test_command": command,
        "step": str(alert.step),
        "since_step": str(alert.since_step),
        "values": ", ".join(f"{name}={value:g}" for name, value in alert.values.items()),
        "state": alert.state,
        "alert_id": alert.id,
    }
    return Message(
        alert=alert.id,
        run=alert.run,
        rule=alert.rule,
        state=alert.state,
        severity=alert.severity,
        fault=identity.get("fault", ""),
        title=title,
        text=text,
        starts=starts,
        observed=now,
        step=alert.step,
        page=alert.severity == "critical" and bool(alert.suspects),
        labels=identity,
        annotations={name: _cut(value) for name, value in annotations.items() if value},
    )


def identity_labels(alert: Alert, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that identify an alert, the run's own included and bounded. Empty ones are left out.

    Alertmanager drops an empty value silently, which would change the identity that Prometheus computes.
    """
    own = {
        "alertname": alert_name(alert.rule),
        "rule": label_value(alert.rule),
        "group": label_value(alert.group),
        "severity": alert.severity,
        "fault": label_value(alert.suspects[0].fault) if alert.suspects else "",
        "first_test": label_value(alert.first_test),
    }
    found = dict(run_labels(alert.run, [(name, value) for name, value in labels.items() if name not in own]))
    return {**found, **{name: value for name, value in own.items() if value}}


def alert_name(rule: str) -> str:
    """The rule's id in CamelCase, as Prometheus names alerts: `kl-ref-exactly-zero` is `KlRefExactlyZero`."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", rule)) or "Rltriage"


def first_test_command(alert: Alert, catalogue: Catalogue | None) -> str:
    """The command that runs the alert's first test, with the run filled in; "" where there is none."""
    test = catalogue.first_tests.get(alert.first_test) if catalogue else None
    return test.command.replace("{run}", alert.run) if test else ""


def describe(alert: Alert, catalogue: Catalogue | None = None, incident: Incident | None = None) -> str:
    """The text block: what is seen, since when, the suspect and its rivals, the first test and its command."""
    lines = [f"{_title(alert, catalogue)}", alert.summary]
    if alert.values:
        lines.append("numbers: " + ", ".join(f"{name} = {value:g}" for name, value in alert.values.items()))
    lines.append(f"run {alert.run}, since step {alert.since_step}, {alert.state} at step {alert.step}")
    suspects = alert.suspects
    if suspects:
        lines.append("suspect: " + _suspect(suspects[0]))
    if len(suspects) > 1:
        lines.append("or: " + ", ".join(_suspect(suspect) for suspect in suspects[1:SHOWN_SUSPECTS]))
    test = catalogue.first_tests.get(alert.first_test) if catalogue else None
    if alert.first_test:
        lines.append(f"first test: {test.title if test else alert.first_test}")
    command = first_test_command(alert, catalogue)
    if command:
        lines.append(f"run it: {command}")
    if alert.question:
        lines.append(f"to know for certain: {alert.question}")
    if incident is not None and incident.action != "continue":
        lines.append(f"meanwhile: {incident.action}")
    return _cut("\n".join(line for line in lines if line))


def _title(alert: Alert, catalogue: Catalogue | None) -> str:
    if not alert.suspects:
        return f"{alert.severity}: {alert.rule} in {alert.run}"
    suspect = alert.suspects[0]
    fault = catalogue.faults.get(suspect.fault) if catalogue else None
    title = suspect.title or (fault.title if fault else "") or suspect.fault
    return f"{alert.severity}: {title} suspected in {alert.run}"


def _suspect(suspect: Suspect) -> str:
    number = f"fault {suspect.number}, " if suspect.number is not None else ""
    name = f"{suspect.title} ({number}{suspect.fault})" if suspect.title else f"{number}{suspect.fault}"
    return f"{name} {suspect.score:.0%}"


def _ranking(suspects: Sequence[Suspect]) -> str:
    return ", ".join(f"{suspect.fault} {suspect.score:.2f}" for suspect in suspects)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
