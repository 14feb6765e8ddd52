"""The public JSON format: exact objects, strict JSON, and the schema that describes them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from rltriage.engine.report import ConfigChange, Note
from rltriage.engine.rows import Fact
from rltriage.exporters.jsonlines import alert_json, dumps, incident_json, run_json

SCHEMA = json.loads((Path(__file__).parents[2] / "exporters" / "report.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)


@pytest.fixture
def incident(incident):
    """The folder's incident with short names."""
    changed = (ConfigChange("kl_coef", 0.04, [1], "the run r"),)
    notes = (Note("spike"), Note("ask", "mask_shift", "?"))
    return replace(incident, unexplained=("x",), rivals_told_apart_by="logp_gap", changed=changed, notes=notes)


def test_an_alert_is_exactly_the_documented_object(alert, catalogue):
    """Field names and nesting are a public format."""
    assert alert_json(alert, catalogue) == {
        "type": "alert",
        "format": 1,
        "id": "0a1b",
        "run": "demo",
        "rule": "logp-gap-from-start",
        "state": "firing",
        "severity": "critical",
        "group": "consistency",
        "step": 7,
        "since_step": 5,
        "segment": 0,
        "time": None,
        "summary": "logp_gap is 0.531 where fp32 engines stay under 0.0001",
        "values": {"logp_gap": 0.5312, "limit": 1e-4, "start": 0.52},
        "suspects": [
            {"fault": "mask_shift", "number": 1, "title": "the action mask is one token off", "score": 0.93},
            {"fault": "engine_mismatch", "number": None, "title": "sampler and trainer disagree", "score": 0.003},
        ],
        "first_test": {
            "id": "check_mask",
            "title": "mask = policy tokens",
            "tier": "trainer",
            "command": "rltriage check --only 1 demo",
        },
        "explained_by": None,
        "question": "",
        "labels": {},
    }


def test_an_incident_holds_both_tests_and_what_stays_unexplained(incident, catalogue):
    """The cheapest test that can run now and the one that decides best are both objects."""
    found = incident_json(incident, catalogue)
    assert found["config_changed"] == [{"fact": "kl_coef", "before": 0.04, "now": [1], "against": "the run r"}]
    assert found["notes"] == [
        {"rule": "spike", "fault": None, "question": ""},
        {"rule": "ask", "fault": "mask_shift", "question": "?"},
    ]
    assert (found["type"], found["action"], found["onset_step"], found["unexplained"]) == ("incident", "stop", 5, ["x"])
    assert (found["first_test"]["tier"], found["best_test"]["id"]) == ("dump", "check_mask")


def test_every_object_satisfies_the_schema(alert, incident, catalogue):
    """What is written is what the schema says, after a round trip through text."""
    run = run_json(
        "demo",
        rows=24,
        bad_rows=0,
        segments=1,
        profile="generic",
        first_step=0,
        last_step=23,
        rules_evaluated=31,
        rules_skipped=[("kl-ref-exactly-zero", "kl_coef is 0")],
        unmapped=["foo"],
        facts={"kl_coef": Fact(0.0, "declared", "--config"), "betas": Fact((0.9, math.inf), "logged")},
    )
    assert run["config"]["betas"]["value"] == [0.9, "Infinity"]
    strange = replace(alert, values={"loss": math.nan, "up": math.inf, "down": -math.inf}, first_test="", suspects=())
    for found in (alert_json(alert, catalogue), alert_json(strange, catalogue), incident_json(incident, catalogue), run):
        VALIDATOR.validate(json.loads(dumps(found)))


@pytest.mark.parametrize(
    "change",
    [
        {"state": "pending"},
        {"severity": "fatal"},
        {"step": None},
        {"format": 2},
        {"suspects": [{"fault": "x"}]},
        {"type": "row"},
    ],
)
def test_the_schema_refuses_what_the_format_is_not(alert, catalogue, change):
    """The schema is no rubber stamp."""
    assert not VALIDATOR.is_valid({**alert_json(alert, catalogue), **change})


def test_the_schema_is_a_valid_schema():
    """Draft 2020-12 accepts the committed file."""
    Draft202012Validator.check_schema(SCHEMA)


def test_non_finite_numbers_are_strings(alert, catalogue):
    """Strict JSON has no NaN literal."""
    line = dumps(alert_json(replace(alert, values={"a": math.nan, "b": math.inf, "c": -math.inf}), catalogue))
    strict = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert strict["values"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity"}
    assert "\n" not in line


def test_a_run_name_is_quoted_in_the_command(alert, catalogue):
    """A command that is copied into a shell must not run what a run's name says."""
    found = alert_json(replace(alert, run="my run; rm -rf ~"), catalogue)
    assert found["first_test"]["command"] == "rltriage check --only 1 'my run; rm -rf ~'"


def test_an_unknown_test_keeps_its_id(alert, catalogue):
    """A report over a pack with a test that the catalogue lost is still valid."""
    found = alert_json(replace(alert, first_test="gone"), catalogue)
    assert found["first_test"]["id"] == "gone"
    assert VALIDATOR.is_valid(found)
