"""Panels and dashboards as Grafana's JSON (schema 41, Grafana 12), placed on its grid of 24 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION = 41
PAGE_DEFAULT = "http://127.0.0.1:8321"
DOCS_DEFAULT = "https://docs.example/rltriage"
SEVERITY_COLORS = {"critical": "red", "warning": "orange", "info": "blue"}
FLEET_UID, RUN_UID = "rltriage-fleet", "rltriage-run"

Json = dict[str, Any]
Steps = tuple[tuple[float | None, str], ...]
"""Thresholds: from a value on, a colour; the first has no value."""
FINE: Steps = ((None, "green"),)
ONE_IS_GOOD: Steps = ((None, "red"), (1, "green"))


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query; `table` asks for the newest values as rows, `instant` for the newest values alone."""

    expression: str
    legend: str = ""
    instant: bool = False
    table: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `kind` is Grafana's panel type; `custom` and `options` are that type's own settings."""

    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 8
    height: int = 8
    thresholds: Steps = FINE
    low: float | None = None
    high: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    custom: Mapping[str, Any] = field(default_factory=dict)
    mappings: tuple[Json, ...] = ()
    overrides: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()
    links: tuple[Json, ...] = ()
    colors: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and the panels below it; a collapsed one asks nothing until somebody opens it."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


def placed(rows: Iterable[Row]) -> list[Json]:
    """The panels of a dashboard: from left to right, a new line where the next one does not fit, ids in that order."""
    found: list[Json] = []
    y = number = 0
    for row in rows:
        number += 1
        head: Json = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.collapsed,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
            "panels": [],
        }
        found.append(head)
        y += 1
        inside = []
        x = height = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            number += 1
            inside.append(_panel(panel, number, {"h": panel.height, "w": panel.width, "x": x, "y": y}))
            x, height = x + panel.width, max(height, panel.height)
        y += height
        (head["panels"] if row.collapsed else found).extend(inside)
    return found


def filled(panels: Iterable[Panel]) -> tuple[Panel, ...]:
    """Panels with widths that fill their lines: three a line, the last four or two wider or narrower than that."""
    found = list(panels)
    last = {0: 0, 1: min(4, len(found)), 2: 2}[len(found) % 3]
    widths = [8] * (len(found) - last) + [COLUMNS // max(last, 1)] * last
    return tuple(replace(panel, width=width) for panel, width in zip(found, widths, strict=True))


def _panel(panel: Panel, number: int, place: Json) -> Json:
    defaults: Json = {
        "unit": panel.unit,
        "thresholds": {
            "mode": "absolute",
            "steps": [{"color": color, "value": value} for value, color in panel.thresholds],
        },
        "color": {"mode": panel.colors or ("palette-classic" if panel.kind == "timeseries" else "thresholds")},
        "custom": dict(panel.custom),
        "mappings": list(panel.mappings),
    }
    if panel.low is not None:
        defaults["min"] = panel.low
    if panel.high is not None:
        defaults["max"] = panel.high
    if panel.links:
        defaults["links"] = list(panel.links)
    found: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [_target(query, chr(ord("A") + index)) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults, "overrides": list(panel.overrides)},
        "options": dict(panel.options),
    }
    if panel.transformations:
        found["transformations"] = list(panel.transformations)
    return found


def _target(query: Query, letter: str) -> Json:
    once = query.instant or query.table
    found: Json = {
        "refId": letter,
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expression,
        "instant": once,
        "range": not once,
        "format": "table" if query.table else "time_series",
    }
    return found | ({"legendFormat": query.legend} if query.legend else {})


def dashboard(uid: str, title: str, description: str, rows: Iterable[Row], **more: Any) -> Json:
    """A dashboard. Its data source is a variable, so that it fits any Grafana."""
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1},
        *more.pop("variables", ()),
    ]
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["rltriage"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables},
        "annotations": {"list": more.pop("annotations", [])},
        "links": [
            {
                "title": "rltriage dashboards",
                "type": "dashboards",
                "tags": ["rltriage"],
                "asDropdown": False,
                "icon": "external link",
                "includeVars": False,
                "keepTime": True,
                "targetBlank": False,
                "tooltip": "",
            },
            *more.pop("links", ()),
        ],
        "panels": placed(rows),
        **more,
    }


def constants(page: str, docs: str) -> list[Json]:
    """The addresses that panels link to: hidden variables, to be changed in the dashboard's settings or when generating."""
    values = (
        ("page", page or PAGE_DEFAULT, "Address of rltriage's on-call page"),
        ("docs", docs or DOCS_DEFAULT, "Address under which the pages of docs/ lie"),
    )
    return [
        {"name": name, "type": "constant", "query": value.rstrip("/"), "hide": 2, "skipUrlSync": True, "description": text}
        for name, value, text in values
    ]


