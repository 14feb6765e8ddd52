"""The sentences of a report: what is wrong with the run, what to do with it, what to run first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltriage.engine.report import Alert
from rltriage.exporters.jsonlines import test_command
from rltriage.exporters.report.model import Check, Outlook, RunReport, first_test
from rltriage.exporters.text import changes_text, note_text, percent

ACTIONS = {
    "continue": "The run may continue meanwhile.",
    "stop": "Stop the run: its steps are wasted or harmful.",
    "roll back": "Go back to the last good checkpoint.",
}


def headline(report: Outlook) -> str:
    """What is wrong, in one sentence."""
    incident = report.incident
    if incident is not None and incident.suspects:
        top = incident.suspects[0]
        number = f"fault {top.number}, " if top.number is not None else ""
        title = f": {top.title}" if top.title else ""
        if report.resolved:
            when = f"was suspected from step {incident.onset_step} to {_resolved_at(report)}"
            return f"Nothing is wrong now; {top.fault} ({number}{percent(top.score)}) {when}{title}."
        return f"{top.fault} ({number}{percent(top.score)}) since step {incident.onset_step}{title}."
    serious = [alert for alert in report.standing if alert.severity != "info"]
    if serious:
        first = serious[0]
        return f"{first.rule} since step {first.since_step}: {first.summary.rstrip('.')}; no suspect stands out."
    was = [alert for alert in report.timeline if alert.severity != "info" and alert.state == "firing"]
    rows = f"{report.rows} row{'' if report.rows == 1 else 's'}"
    if was:
        what = "one alert" if len(was) == 1 else f"{len(was)} alerts"
        return f"Nothing is wrong now: {what} in {rows} resolved."
    if report.standing:
        return f"{_note(report.standing[0])}; {_notes(len(report.standing))} in {rows}."
    return f"Nothing is wrong that these metrics can show, in {rows}."


def short(report: Outlook) -> str:
    """The title of a page about the run: what is suspected, in two or three words."""
    if report.fault:
        return report.fault
    note = next((alert for alert in report.standing if alert.suspects), None)
    return f"perhaps {note.suspects[0].fault}" if note is not None else "no fault suspected"


def _note(alert: Alert) -> str:
    """What an alert that is only a note points at, and why; never the words of a suspicion that stands."""
    summary = alert.summary.rstrip(".")
    if not alert.suspects:
        return f"{alert.rule}: {summary}"
    top = alert.suspects[0]
    number = f" (fault {top.number})" if top.number is not None else ""
    return f"Perhaps {top.fault}{number}: {summary}"


def _notes(count: int) -> str:
    return "a note and no alarm" if count == 1 else f"{count} notes and no alarm"


def _resolved_at(report: Outlook) -> int:
    return max((alert.step for alert in report.drawn), default=report.last_step or 0)


def advice(report: RunReport) -> str:
    """What to do with the run meanwhile; empty where there is no incident."""
    if report.incident is None or report.resolved:
        return ""
    return ACTIONS.get(report.incident.action, "")


def rivals(report: RunReport) -> str:
    """What else it could be, and what would decide."""
    if report.incident is None:
        return ""
    names = [f"{one.fault} ({percent(one.score)})" for one in report.incident.suspects[1:4] if one.score >= 0.01]
    told = report.incident.rivals_told_apart_by
    return ("Or it is " + ", ".join(names) + "." if names else "") + (f" Decided by: {told}." if told else "")


def changes(report: RunReport) -> list[str]:
    """How the configuration differs from what the run is compared with: `differs from ...: kl_coef 0.04 -> 0`."""
    return changes_text(report.changed)


def notes(report: RunReport) -> list[str]:
    """What alerts at `info` ask, and whom else they point to."""
    also = "Also " if report.incident is not None else ""
    told = [f"{also}{'asked' if note.question else 'noted'}: {note_text(note)}" for note in report.notes]
    return [line[0].upper() + line[1:] + "." * (not line.endswith(".")) for line in told]


def test_lines(report: RunReport) -> tuple[str, str, str]:
    """Title of the first test, how to do it, and the command (empty where there is none to run)."""
    test = first_test(report)
    if test is None:
        return "", "", ""
    return test.title, test.how, test_command(test.command, report.id) if test.command else ""


def urge(report: Outlook) -> str:
    """The words before the first test: as urgent as what stands."""
    serious = any(alert.severity != "info" for alert in report.standing)
    return "Run this first" if serious else "To be sure, run"


def already_run(command: str, checks: Sequence[Check]) -> str:
    """What this run has already logged of the invariants that a test's command runs; empty where it logged none of them."""
    if not command.startswith("rltriage check"):
        return ""
    only = {int(number) for number in re.findall(r"--only (\d+)", command)}
    logged = [check for check in checks if check.passed is not None and (not only or check.number in only)]
    failed = [str(check.number) for check in logged if not check.passed]
    if not logged:
        return ""
    if len(logged) == 1:
        return f"already run: {'FAIL' if failed else 'PASS'}"
    what = f"FAIL in check{'s' if len(failed) > 1 else ''} {', '.join(failed)}" if failed else "PASS"
    return f"already run: {what} ({len(logged)} checks)"


def number(value: float) -> str:
    """A number as people read it."""
    if value != value or value in (float("inf"), float("-inf")):
        return "not a number" if value != value else "infinite"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.2e}"
