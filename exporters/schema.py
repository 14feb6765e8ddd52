"""The JSON Schema of what `--json` and `report --format json` write, and of what the page's API answers.

One function gives every shape; `report.schema.json` beside this file and the API's description are made of it, and tests
hold what is written against both. The shapes are closed: a field that is not here is a mistake. A later version may add
fields, so readers ignore those that they do not know, and validate with the schema of the version that wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from rltriage.engine.report import State
from rltriage.engine.rows import Provenance
from rltriage.exporters.jsonlines import FORMAT
from rltriage.exporters.state import RUN_STATES
from rltriage.rules.model import SEVERITIES

Schema = dict[str, Any]
Refer = Callable[[str], Schema]
"""How one shape refers to another by its name."""

LINES = ("alert", "incident", "run", "seed", "report")
"""What a line can be, by its `type`."""

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
STEP: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TIME: Schema = {"type": ["number", "null"], "description": "Unix seconds"}
SEVERITY: Schema = {"enum": list(SEVERITIES)}
WORST: Schema = {"enum": ["", *SEVERITIES], "description": "The worst that stands, empty if nothing does"}
MAYBE_STEP: Schema = {"type": ["integer", "null"]}
MAYBE_TEXT: Schema = {"type": ["string", "null"]}
RUN_STATE: Schema = {"enum": list(RUN_STATES)}
ACTIONS = ("continue", "stop", "roll back")


def closed(description: str, **properties: Schema) -> Schema:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "description": description,
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }


def several(item: Schema) -> Schema:
    """A list of these."""
    return {"type": "array", "items": item}


def optional(shape: Schema) -> Schema:
    """This or null."""
    return {"oneOf": [shape, {"type": "null"}]}


def table(value: Schema) -> Schema:
    """An object whose keys are names that are not ours: metrics, labels, config facts."""
    return {"type": "object", "additionalProperties": value}


def json_schema() -> Schema:
    """The schema of one line, as `report.schema.json` has it and `rltriage report --schema` prints it."""
    found = shapes(lambda name: {"$ref": f"#/$defs/{name}"})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One line of rltriage's --json output or of a report in JSON, format {FORMAT}",
        "description": "Of the version that printed it. Later versions may add fields: ignore those that you do not know.",
        "type": "object",
        "required": ["type", "format"],
        "properties": {"type": {"enum": list(LINES)}},
        "allOf": [{"if": {"properties": {"type": {"const": name}}}, "then": {"$ref": f"#/$defs/{name}"}} for name in LINES],
        "$defs": found,
    }


def shapes(refer: Refer) -> dict[str, Schema]:
    """Every shape by its name: the lines, the report, and what they are made of."""
    return {**_lines(refer), "report": _report(refer), **_parts(refer)}


def _lines(refer: Refer) -> dict[str, Schema]:
    test: Schema = optional(refer("test"))
    return {
        "alert": closed(
            "An alert at one of its transitions",
            **_head("alert"),
            id=TEXT,
            run=TEXT,
            rule=TEXT,
            state={"enum": [state for state in get_args(State) if state != "pending"]},
            severity=SEVERITY,
            group=TEXT,
            step=STEP,
            since_step=STEP,
            segment=COUNT,
            time=TIME,
            summary=TEXT,
            values=table(refer("number")),
            suspects=several(refer("suspect")),
            first_test=test,
            explained_by={**MAYBE_TEXT, "description": "The rule that explains it"},
            question=TEXT,
            labels=table(TEXT),
        ),
        "incident": closed(
            "What is wrong with one run",
            **_head("incident"),
            id=TEXT,
            run=TEXT,
            step=STEP,
            onset_step=STEP,
            severity=SEVERITY,
            time=TIME,
            suspects=several(refer("suspect")),
            rivals_told_apart_by=TEXT,
            first_test=test,
            best_test=test,
            action={"enum": list(ACTIONS)},
            rules=TEXTS,
            unexplained=TEXTS,
            notes=several(refer("note")),
            config_changed=several(refer("change")),
        ),
        "run": closed(
            "What was read of one run",
            **_head("run"),
            run=TEXT,
            rows=COUNT,
            bad_rows=COUNT,
            segments=COUNT,
            profile=TEXT,
            first_step=MAYBE_STEP,
            last_step=MAYBE_STEP,
            rules_evaluated=COUNT,
            rules_skipped=several(closed("A rule that could not have fired", rule=TEXT, why=TEXT)),
            unmapped=TEXTS,
            config=table(refer("fact")),
        ),
        "seed": closed(
            "How one seed of `train --seeds` went",
            **_head("seed"),
            run=TEXT,
            seed=STEP,
            fault=MAYBE_TEXT,
            row={**MAYBE_STEP, "description": "The row from which on the fault was the first suspect"},
            alerts=table(COUNT),
        ),
    }


def _report(refer: Refer) -> Schema:
    return closed(
        "Everything about one run",
        **_head("report"),
        run=TEXT,
        state=RUN_STATE,
        severity=WORST,
        headline=TEXT,
        advice={**TEXT, "description": "What to do with the run meanwhile; empty without an incident"},
        reasons=several(closed("Why the first suspect is suspected", seen=TEXT, rules=TEXT)),
        first_test=optional(refer("howto")),
        rows=COUNT,
        first_step=MAYBE_STEP,
        last_step=MAYBE_STEP,
        last_time=TIME,
        restarts=COUNT,
        bad_rows={**COUNT, "description": "Lines of the log that were not understood"},
        bad_examples=several(closed("One of the first of them; line 0 is the log itself", line=COUNT, reason=TEXT)),
        profile=TEXT,
        labels=table(TEXT),
        incident=optional(refer("incident")),
        standing={**several(refer("alert")), "description": "Alerts that nothing has resolved, the strongest first"},
        timeline={**several(refer("alert")), "description": "Every transition, the newest 400"},
        checks=several(refer("check")),
        config=table(refer("fact")),
        missing=several(closed("A metric that is not logged", metric=TEXT, flags=TEXT, faults=TEXTS)),
        notes=several(refer("note")),
        config_changed=several(refer("change")),
        hidden_faults={**TEXTS, "description": "Faults that nothing logged can reveal"},
        no_band_because={**TEXT, "description": "Why no healthy band is given; empty where one is"},
        band_differs={**TEXT, "description": "How the configuration of the healthy runs differs; empty where it does not"},
        unmapped={**TEXTS, "description": "Names in the log that no profile knows"},
        symptoms=several(refer("chart")),
        pairs=several(refer("chart")),
        curves=table(refer("curve")),
    )


def _parts(refer: Refer) -> dict[str, Schema]:
    number = refer("number")
    return {
        "suspect": closed(
            "A fault that may be the cause",
            fault=TEXT,
            number={**MAYBE_STEP, "description": "The chapter's number"},
            title=TEXT,
            score={"type": "number", "minimum": 0, "maximum": 1},
        ),
        "test": closed(
            "A first test with the command for this run",
            id=TEXT,
            title=TEXT,
            tier={"enum": ["rows", "dump", "trainer"]},
            command=TEXT,
        ),
        "howto": closed(
            "The test to run first",
            title=TEXT,
            how=TEXT,
            command=TEXT,
            already_run={**TEXT, "description": "What the run has logged of it"},
        ),
        "note": closed("What an info alert adds", rule=TEXT, fault=MAYBE_TEXT, question=TEXT),
        "change": closed("A config fact that differs", fact=TEXT, before={}, now={}, against=TEXT),
        "fact": closed("A config fact", value={}, provenance={"enum": list(get_args(Provenance))}, source=TEXT),
        "check": closed(
            "An invariant's newest result; passed is null where it was not judged",
            number=COUNT,
            check=TEXT,
            title=TEXT,
            passed={"type": ["boolean", "null"]},
            value=optional(number),
        ),
        "chart": closed(
            "Curves that are read together",
            title=TEXT,
            caption=TEXT,
            metrics=TEXTS,
            flags=several(closed("What happened at a step", step=STEP, text=TEXT, severity=SEVERITY, rules=TEXTS)),
        ),
        "curve": closed(
            "A metric's course",
            rows_per_point={"type": "integer", "minimum": 1},
            points=several(_row(STEP, number, number, number, names="step, lowest, highest, mean")),
            not_a_number_at=several(STEP),
            band=several(_row(STEP, number, number, names="step, lowest, highest of healthy runs")),
        ),
        "number": {"oneOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
    }


def _head(name: str) -> dict[str, Schema]:
    return {"type": {"const": name}, "format": {"const": FORMAT}}


def _row(*items: Schema, names: str) -> Schema:
    return {"type": "array", "description": names, "prefixItems": list(items), "minItems": len(items), "items": False}
