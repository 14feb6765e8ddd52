"""Curves as inline SVG: no library, no script, colours from the page's style sheet, meaning never by colour alone.

Lines differ by dash pattern, which stands with their name and newest value over their panel; alerts are numbered flags,
healthy bands have an outline. A picture is as wide as a column of the report, so that its letters can be read.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from rltriage.exporters.report.curves import Bucket
from rltriage.exporters.report.model import Chart, Line, Mark
from rltriage.exporters.report.words import number

WIDTH = 480
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 24, 24
PANEL = 128
DOTS = 48
"""Up to so many observations each is drawn as a dot, too."""
LARGEST = sys.float_info.max
LETTER, KEY, KEY_LINE = 8.6, 26, 17
"""Pixels that a letter may take (telephones show them larger), of the piece of line before a name, of a line of names."""


def tag(name: str, content: str = "", **attributes: object) -> str:
    """One element; `class_` is `class`, other underscores are hyphens. The content is markup, attribute values are text."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items() if value != ""
    )
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    """A text element."""
    return tag("text", escape(words), x=_f(x), y=_f(y), class_=class_, text_anchor=anchor if anchor != "start" else "")


class Scale(NamedTuple):
    """A straight map of values in [low, high] to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if isinstance(self.low, int):  # steps, which floats do not tell apart from 2**53 on
            share = (value - self.low) / (self.high - self.low)
        else:  # halved, so that the width of a range of extreme floats does not overflow
            share = (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return self.start + min(max(share, -0.5), 1.5) * (self.end - self.start)


def chart_svg(chart: Chart, ident: str) -> str:
    """A chart as one SVG element with title and description; `ident` is unique in the page."""
    panels = [chart.lines] if chart.shared else [(line,) for line in chart.lines]
    keys = [_keys(lines, 0 if chart.shared else place) for place, lines in enumerate(panels)]
    top = TOP if chart.marks else 2
    height = top + BOTTOM + sum(PANEL + len(rows) * KEY_LINE for rows in keys)
    steps = [bucket.step for line in chart.lines for bucket in line.buckets] + [
        g for line in chart.lines for g in line.gaps
    ]
    first, last = (min(steps), max(steps)) if steps else (0, 1)
    across = Scale(first, max(last, first + 1), LEFT, WIDTH - RIGHT)
    body = [tag("title", escape(chart.title), id=f"{ident}-t"), tag("desc", escape(describe(chart)), id=f"{ident}-d")]
    named: list[str] = []
    for place, (lines, rows) in enumerate(zip(panels, keys, strict=True)):
        named += _named(rows, top)
        top += len(rows) * KEY_LINE
        body += _panel(lines, across, top, 0 if chart.shared else place)
        top += PANEL
    body += _flags(chart.marks, across, height - BOTTOM) + named  # names over the flags' lines, with a border around each
    body += _step_axis(first, last, across, height - BOTTOM)
    return tag(
        "svg",
        "".join(body),
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        class_="chart",
        aria_labelledby=f"{ident}-t {ident}-d",
    )


def spark_svg(line: Line, width: int = 120, height: int = 24) -> str:
    """A small picture of a course, for lists; the numbers beside it say what it shows."""
    buckets = _thin(line.buckets, width // 2)
    if not buckets:
        return ""
    across = Scale(buckets[0].step, max(buckets[-1].step, buckets[0].step + 1), 2, width - 2)
    up = Scale(*_range([line]), height - 3, 3)
    points = " ".join(f"{_f(across(b.step))},{_f(up(b.mean))}" for b in buckets)
    drawn = tag("polyline", points=points, class_="line line-0")
    if len(buckets) == 1:
        drawn = tag("circle", cx=_f(across(buckets[0].step)), cy=_f(up(buckets[0].mean)), r=2, class_="dot dot-0")
    return tag("svg", drawn, viewBox=f"0 0 {width} {height}", class_="spark", aria_hidden="true", focusable="false")


def describe(chart: Chart) -> str:
    """What the picture shows, for those who cannot see it."""
    parts = []
    for line in chart.lines:
        if line.buckets:
            start, end = line.buckets[0], line.buckets[-1]
            low, high = min(b.low for b in line.buckets), max(b.high for b in line.buckets)
            parts.append(
                f"{line.metric} goes from {number(start.mean)} at step {start.step} to {number(end.mean)} at step "
                f"{end.step}, between {number(low)} and {number(high)}."
            )
        if line.gaps:
            parts.append(f"{line.metric} is no number at step {line.gaps[0]}" + (" and later." if line.gaps[1:] else "."))
    parts += [f"Flag {place} at step {mark.step}: {mark.text}." for place, mark in enumerate(chart.marks, start=1)]
    return " ".join(parts)


def _panel(lines: Sequence[Line], across: Scale, top: float, first_style: int) -> list[str]:
    low, high = _range(lines)
    up = Scale(low, high, top + PANEL - 10, top + 4)
    body = []
    for value in _ticks(low, high):
        y = up(value)
        body.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_f(y), y2=_f(y), class_="grid"))
        body.append(text(LEFT - 6, y + 4, number(value), "tick", "end"))
    own = len(lines) > 1
    for style, line in enumerate(lines, start=first_style):
        body += _band(line, across, up, f"band band-{style}" if own else "band")
    for style, line in enumerate(lines, start=first_style):
        body += _course(line, across, up, style)
    return body


def _band(line: Line, across: Scale, up: Scale, class_: str) -> list[str]:
    if not line.band:
        return []
    edge = [(across(step), up(high)) for step, _, high in line.band] + [
        (across(step), up(low)) for step, low, _ in reversed(line.band)
    ]
    return [tag("polygon", points=_points(edge), class_=class_)]


def _course(line: Line, across: Scale, up: Scale, style: int) -> list[str]:
    body = []
    buckets = line.buckets
    if line.width > 1:
        edge = [(across(b.step), up(b.high)) for b in buckets] + [(across(b.step), up(b.low)) for b in reversed(buckets)]
        body.append(tag("polygon", points=_points(edge), class_=f"span span-{style}"))
    course = [(across(b.step), up(b.mean)) for b in buckets]
    body.append(tag("polyline", points=_points(course), class_=f"line line-{style}"))
    if len(buckets) <= DOTS:
        body += [tag("circle", cx=_f(x), cy=_f(y), r=2.5, class_=f"dot dot-{style}") for x, y in course]
    for step in line.gaps:
        x, y = across(step), max(up.start, up.end) + 2
        body.append(tag("path", d=f"M{_f(x - 4)} {_f(y - 4)}l8 8m0 -8l-8 8", class_="gap"))
    return body


class _Key(NamedTuple):
    """What stands over a panel for one of its lines."""

    style: int
    words: str


def _keys(lines: Sequence[Line], first_style: int) -> list[list[_Key]]:
    """Rows of keys, as many in a row as there is room for."""
    rows: list[list[_Key]] = []
    taken = math.inf
    for style, line in enumerate(lines, start=first_style):
        name = line.metric if len(line.metric) <= 32 else line.metric[:30] + ".."
        key = _Key(style, f"{name} {number(line.buckets[-1].mean)}" if line.buckets else f"{name}: no number")
        width = KEY + len(key.words) * LETTER + LETTER
        if taken + width > WIDTH - LEFT - RIGHT:
            rows.append([])
            taken = 0
        rows[-1].append(key)
        taken += width
    return rows


def _named(rows: Sequence[Sequence[_Key]], top: float) -> list[str]:
    body = []
    for place, row in enumerate(rows):
        x, y = float(LEFT), top + place * KEY_LINE + 12
        for key in row:
            body.append(
                tag("line", x1=_f(x), x2=_f(x + KEY - 6), y1=_f(y - 4), y2=_f(y - 4), class_=f"line line-{key.style}")
            )
            body.append(text(x + KEY, y, key.words, "name"))
            x += KEY + len(key.words) * LETTER + LETTER
    return body


def _flags(marks: Sequence[Mark], across: Scale, bottom: float) -> list[str]:
    """Numbered flags on lines through all panels; the legend under the picture says what each is."""
    body, taken = [], -math.inf
    for place, mark in sorted(enumerate(marks, start=1), key=lambda item: item[1].step):
        x = across(mark.step)
        body.append(tag("line", x1=_f(x), x2=_f(x), y1=20, y2=_f(bottom), class_=f"flag flag-{mark.severity}"))
        at = taken = max(x, taken + 19)
        body.append(tag("circle", cx=_f(at), cy=11, r=9, class_=f"pin pin-{mark.severity}"))
        body.append(text(at, 15, str(place), "pin-text", "middle"))
    return body


def _step_axis(first: int, last: int, across: Scale, y: float) -> list[str]:
    body = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_f(y), y2=_f(y), class_="axis")]
    steps = sorted({int(step) for step in _ticks(first, last, 6) if first <= step <= last} or {first})
    body += [text(across(step), y + 17, str(step), "tick", "middle") for step in steps]
    return [*body, text(LEFT - 20, y + 17, "step", "tick", "end")]


def _range(lines: Iterable[Line]) -> tuple[float, float]:
    """What the values and bands span, with room at both ends; never empty."""
    lows = [b.low for line in lines for b in line.buckets] + [low for line in lines for _, low, _ in line.band]
    highs = [b.high for line in lines for b in line.buckets] + [high for line in lines for _, _, high in line.band]
    low, high = min(lows, default=0.0), max(highs, default=1.0)
    if high / 2 - low / 2 < 1e-300:  # equal, or too close for the arithmetic of pixels
        room = abs(low) / 2 if abs(low) > 1e-290 else 0.5
        return max(low - room, -LARGEST), min(high + room, LARGEST)
    room = high / 25 - low / 25
    return max(low - room, -LARGEST), min(high + room, LARGEST)


def _ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Round values within [low, high]: at most about `most`, 1, 2 or 5 times a power of ten apart."""
    width = high - low
    if not math.isfinite(width) or width <= 0:
        return [low]
    rough = width / most
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 1e-300 else 0.0
    step = next((power * factor for factor in (1, 2, 5, 10) if power * factor >= rough), 0.0)
    if step <= 0 or not math.isfinite(low / step):
        return [low, high]
    start = math.ceil(low / step)
    found = [round((start + index) * step, 12 - math.floor(math.log10(step))) for index in range(most + 2)]
    return [value + 0.0 for value in found if value <= high]


def _thin(buckets: Sequence[Bucket], most: int) -> Sequence[Bucket]:
    """Every n-th bucket, the last always."""
    stride = max(1, math.ceil(len(buckets) / most))
    return [*buckets[:-1:stride], buckets[-1]] if buckets else buckets


def _points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_f(x)},{_f(y)}" for x, y in pairs)


def _f(value: float) -> str:
    """A pixel with one decimal, as short as it can be."""
    return f"{value:.1f}".removesuffix(".0")
