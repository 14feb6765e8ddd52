"""What a report shows about one run, as plain data: `build` makes it of a collector, HTML, Markdown and JSON show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rltriage.engine.report import Alert, ConfigChange, Incident, Note
from rltriage.engine.rows import Fact
from rltriage.exporters.report.curves import Bucket
from rltriage.exporters.state import RunState
from rltriage.rules.model import SEVERITIES, Catalogue, FirstTest, Rule

if TYPE_CHECKING:
    from rltriage.engine.sources import BadLine


@dataclass(frozen=True, slots=True)
class Mark:
    """A step at which something happened that a curve is about: what is seen, and the rules that say so (or none)."""

    step: int
    text: str
    severity: str
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One metric's course with its healthy band, as (step, low, high), where a reference has one."""

    metric: str
    buckets: tuple[Bucket, ...]
    width: int
    gaps: tuple[int, ...] = ()
    band: tuple[tuple[int, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture: lines over the same steps, in one panel where they share a unit (`shared`), else in one each.

    `rules` are those whose alerts it is about.
    """

    title: str
    caption: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    shared: bool = True
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One invariant: `passed` is None where it was not run or could not judge."""

    number: int
    id: str
    title: str
    passed: bool | None
    value: float | None


@dataclass(frozen=True, slots=True)
class Missing:
    """A metric that is not logged, what a departure of it flags, and the faults that rules could name if it were."""

    metric: str
    flags: str
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a run stands. `standing` are alerts that nothing has resolved, strongest first.

    `resolved` is True where `incident` is over; `drawn` are the alerts of the triage map: those that stand, else its own.
    """

    id: str
    state: RunState
    rows: int
    first_step: int | None
    last_step: int | None
    last_time: float | None
    incident: Incident | None
    resolved: bool
    standing: tuple[Alert, ...]
    drawn: tuple[Alert, ...]
    timeline: tuple[Alert, ...]

    @property
    def severity(self) -> str:
        """The highest severity that stands, empty if nothing does."""
        return max((alert.severity for alert in self.standing), key=SEVERITIES.index, default="")

    @property
    def fault(self) -> str:
        """The first suspect of the incident, empty if nothing is or was suspected."""
        return self.incident.suspects[0].fault if self.incident is not None and self.incident.suspects else ""


@dataclass(frozen=True, slots=True)
class RunReport(Outlook):
    """Everything about one run.

    `hidden` are faults that nothing logged can reveal, `invariants_reveal` those that running the invariants would add.
    `why_no_band` says why no healthy band is drawn, `band_differs` how the configuration of the drawn one differs; both are
    empty where a healthy reference fits. `bad_rows` counts the lines of the whole log that were not understood;
    `bad_examples` are the first of them.
    """

    profile: str
    restarts: int
    labels: Mapping[str, str]
    facts: Mapping[str, Fact]
    timeline_total: int
    symptoms: tuple[Chart, ...]
    pairs: tuple[Chart, ...]
    metrics: tuple[Line, ...]
    checks: tuple[Check, ...]
    missing: tuple[Missing, ...]
    hidden: tuple[str, ...]
    invariants_reveal: tuple[str, ...]
    catalogue: Catalogue
    rules: Mapping[str, Rule]
    seen: frozenset[str]
    why_no_band: str
    band_differs: str
    unmapped: tuple[str, ...]
    notes: tuple[Note, ...]
    changed: tuple[ConfigChange, ...]
    bad_rows: int
    bad_examples: tuple[BadLine, ...]


def is_evidence(alert: Alert, fault: str) -> bool:
    """Whether an alert speaks for a fault; one that asks for a config fact does so only once the fact is known."""
    return bool(fault) and not alert.question and any(suspect.fault == fault for suspect in alert.suspects)


def first_test(report: RunReport) -> FirstTest | None:
    """The test to run first, as an entry of the catalogue."""
    name = report.standing[0].first_test if report.standing else ""
    name = report.incident.first_test if report.incident is not None and (not report.resolved or not name) else name
    return report.catalogue.first_tests.get(name)
