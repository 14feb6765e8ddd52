"""How well the rules name faults: runs whose fault is known, through the same path as live runs, and the table of it.

Bars: DESIGN section 10. A run is judged by its incidents: the fault is *named first* when it is the first suspect of the
run's last incident, and *at once* when it was so in the very first one. False alarms are alerts at warning or above in
healthy runs, those that another alert explains included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from rltriage.engine.report import Alert, Incident, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.state import RunState
from rltriage.recorded import RecordedRun
from rltriage.rules.model import RulePack
from rltriage.trainer.faults import CHAPTER_FAULTS
from rltriage.watching import WatchedRun

CONSISTENCY = ("mask_shift", "stale_old_logp", "temperature_mismatch", "ref_is_policy")
"""The faults whose signature is a number that has one correct value (chapter, 18.3 and figure 18.1)."""

CHECKED = (*CONSISTENCY, "accum_norm", "sign_flip", "entropy_collapse")
"""The code faults: an invariant fails at step 0."""

NOT_VISIBLE = "accum_norm"
"""The one fault that no metric of a run shows; only invariant 6 does."""

NUMBERS = {fault.id: fault.number for fault in CHAPTER_FAULTS}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was said about one run. Rows count from 0; a row is None where nothing was said.

    `suspects` are the first three of the last incident, `first_suspect` is that of the first one; `named_row` is the row
    from which on the right fault was the first suspect to the end, `noisy_or` whom a plain noisy-or over the same open
    alerts would have named at the end.
    """

    run: str
    group: str
    fault: str | None
    alert_row: int | None
    first_suspect: str | None
    suspects: tuple[str, ...]
    named_row: int | None
    noisy_or: str | None
    loud: tuple[str, ...]

    @property
    def named_first(self) -> bool:
        """Whether the right fault is the first suspect at the end."""
        return bool(self.suspects) and self.suspects[0] == self.fault


@dataclass(slots=True)
class Listener:
    """A sink that writes down what was said, row by row."""

    row: int = -1
    incidents: list[tuple[int, Incident]] = field(default_factory=list)
    loud: list[tuple[int, Alert]] = field(default_factory=list)

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Remember this report's incident and its firing alerts."""
        self.row += row is not None
        if report.incident is not None:
            self.incidents.append((self.row, report.incident))
        self.loud += [(self.row, a) for a in report.alerts if a.state == "firing" and a.severity != "info"]

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """Nothing to close."""


def judge_run(recorded: RecordedRun, pack: RulePack, *, checks: bool, declared: bool = True) -> Verdict:
    """Replay one run and write down what was said: with the results of its invariants and its config facts, or without."""
    heard = Listener()
    watched = WatchedRun(recorded.run(declared=declared), pack, (heard,))
    alerts: tuple[Alert, ...] = ()
    for row in recorded.rows:
        watched.emit(row if checks else without_checks(row))
        alerts = watched.monitor.open_alerts or alerts
    fault, incidents = recorded.group.fault, heard.incidents
    return Verdict(
        recorded.name,
        recorded.group.name,
        fault,
        min((row for row, _ in heard.loud), default=None),
        _first(incidents[0][1]) if incidents else None,
        tuple(suspect.fault for suspect in incidents[-1][1].suspects[:3]) if incidents else (),
        _named_row(incidents, fault),
        noisy_or(alerts),
        tuple(f"{alert.rule} at row {row}" for row, alert in heard.loud),
    )


def without_checks(row: Row) -> Row:
    """A row as a trainer without invariants logs it."""
    return Row(row.step, {name: value for name, value in row.metrics.items() if not name.startswith("check_")}, row.time)


def _first(incident: Incident) -> str | None:
    return incident.suspects[0].fault if incident.suspects else None


def _named_row(incidents: Sequence[tuple[int, Incident]], fault: str | None) -> int | None:
    """The row of the first of the incidents that name the fault first, up to the last one."""
    found = None
    for row, incident in reversed(incidents):
        if _first(incident) != fault:
            break
        found = row
    return found


