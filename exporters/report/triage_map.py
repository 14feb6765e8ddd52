"""The triage map around a run's alerts: symptom, first test, fault, and the path that is lit.

Wide as inline SVG, narrow (a telephone) as lists of the same boxes from top to bottom, the lit path first. Lit boxes and
arrows are thick and marked by words, so that the path is seen without colours. What the first suspect would show as well
but does not is drawn, too: rules that see nothing, and rules whose metrics are not logged.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from rltriage.engine.coverage import needs
from rltriage.engine.report import Alert
from rltriage.exporters.report.model import RunReport, is_evidence
from rltriage.exporters.report.svg import tag, text
from rltriage.exporters.report.words import already_run
from rltriage.exporters.text import percent, seen_text

WIDTH = 960
COLUMNS = ((0, 300), (360, 250), (670, 290))
MAX_ALERTS, MAX_QUIET, MAX_FAULTS = 7, 4, 5
WORTH_DRAWING = 0.01
LINE, PAD, GAP, HEAD = 16, 8, 12, 28
LETTER, TITLE_LETTER = 6.4, 7.2
"""Generous widths of a letter at 12 pixels, plain and bold: fonts differ, boxes do not."""


@dataclass(slots=True)
class Box:
    """One node with its sentences: `kind` is lit, dim, explained or quiet; `top` is set when the column is laid out."""

    title: str
    words: list[str]
    kind: str
    column: int
    top: float = 0.0
    to: list[Box] = field(default_factory=list)
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        """Set `lines`: the sentences, each in three lines at most, as wide as the column's boxes."""
        width = int((COLUMNS[self.column][1] - 20) / LETTER)
        found = (textwrap.wrap(one, width, max_lines=3, placeholder=" ...", break_on_hyphens=False) for one in self.words)
        self.lines = [line for lines in found for line in lines]

    @property
    def height(self) -> float:
        return PAD * 2 + LINE * (1 + len(self.lines))

    @property
    def middle(self) -> float:
        return self.top + self.height / 2


class Group(NamedTuple):
    """Boxes under one heading of the narrow map; `then`: the next group follows from this one."""

    heading: str
    boxes: list[Box]
    then: bool = False


def map_groups(report: RunReport) -> list[Group]:
    """The narrow map: the lit path (or all that there is) from symptom to fault, then the rest."""
    columns = _columns(report)
    if not columns:
        return []
    on = [[box for box in column if box.kind == "lit"] for column in columns]
    if not on[0]:
        on = [[box for box in column if box.kind == "dim"] for column in columns]
    names = (("Symptom", "Symptoms"), ("First test", "First tests"), ("Fault", "Faults"))
    path = [Group(pair[len(boxes) > 1], boxes) for pair, boxes in zip(names, on, strict=True) if boxes]
    groups = [group._replace(then=place < len(path) - 1) for place, group in enumerate(path)]
    rest = [[box for box in column if box not in boxes] for column, boxes in zip(columns, on, strict=True)]
    groups.append(Group("Other symptoms", [box for box in rest[0] if box.kind != "quiet"]))
    groups.append(Group("Other tests", rest[1]))
    groups.append(Group("Other suspects", rest[2]))
    groups.append(Group("What this fault can show as well", [box for box in rest[0] if box.kind == "quiet"]))
    return [group for group in groups if group.boxes]


def _columns(report: RunReport) -> tuple[list[Box], list[Box], list[Box]] | None:
    """Symptoms, tests and faults of what stands; None where nothing does."""
    alerts = report.drawn[:MAX_ALERTS]
    if not alerts:
        return None
    faults = _faults(report, alerts)
    tests = _tests(report, alerts, faults)
    symptoms = [*(_symptom(alert, report, tests) for alert in alerts), *_quiet(report, tests)]
    return symptoms, list(tests.values()), list(faults.values())


def map_svg(report: RunReport, ident: str) -> str:
    """The map of what stands; the empty text where nothing does."""
    columns = _columns(report)
    if columns is None:
        return ""
    height = max(_stack(column) for column in columns)
    for column in columns[1:]:
        _centre(column, height)
    parts = [
        tag("title", "The triage map of this run", id=f"{ident}-t"),
        tag("desc", escape(describe(report)), id=f"{ident}-d"),
        tag("defs", _arrow(f"{ident}-lit", "lit") + _arrow(f"{ident}-dim", "dim")),
        *(text(x, 16, name, "column") for (x, _), name in zip(COLUMNS, ("symptom", "first test", "fault"), strict=True)),
    ]
    boxes = [box for column in columns for box in column]
    edges = sorted(((box, other) for box in boxes for other in box.to), key=lambda pair: _is_lit(*pair))
    parts += [_edge(one, other, ident) for one, other in edges]
    parts += [_draw(box) for box in boxes]
    size = f"0 0 {WIDTH} {height:.0f}"
    return tag("svg", "".join(parts), viewBox=size, role="img", class_="map", aria_labelledby=f"{ident}-t {ident}-d")


def describe(report: RunReport) -> str:
    """The lit path in words."""
    lit = [alert.rule for alert in report.drawn if is_evidence(alert, report.fault) and alert.explained_by is None]
    if not lit or report.incident is None:
        return "No fault is lit. Symptoms: " + ", ".join(alert.rule for alert in report.drawn) + "."
    return f"Lit: {', '.join(lit)} lead by the test {report.incident.first_test} to {report.fault}."


