"""The JSON Schema: current, usable by editors, and every mistake that it finds is one that the loader reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltriage.rules import schema, validate
from rltriage.rules.loader import SHIPPED
from rltriage.rules.yamlmarks import parse, read

COMMITTED = Path(schema.__file__).with_name("rules.schema.json")


def test_the_committed_schema_is_current() -> None:
    """`rules.schema.json` is what the kinds say now; write it anew with `rltriage rules schema`."""
    assert COMMITTED.read_text(encoding="utf-8") == json.dumps(schema.pack_schema(), indent=2) + "\n"


def test_the_schema_is_a_valid_one() -> None:
    """Editors and other validators accept it."""
    jsonschema.Draft202012Validator.check_schema(schema.pack_schema())


def test_jsonschema_accepts_the_shipped_pack() -> None:
    """An editor shows no error in what is shipped."""
    node, _ = read(SHIPPED / "triage.yaml")
    assert node is not None
    assert not list(jsonschema.Draft202012Validator(schema.pack_schema()).iter_errors(node.plain()))


def test_editors_find_the_schema_and_no_error() -> None:
    """The modeline of the shipped pack names the schema beside it; the documentation's example fits it as well."""
    pack = SHIPPED / "triage.yaml"
    modeline = pack.read_text(encoding="utf-8").splitlines()[0]
    named = (SHIPPED / modeline.removeprefix("# yaml-language-server: $schema=")).resolve()
    assert named == COMMITTED.resolve()
    editor = jsonschema.Draft202012Validator(json.loads(named.read_text(encoding="utf-8")))
    examples = Path(__file__).parents[2] / "docs" / "examples"
    files = [pack, *(path for path in sorted(examples.glob("*.yaml")) if "rules:" in path.read_text(encoding="utf-8"))]
    assert len(files) > 1
    for path in files:
        node, _ = read(path)
        assert node is not None
        assert [error.message for error in editor.iter_errors(node.plain())] == [], path


def test_the_schema_never_leaves_a_choice_open() -> None:
    """No `oneOf` or `anyOf`: their messages name no mistake."""
    assert not {"oneOf", "anyOf", "allOf"} & set(_keywords(schema.pack_schema()))


def _keywords(node: Any) -> list[str]:
    if isinstance(node, list):
        return [key for item in node for key in _keywords(item)]
    return [*node, *(key for item in node.values() for key in _keywords(item))] if isinstance(node, dict) else []


@pytest.mark.usefixtures("kinds")
def test_a_kind_brings_its_help_defaults_and_limits() -> None:
    """What editors show and complete comes from the dataclass."""
    definitions = schema.pack_schema()["$defs"]
    assert set(definitions["condition"]["properties"]) == {"level", "listed", "both", "neither", "often"}
    level = definitions["level"]
    assert level["description"].startswith("A metric is above or below a limit.")
    assert level["required"] == ["metric"]
    assert level["properties"]["metric"]["description"] == "the metric that is judged"
    assert definitions["listed"]["properties"]["share"] == {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1,
        "default": 0.5,
    }
    assert definitions["both"]["items"] == {"$ref": "#/$defs/condition"}
    assert definitions["neither"]["$ref"] == "#/$defs/condition"
    assert definitions["Operand"]["then"] == {"$ref": "#/$defs/OperandFields"}
    assert definitions["Span"]["properties"]["stat"] == {"enum": ["mean", "median"], "default": "median"}


scalars = st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([0.5, 2.0, 1e-4, "a", "", "mean"])
NAMES = "metric above below window last stat names left share weights mode value x-a"
names = st.sampled_from(NAMES.split(" "))
kinds_ = st.sampled_from(["level", "listed", "both", "neither", "often", "when", "at_least", "wrong"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(names, inner, max_size=4),
        st.dictionaries(kinds_, inner, max_size=2),
    ),
    max_leaves=8,
)
parameters = st.one_of(
    st.fixed_dictionaries({"metric": st.just("m"), "above": values}, optional={"window": values, "strict": values}),
    st.fixed_dictionaries({"names": values}, optional={"left": values, "share": values, "weights": values, "mode": values}),
)
whens = st.one_of(values, st.dictionaries(st.sampled_from(["level", "listed"]), parameters, min_size=1, max_size=1))
fields = st.sampled_from(["requires", "suspects", "labels", "for", "references", "severity"])
head = st.dictionaries(fields, values, max_size=3)


@pytest.mark.usefixtures("kinds")
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(whens, head)
def test_editors_and_the_loader_find_the_same_packs_wrong(when: Any, more: dict[str, Any]) -> None:
    """What the schema as it is refuses has problems with a place in the pack, whatever is in it, and nothing else has."""
    rule = {
        "id": "a",
        "summary": "s",
        "group": "outcome",
        "severity": "info",
        "when": when,
        "suspects": {},
        "first_test": "t",
    }
    pack = {"version": 1, "rules": [{**rule, **more}]}
    node, _ = parse(json.dumps(pack), "a.yaml")
    assert node is not None
    ours = validate.validate(node, schema.pack_schema(), "the pack")
    assert all("is not as it should be" not in problem.message for problem in ours)
    theirs = list(jsonschema.Draft202012Validator(schema.pack_schema()).iter_errors(pack))
    assert bool(ours) == bool(theirs), (ours, theirs)
