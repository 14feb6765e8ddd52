"""Reports as data (JSON) and as Markdown, for scripts, issues and chats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rltriage.exporters.jsonlines import FORMAT, alert_json, change_json, dumps, incident_json, note_json
from rltriage.exporters.report import words
from rltriage.exporters.report.model import Chart, Line, RunReport
from rltriage.exporters.text import many, seen_text

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~&!])")


def report_json(report: RunReport) -> dict[str, Any]:
    """One run's report as plain data; alerts and incident as `--json` has them, curves as [step, low, high, mean]."""
    title, how, command = words.test_lines(report)
    ran = words.already_run(command, report.checks)
    return {
        "type": "report",
        "format": FORMAT,
        "run": report.id,
        "state": report.state,
        "severity": report.severity,
        "headline": words.headline(report),
        "advice": words.advice(report),
        "reasons": [{"seen": seen, "rules": rules} for seen, rules in words.reasons(report)],
        "first_test": {"title": title, "how": how, "command": command, "already_run": ran} if title else None,
        "rows": report.rows,
        "first_step": report.first_step,
        "last_step": report.last_step,
        "last_time": report.last_time,
        "restarts": report.restarts,
        "bad_rows": report.bad_rows,
        "bad_examples": [example._asdict() for example in report.bad_examples],
        "profile": report.profile,
        "labels": dict(report.labels),
        "incident": incident_json(report.incident, report.catalogue) if report.incident is not None else None,
        "standing": [alert_json(alert, report.catalogue) for alert in report.standing],
        "timeline": [alert_json(alert, report.catalogue) for alert in report.timeline],
        "checks": [
            {"number": one.number, "check": one.id, "title": one.title, "passed": one.passed, "value": one.value}
            for one in report.checks
        ],
        "config": {
            name: {"value": fact.value, "provenance": fact.provenance, "source": fact.source}
            for name, fact in report.facts.items()
        },
        "missing": [{"metric": one.metric, "flags": one.flags, "faults": list(one.faults)} for one in report.missing],
        "notes": [note_json(note) for note in report.notes],
        "config_changed": [change_json(change) for change in report.changed],
        "hidden_faults": list(report.hidden),
        "no_band_because": report.why_no_band,
        "band_differs": report.band_differs,
        "unmapped": list(report.unmapped),
        "symptoms": [_chart_json(one) for one in report.symptoms],
        "pairs": [_chart_json(one) for one in report.pairs],
        "curves": {line.metric: _line_json(line) for line in report.metrics},
    }


def reports_json(reports: Iterable[RunReport]) -> str:
    """One object a line, strict JSON."""
    return "".join(dumps(report_json(report)) + "\n" for report in reports)


def reports_markdown(reports: Sequence[RunReport]) -> str:
    """The words and tables of the reports, without the pictures."""
    return "\n\n".join("\n".join(_markdown(report)) for report in reports) + "\n"


def _chart_json(chart: Chart) -> dict[str, Any]:
    return {
        "title": chart.title,
        "caption": chart.caption,
        "metrics": [line.metric for line in chart.lines],
        "flags": [
            {"step": mark.step, "text": mark.text, "severity": mark.severity, "rules": list(mark.rules)}
            for mark in chart.marks
        ],
    }


def _line_json(line: Line) -> dict[str, Any]:
    return {
        "rows_per_point": line.width,
        "points": [[bucket.step, bucket.low, bucket.high, bucket.mean] for bucket in line.buckets],
        "not_a_number_at": list(line.gaps),
        "band": [list(edge) for edge in line.band],
    }


def _markdown(report: RunReport) -> Iterable[str]:
    title, how, command = words.test_lines(report)
    yield f"# {_md(words.headline(report))}"
    yield ""
    worst = f"worst alert {report.severity}" if report.severity else "no alert stands"
    yield f"Run {_md(report.id)}: {report.state}, {many(report.rows, 'row')}, {worst}. {words.advice(report)}".rstrip()
    if unread := words.unread(report):
        yield f"\n{_md(unread)}"
    if words.rivals(report):
        yield f"\n{_md(words.rivals(report).strip())}"
    if reasons := words.reasons(report):
        yield ""
        yield from (f"- {_md(seen)} ({_md(rules)})" for seen, rules in reasons)
    for line in (*(f"The configuration {line}." for line in words.changes(report)), *words.notes(report)):
        yield f"\n{_md(line)}"
    if title:
        yield f"\n**{words.urge(report)}: {_md(title)}**\n"
        if command:
            yield f"    {command}\n"
        if ran := words.already_run(command, report.checks):
            yield f"{_md(ran[:1].upper() + ran[1:])}.\n"
        yield _md(how)
        if mend := words.remedy(report):
            yield f"\n**How to mend it:** {_md(mend)}"
    if report.standing:
        yield "\n## Alerts that stand\n"
        rows = [(a.severity, a.rule, str(a.since_step), seen_text(a), a.explained_by or "") for a in report.standing]
        yield from _table(("severity", "rule", "since step", "what is seen", "explained by"), rows)
    if report.checks:
        yield "\n## Invariants\n"
        results = {True: "passed", False: "FAILED", None: "not judged"}
        values = [
            (str(c.number), c.title, results[c.passed], "" if c.value is None else words.number(c.value))
            for c in report.checks
        ]
        yield from _table(("check", "what must hold", "result", "value"), values)
    if report.facts:
        yield "\n## Configuration that is known\n"
        yield from _table(
            ("fact", "value", "how we know"),
            [(name, words.fact(f.value), f.provenance) for name, f in report.facts.items()],
        )
    if report.missing:
        yield "\n## Not logged, and what it would reveal\n"
        yield from _table(
            ("metric", "what it flags", "faults that it would reveal"),
            [(one.metric, one.flags, ", ".join(one.faults)) for one in report.missing[:20]],
        )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(_md(cell) for cell in row)} |"


def _md(text: str) -> str:
    """Text that Markdown and HTML leave as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
