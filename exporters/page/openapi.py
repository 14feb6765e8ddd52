"""The description of the JSON API (OpenAPI 3.1); a test holds every answer against it."""

from __future__ import annotations

from typing import Any

from rltriage.exporters.page.guard import COOKIE

_STEP = {"type": ["integer", "null"]}
_TIME = {"type": ["number", "null"], "description": "Unix seconds"}
_SEVERITY = {"enum": ["", "info", "warning", "critical"], "description": "The worst that stands, empty if nothing does"}
_STATE = {"enum": ["running", "finished", "crashed", "stale"]}
_RUN = {
    "name": "run",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "Run id, percent-encoded",
}
_ALERT = {"name": "alert", "in": "path", "required": True, "schema": {"type": "string"}, "description": "Alert id"}
_QUERY = [
    {"name": "q", "in": "query", "schema": {"type": "string"}, "description": "Text in the run's id or headline"},
    {"name": "severity", "in": "query", "schema": {"enum": ["info", "warning", "critical", "quiet"]}},
]


def _object(description: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "description": description, "required": list(properties), "properties": properties}


def _list(reference: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{reference}"}}


def _text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


SCHEMAS: dict[str, Any] = {
    "Summary": _object(
        "A run in the list",
        run=_text(),
        state=_STATE,
        severity=_SEVERITY,
        fault=_text(description="First suspect now, empty if nothing is suspected"),
        headline=_text(),
        rows={"type": "integer"},
        last_step=_STEP,
        last_time=_TIME,
        alerts={"type": "integer", "description": "Alerts that stand"},
        url=_text(description="The run's page"),
    ),
    "Alert": _object(
        "An alert at one of its transitions, as `--json` prints it",
        type={"const": "alert"},
        format={"const": 1},
        id=_text(),
        run=_text(),
        rule=_text(),
        state={"enum": ["firing", "resolved", "ended", "superseded", "stale", "flapping"]},
        severity={"enum": ["info", "warning", "critical"]},
        step={"type": "integer"},
        since_step={"type": "integer"},
        summary=_text(),
        values={"type": "object"},
        suspects={"type": "array", "items": {"type": "object", "required": ["fault", "number", "title", "score"]}},
        first_test={"type": ["object", "null"]},
        explained_by={"type": ["string", "null"], "description": "The rule that explains it"},
    ),
    "Report": _object(
        "Everything about one run, as `rltriage report --format json` writes it",
        type={"const": "report"},
        format={"const": 1},
        run=_text(),
        state=_STATE,
        severity=_SEVERITY,
        headline=_text(),
        advice=_text(),
        first_test={"type": ["object", "null"]},
        incident={"type": ["object", "null"]},
        standing=_list("Alert"),
        timeline=_list("Alert"),
        checks={"type": "array", "items": {"type": "object", "required": ["number", "check", "title", "passed", "value"]}},
        config={"type": "object"},
        missing={"type": "array", "items": {"type": "object", "required": ["metric", "flags", "faults"]}},
        curves={"type": "object", "description": "Metric -> points of [step, lowest, highest, mean]"},
    ),
    "Error": _object("What is not there", error=_text()),
}


SECURITY: dict[str, Any] = {
    "basic": {"type": "http", "scheme": "basic"},
    "token": {"type": "http", "scheme": "bearer"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "Set by opening any page with ?token=..."},
}


def document() -> dict[str, Any]:
    """The whole description."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "rltriage", "version": "1", "description": "Runs, their incidents and alerts, read-only."},
        "paths": {
            "/api/runs": _path("Every run, the worst first", _object("Runs", runs=_list("Summary")), _QUERY),
            "/api/alerts": _path("Every alert that stands", _object("Alerts", alerts=_list("Alert"))),
            "/api/runs/{run}": _path("One run", {"$ref": "#/components/schemas/Report"}, [_RUN], missing=True),
            "/api/runs/{run}/alerts/{alert}": _path(
                "One alert: its newest state and its transitions",
                _object("Alert", alert={"$ref": "#/components/schemas/Alert"}, transitions=_list("Alert")),
                [_RUN, _ALERT],
                missing=True,
            ),
        },
        "components": {"schemas": SCHEMAS, "securitySchemes": SECURITY},
    }


def _path(
    summary: str, schema: dict[str, Any], parameters: list[Any] | None = None, missing: bool = False
) -> dict[str, Any]:
    answers = {"200": {"description": summary, "content": {"application/json": {"schema": schema}}}}
    if missing:
        error = {"schema": {"$ref": "#/components/schemas/Error"}}
        answers["404"] = {"description": "Not here", "content": {"application/json": error}}
    return {"get": {"summary": summary, "parameters": parameters or [], "responses": answers}}
