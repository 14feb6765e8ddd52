"""Triage of one run: explain alerts, rank suspects, decode invariants, keep one incident (DESIGN, section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rltriage.engine.report import OPEN, Alert, ConfigChange, Incident
from rltriage.engine.rows import Fact, Row, Run
from rltriage.engine.triage.decode import CHECKS, Decoding, decode, read_checks
from rltriage.engine.triage.explain import explain
from rltriage.engine.triage.incident import build, identity
from rltriage.engine.triage.rank import Evidence, rank
from rltriage.engine.triage.symptoms import symptoms_of
from rltriage.rules.model import Catalogue, RulePack

__all__ = ["CHECKS", "Decoding", "Triage", "decode", "read_checks"]

_NOTHING: tuple[Mapping[str, str | None], None] = ({}, None)


class Compared(Protocol):
    """What a run is compared with: a healthy reference, an earlier run (`engine.reference.Fitted`)."""

    def changes(self, facts: Mapping[str, Fact]) -> tuple[ConfigChange, ...]:
        """The config facts that differ."""


class Triage:
    """The triage of one run. Work is done only when the open alerts, the facts or the invariants have changed."""

    def __init__(
        self, catalogue: Catalogue, pack: RulePack, evidence: Evidence | None = None, compared: Compared | None = None
    ) -> None:
        self._catalogue = catalogue
        self._compared = compared
        self._symptoms = symptoms_of(pack)
        self._evidence: Evidence = evidence or {}
        self._checks: dict[str, bool] = {}
        self._last_step: int | None = None
        self._seen: object = None
        self._explained: dict[str, str | None] = {}
        self._incident_id = ""
        self._named: tuple[str, ...] | None = None

    def reload(self, catalogue: Catalogue, pack: RulePack) -> None:
        """The rules are others now; what is open is judged anew with the next change."""
        self._catalogue = catalogue
        self._symptoms = symptoms_of(pack)
        self._seen = None

    def update(
        self, run: Run, facts: Mapping[str, Fact], open_alerts: Sequence[Alert], row: Row, logged: frozenset[str]
    ) -> tuple[Mapping[str, str | None], Incident | None]:
        """Take one row's open alerts; give rule -> the rule that explains it, and the incident where it changed.

        An incident changes with its first two suspects; there is none while no alert of `warning` or above is open.
        `facts` are all that is known by now (declared, logged, inferred); `run` gives the id;
        `logged` are the metrics of the run so far: another one can decide only once it is logged.
        """
        self._remember_checks(row)
        if not open_alerts:
            self._named, self._explained, self._seen = None, {}, None
            return _NOTHING
        state = (tuple((alert.id, alert.severity, alert.state) for alert in open_alerts), dict(facts), dict(self._checks))
        if state == self._seen:
            return self._explained, None
        self._seen = state
        alerts = [alert for alert in open_alerts if alert.state in OPEN]
        self._explained = explain(alerts, self._symptoms, self._catalogue.faults)
        return self._explained, self._incident(run, facts, alerts, row, logged)

    def _remember_checks(self, row: Row) -> None:
        """Invariants are run now and then: the newest result of each counts until the run starts over."""
        if self._last_step is not None and row.step < self._last_step:
            self._checks = {}
        self._last_step = row.step
        results = read_checks(row.metrics)
        if results:
            self._checks.update(results)

    def _incident(
        self, run: Run, facts: Mapping[str, Fact], alerts: Sequence[Alert], row: Row, logged: frozenset[str]
    ) -> Incident | None:
        if all(alert.severity == "info" for alert in alerts):
            self._named = None
            return None
        decoding = decode(self._checks, self._catalogue.faults) if self._checks else None
        ranked = rank(alerts, self._explained, self._symptoms, self._catalogue.faults, facts, decoding, self._evidence)
        named = tuple(entry.fault.id for entry in ranked[:2])
        if named == self._named:
            return None
        if self._named is None:
            first = min(alerts, key=lambda alert: alert.since_step)
            self._incident_id = identity(run.id, first.segment, first.since_step)
        self._named = named
        changed = self._compared.changes(facts) if self._compared is not None else ()
        return build(
            self._incident_id, alerts, self._explained, ranked, self._catalogue, row.step, row.time, changed, logged
        )
