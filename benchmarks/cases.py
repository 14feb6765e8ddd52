"""Judge the triage pack by the cases of public bug reports and by real logs: what is named, when, and what stays silent.

    python benchmarks/cases.py                          the cases in tests/data/cases
    RLTRIAGE_CASES=DIR python benchmarks/cases.py       also the logs in DIR/real-logs

A fault case is right when the expected or an accepted fault is among the first two suspects by the deadline and no
forbidden fault is first suspect before or then. A look-alike is right when nothing at warning or above fires.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rltriage.engine.feed import Feed
from rltriage.engine.monitor import Monitor
from rltriage.engine.report import Alert, Incident
from rltriage.engine.sources import open_source
from rltriage.engine.triage import Triage
from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.loader import load_rules

CASES = Path(__file__).parents[1] / "tests" / "data" / "cases"

READINGS: Mapping[str, tuple[str, ...]] = {
    "06": ("truncation_cap",),
    "07": ("truncation_cap",),
    "09": ("truncation_cap",),
    "12": ("kl_blowup", "lr_too_high"),
    "16": ("truncation_cap", "zero_advantage_groups"),
    "20": ("truncation_cap",),
    "22": ("zero_advantage_groups",),
    "27": ("truncation_cap",),
    "36": ("resume_state", "kl_blowup"),
    "38": ("resume_state",),
    "42": ("entropy_collapse",),
    "46": ("reward_hacking",),
    "48": ("reward_hacking",),
    "60": (),
}
"""Real logs that are bad by our reading, with the faults that fit it; () is a collapse that no metric explains."""

DISPUTED = ("50", "56", "58", "30", "26")
"""Logs too short, too flat or too mixed to call bad or healthy; whatever is said of them counts neither way."""


@dataclass(slots=True)
class Replay:
    """What the monitor said about one log. Rows count from 0."""

    rows: int = 0
    alerts: list[tuple[int, Alert]] = field(default_factory=list)
    incidents: list[tuple[int, Incident]] = field(default_factory=list)

    def loud(self) -> list[tuple[int, Alert]]:
        """Firing at warning or above."""
        return [(row, a) for row, a in self.alerts if a.state == "firing" and a.severity != "info"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One line of the table."""

    name: str
    expected: str
    found: str
    right: bool
    rows: int
    false_alarms: int = 0
    critical: int = 0


class Bench:
    """The shipped pack and catalogue, loaded once."""

    def __init__(self) -> None:
        self.catalogue = load_catalogue()
        self.pack = load_rules("triage", catalogue=self.catalogue)

    def replay(
        self, path: Path, config: Mapping[str, Any] | None = None, rename: Mapping[str, str] | None = None
    ) -> Replay:
        """Feed a log through profile, monitor and triage, exactly as `rltriage replay` does."""
        feed = Feed(open_source(str(path)), path.stem, config=config)
        monitors: dict[str, Monitor] = {}
        found = Replay()
        for intake, row in feed.rows():
            monitor = monitors.get(intake.run.id)
            if monitor is None:
                triage = Triage(self.catalogue, self.pack)
                monitor = monitors[intake.run.id] = Monitor(intake.run, self.pack, self.catalogue, triage=triage)
            report = monitor.observe(row)
            found.alerts += [(found.rows, alert) for alert in report.alerts]
            if report.incident is not None:
                found.incidents.append((found.rows, report.incident))
            found.rows += 1
        return found


def judge_cases(folder: Path, bench: Bench | None = None) -> list[Judgement]:
    """Every case of a folder of `<id>.jsonl` with `<id>.yaml` beside it."""
    bench = bench or Bench()
    return [judge_case(path, bench) for path in sorted(folder.glob("*.yaml"))]


