"""What other rules would have said about the same rows: alerts gained, lost, earlier and later, per run and rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rltriage.engine.report import StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.state import RunState

Kind = Literal["gained", "lost", "earlier", "later", "severity"]


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule's alert fired at a step of a segment, with this severity."""

    segment: int
    step: int
    severity: str


@dataclass(slots=True)
class Firings:
    """A sink that keeps when each rule fired: run -> rule -> firings in their order."""

    found: dict[str, dict[str, list[Firing]]] = field(default_factory=dict)

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Keep the alerts that fired."""
        for alert in report.alerts:
            if alert.state == "firing":
                firings = self.found.setdefault(run.id, {}).setdefault(alert.rule, [])
                firings.append(Firing(alert.segment, alert.step, alert.severity))

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """Nothing to close."""


@dataclass(frozen=True, slots=True)
class Change:
    """What differs for one rule of one run. `before` and `after` are its n-th firing under each set of rules."""

    run: str
    rule: str
    kind: Kind
    before: Firing | None
    after: Firing | None

    def as_json(self) -> dict[str, Any]:
        """The change as a public object; the steps are null on the side where the alert did not fire."""
        return {
            "type": "difference",
            "format": 1,
            "run": self.run,
            "rule": self.rule,
            "change": self.kind,
            "step_before": self.before.step if self.before else None,
            "step_after": self.after.step if self.after else None,
            "severity_before": self.before.severity if self.before else None,
            "severity_after": self.after.severity if self.after else None,
        }

    def __str__(self) -> str:
        sides = (f"{side.severity} at step {side.step}" if side else "silent" for side in (self.before, self.after))
        return f"{self.kind:<8}  {self.run}  {self.rule}: {' -> '.join(sides)}"


def compare(before: Firings, after: Firings) -> list[Change]:
    """Every difference, run by run, rules by name. A rule's n-th firing is compared with its n-th under the other rules."""
    changes = []
    for run in dict.fromkeys((*before.found, *after.found)):
        old, new = before.found.get(run, {}), after.found.get(run, {})
        for rule in sorted({*old, *new}):
            changes += _changes(run, rule, old.get(rule, ()), new.get(rule, ()))
    return changes


def _changes(run: str, rule: str, old: Sequence[Firing], new: Sequence[Firing]) -> list[Change]:
    changes = []
    for number in range(max(len(old), len(new))):
        was = old[number] if number < len(old) else None
        now = new[number] if number < len(new) else None
        if was == now:
            continue
        kind: Kind
        if was is None or now is None:
            kind = "gained" if was is None else "lost"
        elif (now.segment, now.step) != (was.segment, was.step):
            kind = "earlier" if (now.segment, now.step) < (was.segment, was.step) else "later"
        else:
            kind = "severity"
        changes.append(Change(run, rule, kind, was, now))
    return changes


def counted(changes: Sequence[Change]) -> Mapping[Kind, int]:
    """How many changes of each kind there are, those that do not occur included."""
    kinds: tuple[Kind, ...] = ("gained", "lost", "earlier", "later", "severity")
    return {kind: sum(change.kind == kind for change in changes) for kind in kinds}
