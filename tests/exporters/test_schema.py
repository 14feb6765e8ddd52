"""The schema of the JSON output: what is written of real runs fits it, and what is not ours does not."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rltriage.engine.sources import open_source
from rltriage.exporters.page.openapi import document
from rltriage.exporters.report.build import build
from rltriage.exporters.report.collect import Collector, Collectors
from rltriage.exporters.report.plain import reports_json
from rltriage.exporters.schema import json_schema, shapes
from rltriage.recorded import read_manifest, read_runs
from rltriage.replaying import replay
from rltriage.rules.loader import load_rules
from rltriage.rules.model import RulePack
from rltriage.watching import WatchedRun

DATA = Path(__file__).parents[1] / "data"
GROUPS = [name for name in read_manifest(DATA / "runs")["groups"] if name != "reference"]
CASES = sorted(path.name for path in (DATA / "cases").glob("*.jsonl"))
VALIDATOR = Draft202012Validator(json_schema())


@pytest.fixture(scope="module")
def pack() -> RulePack:
    """The shipped rules."""
    return load_rules("triage")


@cache
def _report(group: str) -> dict[str, Any]:
    """The report in JSON of a group's first recorded run."""
    recorded = read_runs(DATA / "runs", [group])[0]
    pack, run = load_rules("triage"), recorded.run()
    collector = Collector(run)
    watched = WatchedRun(run, pack, (collector,))
    for row in recorded.rows:
        watched.emit(row)
    watched.end("finished", 0.0)
    found: dict[str, Any] = json.loads(reports_json([build(collector, pack)]))
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_the_report_of_a_recorded_run_fits(group: str) -> None:
    """Healthy runs and each of the ten failures; what the report says of them is not empty."""
    report = _report(group)
    VALIDATOR.validate(report)
    assert report["curves"] and report["checks"] and report["config"]
    named = report["incident"]["suspects"][0]["fault"] if report["incident"] else None
    assert named == (None if group in ("healthy", "control_max_turns_12", "control_kl_coef_0.1") else group)


@pytest.mark.parametrize("case", CASES)
def test_the_report_of_a_public_case_fits(case: str, pack: RulePack) -> None:
    """Logs of other frameworks, with gaps, numbers that are none, and names that nobody knows."""
    collectors = Collectors()
    for replayed in replay(open_source(str(DATA / "cases" / case)), pack, run_id=case, sinks=(collectors,)):
        collector = collectors.of(replayed.watched.run)
        VALIDATOR.validate(json.loads(reports_json([build(collector, pack, unmapped=replayed.intake.unmapped)])))


def _change(report: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(report)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("more",), 1),
        (("incident", "more"), 1),
        (("timeline", 0, "more"), 1),
        (("symptoms", 0, "flags", 0, "more"), 1),
        (("checks", 0, "passed"), "yes"),
        (("curves", "reward", "points", 0), [0, 1.0, 1.0]),
        (("curves", "reward", "points", 0), [0, 1.0, 1.0, 1.0, 1.0]),
        (("config", "lr", "provenance"), "guessed"),
        (("state",), "lost"),
        (("first_test", "how"), None),
        (("headline",), None),
    ],
)
def test_what_a_report_is_not_is_refused(path: tuple[str | int, ...], value: Any) -> None:
    """Unknown fields and wrong values, at the top and deep inside."""
    report = _report("mask_shift")
    assert VALIDATOR.is_valid(report)
    assert not VALIDATOR.is_valid(_change(report, path, value))


def test_the_names_of_others_are_theirs() -> None:
    """Metrics, labels and config facts may be called anything."""
    report = _report("healthy")
    curve = report["curves"]["reward"]
    VALIDATOR.validate(_change(report, ("curves", "a/b c"), curve))
    VALIDATOR.validate(
        _change(report, ("config", "x.y"), {"value": [1, {"z": None}], "provenance": "declared", "source": ""})
    )


def test_the_page_describes_the_same_shapes() -> None:
    """OpenAPI refers to the report's own shapes: nothing is described twice."""
    described = document()["components"]["schemas"]
    ours = shapes(lambda name: {"$ref": f"#/components/schemas/{name.capitalize()}"})
    assert {name: described[name.capitalize()] for name in ours if name not in ("run", "seed")} == {
        name: shape for name, shape in ours.items() if name not in ("run", "seed")
    }


def test_the_checked_in_file_is_this_schema() -> None:
    """`exporters/report.schema.json` is generated, and a valid schema."""
    file = Path(__file__).parents[2] / "exporters" / "report.schema.json"
    assert json.loads(file.read_text()) == json_schema()
    Draft202012Validator.check_schema(json_schema())
