"""What a receiver is told about one transition of one alert: the same labels and the same words everywhere.

Labels identify and never change while an alert lives; everything that moves (step, values, ranking) is an annotation,
because a value in a label makes Alertmanager see a new alert (measured, DESIGN section 8).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from string import Template
from typing import Any
from urllib.parse import quote

from rltriage.engine.report import OPEN, Alert, Incident, State
from rltriage.exporters.jsonlines import test_command
from rltriage.exporters.naming import label_value, run_labels
from rltriage.exporters.page.address import run_path
from rltriage.exporters.text import alert_text, incident_text
from rltriage.rules.model import Catalogue, Severity

MAX_TEXT = 4000
"""Characters of an annotation. Alertmanager bounds nothing, but chat services cut at about this length."""
NO_CATALOGUE = Catalogue({}, {}, {})


@dataclass(frozen=True, slots=True)
class Links:
    """Where a notification points: `page` is the on-call page's own address, `runbook` that of a text about the fault.

    `$fault` and `$rule` in `runbook` are filled in; without them the fault is the anchor in it. Empty: no link.
    """

    page: str = ""
    runbook: str = ""

    def of(self, alert: Alert, fault: str) -> dict[str, str]:
        """The annotations `page_url` and `runbook_url`, as far as there are such addresses."""
        found = {}
        if self.page:
            # The alert's own address on the on-call page, the same after a restart.
            found["page_url"] = f"{self.page.rstrip('/')}{run_path(alert.run)}/alerts/{quote(alert.id, safe='')}"
        template = Template(self.runbook)
        names = template.get_identifiers() or ["fault"]
        if self.runbook and (fault or "fault" not in names):
            url = self.runbook if template.get_identifiers() else f"{self.runbook}#$fault"
            given = {"fault": quote(fault, safe=""), "rule": quote(alert.rule, safe="")}
            found["runbook_url"] = Template(url).safe_substitute(given)
        return found


NO_LINKS = Links()


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
        """The message that `to_json` wrote. Raises ValueError, TypeError, KeyError or RecursionError for others."""
        return cls(**json.loads(text))


def compose(
    alert: Alert,
    now: float,
    *,
    catalogue: Catalogue = NO_CATALOGUE,
    labels: Mapping[str, str] | None = None,
    incident: Incident | None = None,
    links: Links = NO_LINKS,
) -> Message:
    """The message of one transition, seen at `now`. `labels` are the run's own; titles come from `catalogue` if given."""
    identity = identity_labels(
        alert, {**alert.labels, **{name: value for name, value in (labels or {}).items() if name not in alert.labels}}
    )
    test = catalogue.first_tests.get(alert.first_test)
    title = _title(alert, catalogue)
    text = alert_text(alert, catalogue)
    if incident is not None and alert.state in OPEN:
        text = f"{text}\n\n{incident_text(incident, catalogue)}"
    # A trainer's clock may run ahead of ours; an alert that starts in the future would be shown as not started.
    starts = min(now, alert.time) if alert.time is not None else now
    ranking = incident.suspects if incident is not None else alert.suspects
    annotations = {
        "summary": alert.summary or title,
        "description": text,
        "suspects": ", ".join(f"{suspect.fault} {suspect.score:.2f}" for suspect in ranking),
        "first_test_command": test_command(test.command, alert.run) if test else "",
        "step": str(alert.step),
        "since_step": str(alert.since_step),
        "values": ", ".join(f"{name}={value:g}" for name, value in alert.values.items()),
        "state": alert.state,
        "alert_id": alert.id,
        **links.of(alert, identity.get("fault", "")),
    }
    return Message(
        alert=alert.id,
        run=alert.run,
        rule=alert.rule,
        state=alert.state,
        severity=alert.severity,
        fault=identity.get("fault", ""),
        title=title,
        text=_cut(text),
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
    return {**dict(run_labels(alert.run, labels.items())), **{name: value for name, value in own.items() if value}}


def alert_name(rule: str) -> str:
    """The rule's id in CamelCase, as Prometheus names alerts: `kl-ref-exactly-zero` is `KlRefExactlyZero`."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", rule)) or "Rltriage"


def _title(alert: Alert, catalogue: Catalogue) -> str:
    if not alert.suspects:
        return f"{alert.severity}: {alert.rule} in {alert.run}"
    suspect = alert.suspects[0]
    fault = catalogue.faults.get(suspect.fault)
    title = suspect.title or (fault.title if fault else "") or suspect.fault
    return f"{alert.severity}: {title} suspected in {alert.run}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