def _faults(report: RunReport, alerts: Sequence[Alert]) -> dict[str, Box]:
    """The suspects: the incident's as they are ranked, else those of the alerts."""
    boxes: dict[str, Box] = {}
    ranked = report.incident.suspects if report.incident is not None else ()
    ranked = tuple(suspect for place, suspect in enumerate(ranked) if place == 0 or suspect.score >= WORTH_DRAWING)
    for suspect in (*ranked, *(one for alert in alerts if not ranked for one in alert.suspects[:2])):
        if suspect.fault not in boxes and len(boxes) < MAX_FAULTS:
            number = f"fault {suspect.number}, " if suspect.number is not None else ""
            lit = suspect.fault == report.fault
            likely = f"{percent(suspect.score)} {'likely' if ranked else 'by this rule'}"
            words = [suspect.title, f"{number}{likely}" + (": first suspect" if lit else "")]
            boxes[suspect.fault] = Box(suspect.fault, words, "lit" if lit else "dim", 2)
    return boxes


def _tests(report: RunReport, alerts: Sequence[Alert], faults: dict[str, Box]) -> dict[str, Box]:
    """The first tests of the alerts and of the incident, each with arrows to the faults that it decides."""
    chosen = report.incident.first_test if report.incident is not None else ""
    names = [chosen] if chosen else []
    names += [alert.first_test for alert in alerts if alert.first_test and alert.explained_by is None]
    boxes: dict[str, Box] = {}
    for name in dict.fromkeys(names):
        entry = report.catalogue.first_tests.get(name)
        askers = [alert for alert in alerts if alert.first_test == name]
        lit = name == chosen or any(is_evidence(alert, report.fault) for alert in askers)
        ran = already_run(entry.command, report.checks) if entry is not None else ""
        words = [entry.title if entry is not None else name, ran or ("run this first" if name == chosen else "")]
        box = boxes[name] = Box(name, words, "lit" if lit and report.fault else "dim", 1)
        decided = set(entry.decides.values()) if entry is not None else set()
        decided |= {suspect.fault for alert in askers for suspect in alert.suspects}
        decided |= {report.fault} if name == chosen else set()
        box.to = [fault for key, fault in faults.items() if key in decided]
    return boxes


def _symptom(alert: Alert, report: RunReport, tests: dict[str, Box]) -> Box:
    if alert.explained_by is not None:
        return Box(alert.rule, [f"explained by {alert.explained_by}"], "explained", 0)
    lit = is_evidence(alert, report.fault)
    end = f"resolved at step {alert.step}" if alert.state == "resolved" else f"since step {alert.since_step}"
    box = Box(alert.rule, [seen_text(alert), f"{alert.severity}, {end}"], "lit" if lit else "dim", 0)
    box.to = [tests[alert.first_test]] if alert.first_test in tests else []
    if lit and report.incident is not None and alert is _strongest(report):
        own = tests.get(report.incident.first_test)
        box.to += [own] if own is not None and own not in box.to else []
    return box


def _quiet(report: RunReport, tests: dict[str, Box]) -> Iterable[Box]:
    """What the first suspect would show as well, and does not."""
    fired = {alert.rule for alert in report.drawn}
    close = [
        rule for rule in report.rules.values() if next(iter(rule.suspects), "") == report.fault and rule.id not in fired
    ]
    for rule in close[:MAX_QUIET] if report.fault else ():
        missing = needs(rule.when, report.seen).missing
        why = f"cannot be seen: {sorted(missing)[0]} is not logged" if missing else "not seen"
        box = Box(rule.id, [why], "quiet", 0)
        box.to = [tests[rule.first_test]] if rule.first_test in tests else []
        yield box


def _strongest(report: RunReport) -> Alert | None:
    return next((a for a in report.drawn if a.explained_by is None and is_evidence(a, report.fault)), None)


def _stack(column: Sequence[Box]) -> float:
    """Lay a column out from the top; the height that it takes."""
    top = float(HEAD)
    for box in column:
        box.top = top
        top += box.height + GAP
    return top - GAP + 4


def _centre(column: Sequence[Box], height: float) -> None:
    """Spread a column over the height of the tallest one."""
    if column:
        room = (height - 4 - (column[-1].top + column[-1].height)) / len(column)
        for place, box in enumerate(column):
            box.top += room * (place + 0.5)


def _is_lit(one: Box, other: Box) -> bool:
    return one.kind == "lit" and other.kind == "lit"


def _edge(one: Box, other: Box, ident: str) -> str:
    start = COLUMNS[one.column][0] + COLUMNS[one.column][1]
    end = COLUMNS[other.column][0] - 3
    bend = (start + end) / 2
    path = f"M{start} {one.middle:.0f}C{bend:.0f} {one.middle:.0f} {bend:.0f} {other.middle:.0f} {end} {other.middle:.0f}"
    kind = "lit" if _is_lit(one, other) else "dim"
    return tag("path", d=path, class_=f"edge edge-{kind}", marker_end=f"url(#{ident}-{kind})")


def _draw(box: Box) -> str:
    x, width = COLUMNS[box.column]
    room = int((width - 20) / TITLE_LETTER)
    parts = [
        tag(
            "rect",
            x=x + 1,
            y=f"{box.top:.0f}",
            width=width - 2,
            height=f"{box.height:.0f}",
            rx=6,
            class_=f"box box-{box.kind}",
        ),
        text(
            x + 10, box.top + PAD + 12, box.title if len(box.title) <= room else box.title[: room - 2] + "..", "box-title"
        ),
    ]
    parts += [
        text(x + 10, box.top + PAD + 12 + LINE * row, line, "box-text") for row, line in enumerate(box.lines, start=1)
    ]
    return tag("g", "".join(parts))


def _arrow(ident: str, kind: str) -> str:
    head = tag("path", d="M0 0L8 4L0 8z", class_=f"head-{kind}")
    return tag(
        "marker",
        head,
        id=ident,
        viewBox="0 0 8 8",
        refX=7,
        refY=4,
        markerWidth=8,
        markerHeight=8,
        orient="auto",
        markerUnits="userSpaceOnUse",
    )