def noisy_or(alerts: Iterable[Alert]) -> str | None:
    """The fault that a plain noisy-or names: the largest `1 - product(1 - weight)` over all open alerts."""
    doubt: dict[str, float] = {}
    for alert in alerts:
        for suspect in alert.suspects:
            doubt[suspect.fault] = doubt.get(suspect.fault, 1.0) * (1 - suspect.score)
    return min(doubt, key=lambda fault: doubt[fault]) if doubt else None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: a group of runs. Medians are over the runs in which it happened, None where it never did."""

    group: str
    fault: str | None
    runs: int
    named_first: int
    at_once: int
    top_3: int
    noisy_or: int
    alert_row: float | None
    named_row: float | None
    latest_named_row: int | None
    alarmed: int


def line(verdicts: Sequence[Verdict]) -> Line:
    """The line of one group."""
    named = [v.named_row for v in verdicts if v.named_row is not None]
    alerts = [v.alert_row for v in verdicts if v.alert_row is not None]
    fault = verdicts[0].fault
    return Line(
        verdicts[0].group,
        fault,
        len(verdicts),
        sum(v.named_first for v in verdicts),
        sum(v.first_suspect == fault for v in verdicts) if fault else 0,
        sum(fault in v.suspects for v in verdicts),
        sum(v.noisy_or == fault for v in verdicts) if fault else 0,
        median(alerts) if alerts else None,
        median(named) if named else None,
        max(named, default=None),
        sum(bool(v.loud) for v in verdicts),
    )


@dataclass(frozen=True, slots=True)
class Table:
    """All lines of one mode, faults first, in the order of the runs; `verdicts` are what they were counted from."""

    checks: bool
    lines: tuple[Line, ...]
    verdicts: tuple[Verdict, ...]

    def of(self, group: str) -> Line | None:
        """The line of a group, None where it was not run."""
        return next((entry for entry in self.lines if entry.group == group), None)

    @property
    def healthy(self) -> tuple[int, int]:
        """(healthy runs in which an alert at warning or above fired, healthy runs)."""
        sound = [entry for entry in self.lines if entry.fault is None]
        return sum(entry.alarmed for entry in sound), sum(entry.runs for entry in sound)


def measure(
    runs: Sequence[RecordedRun],
    pack: RulePack,
    *,
    checks: bool,
    declared: bool = True,
    told: Callable[[Verdict], object] = lambda verdict: None,
) -> Table:
    """Judge every run and count."""
    groups: dict[str, list[Verdict]] = {}
    for recorded in runs:
        verdict = judge_run(recorded, pack, checks=checks, declared=declared)
        told(verdict)
        groups.setdefault(verdict.group, []).append(verdict)
    lines = tuple(line(verdicts) for verdicts in groups.values())
    return Table(checks, lines, tuple(verdict for verdicts in groups.values() for verdict in verdicts))


def shortfalls(on: Table, off: Table) -> list[str]:
    """What misses the bars of DESIGN section 10, a sentence each; `on` and `off` are with and without invariants."""
    found = []
    for entry in on.lines:
        if entry.fault and entry.named_first < entry.runs:
            found.append(f"with invariants {entry.fault} is named first in {entry.named_first} of {entry.runs} runs")
        if entry.fault in CHECKED and entry.latest_named_row != 0:
            found.append(f"with invariants {entry.fault} is named at row {entry.latest_named_row}, not 0")
    faults = [entry for entry in off.lines if entry.fault]
    missed = [entry for entry in faults if entry.named_first < entry.runs and entry.fault != NOT_VISIBLE]
    if missed:
        told = ", ".join(f"{entry.fault} in {entry.named_first} of {entry.runs} runs" for entry in missed)
        named = sum(entry.named_first == entry.runs for entry in faults)
        found.append(f"without invariants {named} of {len(faults)} faults are named first in every run: {told}")
    for entry in off.lines:
        if entry.fault in CONSISTENCY and (entry.latest_named_row is None or entry.latest_named_row > 3):
            found.append(f"without invariants {entry.fault} is named at row {entry.latest_named_row}, not by 3")
        if entry.fault == NOT_VISIBLE and entry.alarmed:
            found.append(f"without invariants {entry.fault} alarms in {entry.alarmed} runs with nothing to see")
    for table in (on, off):
        alarmed, runs = table.healthy
        if alarmed:
            words = "with" if table.checks else "without"
            found.append(f"{words} invariants {alarmed} of {runs} healthy runs raise an alert at warning or above")
    return found


def as_data(on: Table, off: Table, **about: Any) -> dict[str, Any]:
    """Both tables, every verdict and what misses the bars, as plain data."""

    def table(found: Table) -> Mapping[str, Any]:
        return {"lines": [asdict(each) for each in found.lines], "runs": [asdict(each) for each in found.verdicts]}

    return {
        "format": 1,
        **about,
        "with_invariants": table(on),
        "without_invariants": table(off),
        "shortfalls": shortfalls(on, off),
    }


COLUMNS = ("fault", "runs", "named first", "at once", "in top 3", "first alert", "named from row", "alarmed")


def cells(entry: Line, *, checks: bool) -> tuple[str, ...]:
    """A line as text, in the order of `COLUMNS`; rows are medians over the runs."""
    number = NUMBERS.get(entry.fault or "")
    name = f"{number} {entry.fault}" if number else entry.fault or entry.group
    if entry.fault is None:
        return (name, str(entry.runs), "-", "-", "-", _row(entry.alert_row), "-", str(entry.alarmed))
    if not checks and entry.fault == NOT_VISIBLE and not entry.alarmed:
        return (name, str(entry.runs), "not visible", "-", "-", "-", "-", "0")
    counts = (entry.named_first, entry.at_once, entry.top_3)
    rows = (_row(entry.alert_row), _row(entry.named_row))
    return (name, str(entry.runs), *map(str, counts), *rows, str(entry.alarmed))


def _row(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:g}"
