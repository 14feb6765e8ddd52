"""The description of the JSON API (OpenAPI 3.1); a test holds every answer against it."""

from __future__ import annotations

from typing import Any

from rltriage.exporters.page.guard import COOKIE
from rltriage.exporters.schema import COUNT, MAYBE_STEP, RUN_STATE, TEXT, TIME, WORST, closed, several, shapes

_RUN = {
    "name": "run",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "Run id, percent-encoded; `~.` and `~..` for `.` and `..`",
}
_ALERT = {"name": "alert", "in": "path", "required": True, "schema": {"type": "string"}, "description": "Alert id"}
_QUERY = [
    {"name": "q", "in": "query", "schema": {"type": "string"}, "description": "Text in the run's id or headline"},
    {"name": "severity", "in": "query", "schema": {"enum": ["info", "warning", "critical", "quiet"]}},
]


def _refer(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name.capitalize()}"}


SCHEMAS: dict[str, Any] = {
    "Summary": closed(
        "A run in the list",
        run=TEXT,
        state=RUN_STATE,
        severity=WORST,
        fault={**TEXT, "description": "First suspect now, empty if nothing is suspected"},
        headline=TEXT,
        rows=COUNT,
        last_step=MAYBE_STEP,
        last_time=TIME,
        alerts={**COUNT, "description": "Alerts that stand"},
        url={**TEXT, "description": "The run's page"},
    ),
    **{name.capitalize(): shape for name, shape in shapes(_refer).items() if name not in ("run", "seed")},
    "Error": closed("What is not there", error=TEXT),
}
"""What the API answers; a report and its parts are those of `rltriage report --format json`."""


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
            "/api/runs": _path("Every run, the worst first", closed("Runs", runs=several(_refer("summary"))), _QUERY),
            "/api/alerts": _path("Every alert that stands", closed("Alerts", alerts=several(_refer("alert")))),
            "/api/runs/{run}": _path("One run", _refer("report"), [_RUN], missing=True),
            "/api/runs/{run}/alerts/{alert}": _path(
                "One alert: its newest state and its transitions",
                closed("Alert", alert=_refer("alert"), transitions=several(_refer("alert"))),
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
        error = {"schema": _refer("error")}
        answers["404"] = {"description": "Not here", "content": {"application/json": error}}
    return {"get": {"summary": summary, "parameters": parameters or [], "responses": answers}}