def judge_case(path: Path, bench: Bench) -> Judgement:
    """One bug report or look-alike."""
    case = yaml.safe_load(path.read_text())
    found = bench.replay(path.with_suffix(".jsonl"), case["config"])
    expected = case["expected"]
    if expected["fault"] is None:
        return _silent(case["id"], "silent", found)
    accepted = {expected["fault"], *expected.get("accept", ())}
    forbidden = set(case.get("must_not_fire", ()))
    verdict, right = "nothing named", False
    for _, incident in found.incidents:
        if incident.step > expected["must_fire_by_step"]:
            break
        named = [suspect.fault for suspect in incident.suspects[:2]]
        verdict = f"{', '.join(named) or 'no suspect'} at {incident.step}"
        if named and named[0] in forbidden:
            right = False
            break
        right = right or bool(accepted & set(named))
        if right:
            break
    return Judgement(case["id"], f"{expected['fault']} by {expected['must_fire_by_step']}", verdict, right, found.rows)


def judge_logs(folder: Path, bench: Bench | None = None) -> list[Judgement]:
    """Every real log of a folder, against our reading of it."""
    bench = bench or Bench()
    logs = sorted(path for path in folder.iterdir() if path.suffix in {".json", ".jsonl", ".csv", ".log"})
    return [judge_log(path, bench) for path in logs]


def judge_log(path: Path, bench: Bench) -> Judgement:
    """A bad log is right when its first suspect at some time fits the reading, a healthy one when nothing fires."""
    found = bench.replay(path)
    number = path.name[:2]
    if number in DISPUTED:
        return Judgement(path.stem, "disputed", _told(found), True, 0)
    if number not in READINGS:
        return _silent(path.stem, "silent", found)
    fitting = READINGS[number]
    for row, incident in found.incidents:
        first = incident.suspects[0].fault if incident.suspects else None
        if (first in fitting) if fitting else first is None:
            return Judgement(
                path.stem, " or ".join(fitting) or "no suspect", f"{first or 'no suspect'} at row {row}", True, 0
            )
    return Judgement(path.stem, " or ".join(fitting) or "no suspect", _told(found), False, 0)


def _silent(name: str, expected: str, found: Replay) -> Judgement:
    loud = found.loud()
    critical = sum(alert.severity == "critical" for _, alert in loud)
    return Judgement(name, expected, _told(found), not loud, found.rows, len(loud), critical)


def _told(found: Replay) -> str:
    """The first alerts at warning or above, or the first incidents."""
    loud = [f"{alert.rule} ({alert.severity}) row {row}" for row, alert in found.loud()]
    return "; ".join(loud[:3]) + (f" and {len(loud) - 3} more" if len(loud) > 3 else "") if loud else "silent"


def table(title: str, judgements: Sequence[Judgement]) -> Iterator[str]:
    """The lines of a table with its title and heads, wrong ones marked, and the totals."""
    yield title
    yield f"    {'log':<38} {'expected':<38} found"
    for entry in judgements:
        yield f"{'    ' if entry.right else 'BAD '}{entry.name[:38]:<38} {entry.expected[:38]:<38} {entry.found}"
    rows = sum(entry.rows for entry in judgements if entry.expected == "silent")
    loud = sum(entry.false_alarms for entry in judgements)
    critical = sum(entry.critical for entry in judgements)
    faults = [entry for entry in judgements if entry.expected not in ("silent", "disputed")]
    silent = [entry for entry in judgements if entry.expected == "silent"]
    yield (
        f"right: {sum(e.right for e in faults)}/{len(faults)} faults, {sum(e.right for e in silent)}/{len(silent)} silent; "
        f"false alarms {loud} ({critical} critical) on {rows} rows: {1000 * loud / max(rows, 1):.2f} per 1,000"
    )


def main() -> int:
    """Print the tables; 1 if a case is wrong."""
    bench = Bench()
    cases = judge_cases(CASES, bench)
    print("\n".join(table("Public bug reports and look-alikes (tests/data/cases)", cases)))
    shared = os.environ.get("RLTRIAGE_CASES")
    if shared:
        logs = Path(shared) / "real-logs"
        print("\n".join(("", *table(f"Real logs ({logs})", judge_logs(logs, bench)))))
    return 0 if all(entry.right for entry in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