def link(title: str, url: str) -> Json:
    """A link of a field's values."""
    return {"title": title, "url": url, "targetBlank": True}


def page_link(title: str, url: str) -> Json:
    """A link at the head of a dashboard."""
    return {
        "title": title,
        "type": "link",
        "url": url,
        "icon": "external link",
        "targetBlank": True,
        "asDropdown": False,
        "includeVars": False,
        "keepTime": False,
        "tags": [],
        "tooltip": "rltriage serve",
    }


def fixed(color: str) -> Json:
    """A field's colour."""
    return {"mode": "fixed", "fixedColor": color}


def on_field(name: str, **properties: Any) -> Json:
    """Settings of a column or series, by name or /pattern/. `__` in a keyword stands for a dot: `custom__width`."""
    found = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byRegexp" if name.startswith("/") else "byName", "options": name}, "properties": found}


def columns(order: Iterable[str], hidden: Iterable[str] = (), rename: Mapping[str, str] | None = None) -> Json:
    """A table's columns in this order; the time and `hidden` are left out."""
    left_out = dict.fromkeys(("Time", "__name__", "instance", "job", *hidden), True)
    return {
        "id": "organize",
        "options": {
            "excludeByName": left_out,
            "indexByName": {name: index for index, name in enumerate(order)},
            "renameByName": dict(rename or {}),
        },
    }


def severity_mapping() -> Json:
    """Severities in their colours."""
    options = {name: {"color": color, "index": index} for index, (name, color) in enumerate(SEVERITY_COLORS.items())}
    return {"type": "value", "options": options}


def stat(title: str, description: str, query: Query, **more: Any) -> Panel:
    """One large number."""
    text = more.pop("text", "auto")
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": text,
    }
    return Panel("stat", title, description, (query,), **{"width": 4, "height": 4, "options": options, **more})


def table(title: str, description: str, queries: Iterable[Query], **more: Any) -> Panel:
    """A table of the newest values."""
    options = {"showHeader": True, "cellHeight": "sm"}
    custom = {"align": "auto", "filterable": True, "cellOptions": {"type": "auto"}}
    return Panel("table", title, description, tuple(queries), **{"options": options, "custom": custom, **more})


def curves(title: str, description: str, queries: Iterable[Query], **more: Any) -> Panel:
    """Lines over time. Values that are missing stay missing: a gap is no zero."""
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "none"},
    }
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 0,
        "showPoints": "auto",
        "pointSize": 4,
        "spanNulls": False,
        **more.pop("custom", {}),
    }
    return Panel("timeseries", title, description, tuple(queries), **{"options": options, "custom": custom, **more})


def timeline(title: str, description: str, query: Query, **more: Any) -> Panel:
    """A bar a series, coloured while it has a value."""
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    custom = {"fillOpacity": 70, "lineWidth": 0}
    return Panel("state-timeline", title, description, (query,), **{"options": options, "custom": custom, **more})


COLUMN_LINKS = {
    "fault": on_field("fault", links=[link("Runbook of this fault", "${docs}/faults.md#${__value.raw}")]),
    "first_test": on_field("first_test", links=[link("How to run it", "${docs}/faults.md#${__value.raw}")]),
}
"""What a table's column links to."""
SEVERITY_COLUMN = on_field(
    "severity", mappings=[severity_mapping()], custom__cellOptions={"type": "color-text"}, custom__width=90
)
"""The severity in its colour."""
