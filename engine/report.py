"""What the engine says about a row: alerts and the incident, as plain data (the public JSON of DESIGN section 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from rltriage.rules.model import Severity

State = Literal["pending", "firing", "resolved", "ended", "superseded", "stale", "flapping"]
OPEN: frozenset[State] = frozenset({"firing", "flapping", "stale"})
"""States in which the fault is still there as far as anybody knows; `stale` is no evidence that it went away."""
CLOSED: frozenset[State] = frozenset({"resolved", "ended", "superseded"})


@dataclass(frozen=True, slots=True)
class Suspect:
    """A fault that may be the cause, with a score in [0, 1]. An alert's are its rule's own, an incident's are ranked."""

    fault: str
    title: str
    score: float
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule's state for one run at the moment of a transition.

    `id` is the hash of run, rule, segment and since_step: the same after a restart. `severity` is the effective one
    (capped at info while a required config fact is unknown; `question` then holds what to ask). `since_step` is the first
    row of the evidence, `step` the row of the transition. `explained_by` is the id of the rule that explains it away.
    """

    id: str
    run: str
    rule: str
    state: State
    severity: Severity
    group: str
    step: int
    since_step: int
    segment: int
    summary: str
    values: Mapping[str, float]
    suspects: tuple[Suspect, ...]
    first_test: str
    time: float | None = None
    question: str = ""
    explained_by: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """An `info` alert beside an incident that another alert opened: whom it points to (empty: nobody), what it asks."""

    rule: str
    fault: str = ""
    question: str = ""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A config fact that differs from what a run is compared with; `against` says what that is, in words."""

    fact: str
    before: object
    now: object
    against: str


@dataclass(frozen=True, slots=True)
class Incident:
    """What is wrong with one run now: its open alerts, the ranked suspects, one first test. At most one per run.

    `rules` are the alerts that name the first suspect or follow from another alert (all of them where nobody is
    suspected), `unexplained` the others from `warning` up, `notes` what `info` alerts say of other faults. `changed` are
    config facts that differ from the healthy reference or an earlier run.
    """

    id: str
    run: str
    step: int
    onset_step: int
    severity: Severity
    suspects: tuple[Suspect, ...]
    first_test: str
    best_test: str
    action: str
    rules: tuple[str, ...]
    unexplained: tuple[str, ...] = ()
    rivals_told_apart_by: str = ""
    time: float | None = None
    notes: tuple[Note, ...] = ()
    changed: tuple[ConfigChange, ...] = ()


class StepReport(NamedTuple):
    """What one row changed: the transitions in order, and the incident if its first two suspects changed."""

    step: int
    alerts: tuple[Alert, ...] = ()
    incident: Incident | None = None


EMPTY = StepReport(step=-1)
