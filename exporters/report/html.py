"""Reports as HTML. Jinja2 escapes everything; only our own SVG, which escapes for itself, is markup."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rltriage.engine.rows import writable
from rltriage.exporters.report import words
from rltriage.exporters.report.model import RunReport
from rltriage.exporters.report.svg import chart_svg, spark_svg
from rltriage.exporters.report.triage_map import map_groups, map_svg

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
STYLE = TEMPLATES / "report.css"


@cache
def environment(*more: Path) -> Environment:
    """The templates of the report and those in `more` folders; an undefined name is an error, not an empty text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    found = Environment(
        loader=FileSystemLoader([TEMPLATES, *more]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["number"] = words.number
    found.filters["utc"] = utc
    found.filters["name"] = words.name
    found.globals.update(
        words=words,
        chart=lambda *given: Markup(chart_svg(*given)),
        spark=lambda *given: Markup(spark_svg(*given)),
        triage_map=lambda *given: Markup(map_svg(*given)),
        map_groups=map_groups,
    )
    return found


def report_html(reports: Sequence[RunReport], version: str = "") -> str:
    """One document about one or several runs that needs nothing else: style and pictures are in it, scripts are none."""
    from markupsafe import Markup

    style = Markup(STYLE.read_text(encoding="utf-8"))
    return writable(environment().get_template("report.html").render(reports=reports, style=style, version=version))


def utc(seconds: float | None) -> str:
    """Unix seconds as a date that reads the same everywhere; empty for None and for what no calendar has."""
    if seconds is None:
        return ""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return ""
