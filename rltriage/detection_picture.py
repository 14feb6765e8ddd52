"""The bench as a picture: for every run the row from which on its fault was the first suspect. Plain SVG, no library."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from rltriage.detection import NOT_VISIBLE, NUMBERS, Table, Verdict
from rltriage.recorded import STEPS

LEFT, TOP, LANE, STEP, GAP = 250, 64, 26, 13, 90
PANEL = STEP * (STEPS - 1)
WIDTH = LEFT + 2 * PANEL + GAP + 90
GOOD, BAD, QUIET = "#1b7f5c", "#c0392b", "#8a8f98"


def draw(on: Table, off: Table) -> str:
    """Both tables side by side; one lane per fault, one dot per run, one number per healthy group."""
    lanes = [entry.group for entry in on.lines]
    height = TOP + LANE * len(lanes) + 76
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_labels(on, lanes),
        *_panel(on, lanes, LEFT, "with invariants"),
        *_panel(off, lanes, LEFT + PANEL + GAP, "without invariants"),
        *_legend(height),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _labels(table: Table, lanes: list[str]) -> Iterator[str]:
    for index, group in enumerate(lanes):
        entry = table.of(group)
        number = NUMBERS.get(group)
        name = f"{number}  {group}" if number else f"{group} ({entry.runs if entry else 0} runs)"
        yield _text(LEFT - 18, _y(index) + 4, name, "end", "#20242b")


def _panel(table: Table, lanes: list[str], x: int, title: str) -> Iterator[str]:
    bottom = _y(len(lanes) - 1) + LANE / 2
    yield _text(x, TOP - 34, title, "start", "#20242b", weight="600")
    for row in range(0, STEPS, 4):
        yield f'<line x1="{x + row * STEP}" y1="{TOP - 10}" x2="{x + row * STEP}" y2="{bottom}" stroke="#e3e6ea"/>'
        yield _text(x + row * STEP, TOP - 15, str(row), "middle", QUIET)
    for index, group in enumerate(lanes):
        verdicts = [verdict for verdict in table.verdicts if verdict.group == group]
        yield f'<line x1="{x}" y1="{_y(index)}" x2="{x + PANEL}" y2="{_y(index)}" stroke="#cfd4da"/>'
        if verdicts and verdicts[0].fault is None:
            yield from _healthy(verdicts, x, index)
        else:
            yield from _dots(verdicts, x, index)


def _dots(verdicts: list[Verdict], x: int, index: int) -> Iterator[str]:
    """A filled dot where the right fault was named, an open red one where another was; runs of one row fan out."""
    taken: dict[int, int] = {}
    for verdict in verdicts:
        row = verdict.named_row if verdict.named_first else verdict.alert_row
        if row is None:
            continue
        slot = taken[row] = taken.get(row, -1) + 1
        offset = (0, -5, 5, -9, 9)[slot % 5]
        fill, stroke = (GOOD, GOOD) if verdict.named_first else ("#ffffff", BAD)
        yield (
            f'<circle cx="{x + row * STEP}" cy="{_y(index) + offset}" r="3.6" fill="{fill}" stroke="{stroke}" '
            f'stroke-width="1.4"><title>{escape(verdict.run)}: {escape(verdict.suspects[0] if verdict.suspects else "-")}'
            "</title></circle>"
        )
    silent = sum(verdict.alert_row is None for verdict in verdicts)
    if silent:
        words = "not visible" if verdicts[0].fault == NOT_VISIBLE else f"{silent} silent"
        yield _text(x + PANEL + 6, _y(index) + 4, words, "start", QUIET)


def _healthy(verdicts: list[Verdict], x: int, index: int) -> Iterator[str]:
    alarmed = sum(bool(verdict.loud) for verdict in verdicts)
    for verdict in verdicts:
        if verdict.alert_row is not None:
            yield f'<circle cx="{x + verdict.alert_row * STEP}" cy="{_y(index)}" r="3.6" fill="none" stroke="{BAD}"/>'
    yield _text(x + PANEL + 6, _y(index) + 4, f"{alarmed} alarmed", "start", BAD if alarmed else GOOD)


def _legend(height: int) -> Iterator[str]:
    entries = (
        (GOOD, "row from which on the right fault is the first suspect, a dot a run"),
        ("#ffffff", "first alert of a run in which another fault is the first suspect at the end"),
    )
    for index, (fill, words) in enumerate(entries):
        y = height - 40 + 20 * index
        stroke = BAD if index else GOOD
        yield f'<circle cx="{LEFT}" cy="{y}" r="3.6" fill="{fill}" stroke="{stroke}" stroke-width="1.4"/>'
        yield _text(LEFT + 10, y + 4, words, "start", "#20242b")


def _y(index: int) -> float:
    return TOP + LANE * (index + 0.5)


def _text(x: float, y: float, text: str, anchor: str, fill: str, weight: str = "400") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">{escape(text)}</text>'
