"""The sentences of a report: what is wrong with the run, what to do with it, what to run first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import category

from rltriage.engine.report import Alert
from rltriage.exporters.jsonlines import test_command
from rltriage.exporters.report.model import Check, Outlook, RunReport, first_test, is_evidence
from rltriage.exporters.text import changes_text, many, note_text, percent, seen_text
from rltriage.exporters.text import unread as unread_lines

ACTIONS = {
    "continue": "The run may continue meanwhile.",
    "stop": "Stop the run: its steps are wasted or harmful.",
    "roll back": "Stop the run and go back to a checkpoint from before step {onset}.",
}
FROM_THE_START = "Stop the run and start it anew: it was wrong from its first row, so that no checkpoint of it is good."
MAX_REASONS = 4


def headline(report: Outlook) -> str:
    """What is wrong, in one sentence."""
    incident = report.incident
    if incident is not None and incident.suspects:
        top = incident.suspects[0]
        number = f"fault {top.number}, " if top.number is not None else ""
        named = f"{top.fault} ({number}{percent(top.score)} likely)"
        title = f": {top.title}" if top.title else ""
        if report.resolved:
            when = f"was suspected from step {incident.onset_step} to {_resolved_at(report)}"
            return f"Nothing is wrong now; {named} {when}{title}."
        return f"{named} since step {incident.onset_step}{title}."
    serious = [alert for alert in report.standing if alert.severity != "info"]
    if serious:
        first = serious[0]
        return f"{first.rule} since step {first.since_step}: {seen_text(first)}; no suspect stands out."
    was = [alert for alert in report.timeline if alert.severity != "info" and alert.state == "firing"]
    rows = many(report.rows, "row")
    if was:
        return f"Nothing is wrong now: {many(len(was), 'alert')} in {rows} resolved."
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
    summary = seen_text(alert)
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
    onset = report.incident.onset_step
    if report.incident.action == "roll back" and onset <= (report.first_step or 0):
        return FROM_THE_START
    return ACTIONS.get(report.incident.action, "").format(onset=onset)


def reasons(report: Outlook) -> list[tuple[str, str]]:
    """Why the first suspect is suspected: what is seen with its numbers, and the rules that see it, the strongest first.

    What hangs on a config fact that nobody told is no reason yet: `notes` asks for the fact.
    """
    found: dict[str, list[Alert]] = {}
    for alert in report.drawn if report.fault else ():
        if alert.explained_by is None and is_evidence(alert, report.fault):
            found.setdefault(seen_text(alert), []).append(alert)
    shown = list(found.items())[:MAX_REASONS]
    return [
        (_capital(seen), f"{', '.join(one.rule for one in alerts)}, step {alerts[0].since_step}") for seen, alerts in shown
    ]


def _capital(sentence: str) -> str:
    """A clause as a sentence; a metric's name at its start stays as it is."""
    return sentence if "_" in sentence.partition(" ")[0] else sentence[:1].upper() + sentence[1:]


def rivals(report: RunReport) -> str:
    """What else it could be, and what would decide."""
    if report.incident is None:
        return ""
    names = [f"{one.fault} ({percent(one.score)})" for one in report.incident.suspects[1:4] if one.score >= 0.01]
    told = report.incident.rivals_told_apart_by
    return ("Or it is " + ", ".join(names) + "." if names else "") + (f" Decided by: {told}." if told else "")


def unread(report: RunReport) -> str:
    """How much of the log was not understood, and why; empty where all of it was."""
    told = unread_lines(report.bad_rows, report.bad_examples)
    return told and f"{told.rstrip('.')}."


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


def urge(report: RunReport) -> str:
    """The words before the first test: as urgent as what stands; a test that has failed needs nobody to run it."""
    test = first_test(report)
    if test is not None and _failed(_logged(test.command, report.checks)):
        return "The first test has been run and failed"
    serious = any(alert.severity != "info" for alert in report.standing)
    return "Run this first" if serious else "To be sure, run"


def remedy(report: RunReport) -> str:
    """How to mend the first suspect, where its first test has failed already: then that is what is next to do."""
    fault, test = report.catalogue.faults.get(report.fault), first_test(report)
    if fault is None or test is None or report.resolved or not _failed(_logged(test.command, report.checks)):
        return ""
    return fault.fix


def already_run(command: str, checks: Sequence[Check]) -> str:
    """What this run has already logged of the invariants that a test's command runs; empty where it logged none of them."""
    logged = _logged(command, checks)
    failed = _failed(logged)
    if not logged:
        return ""
    numbers = ", ".join(str(check.number) for check in failed or logged)
    what = f"check{'s' if len(failed or logged) > 1 else ''} {numbers} {'failed' if failed else 'passed'}"
    return f"already run: {what}" + (
        f", {len(logged) - len(failed)} passed" if failed and len(logged) > len(failed) else ""
    )


def _logged(command: str, checks: Sequence[Check]) -> list[Check]:
    if not command.startswith("rltriage check"):
        return []
    only = {int(number) for number in re.findall(r"--only (\d+)", command)}
    return [check for check in checks if check.passed is not None and (not only or check.number in only)]


def _failed(logged: Sequence[Check]) -> list[Check]:
    return [check for check in logged if not check.passed]


def name(run: str) -> str:
    """A run's id as it is shown: characters that steer a terminal or turn the direction of writing are made visible."""
    return "".join("\ufffd" if category(letter) in ("Cc", "Cf") else letter for letter in run)


def fact(value: object) -> str:
    """A config fact's value as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """A number as people read it."""
    if value != value or value in (float("inf"), float("-inf")):
        return "not a number" if value != value else "infinite"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.2e}"
