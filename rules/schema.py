"""The JSON Schema of rule packs, derived from the condition dataclasses; for editors and for `rules/validate.py`.

Every choice is keyed (on the condition's kind, on the type of a value, on a required key), never `oneOf`: a mistake then
has one exact message instead of "is not valid under any of the given schemas".
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from functools import cache
from typing import Any, Literal

from rltriage.rules import shapes
from rltriage.rules.conditions import KINDS
from rltriage.rules.conditions.base import Condition
from rltriage.rules.model import Rule

Schema = dict[str, Any]

ID = r"^[a-z][a-z0-9]*([-_][a-z0-9]+)*$"
_SCALARS: dict[Any, str] = {float: "number", int: "integer", str: "string", bool: "boolean"}
_USERS_OWN: Schema = {"^x-": True}
_PASSED_ON = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern", "enum", "minItems", "maxItems")


def text(description: str, **more: Any) -> Schema:
    return {"type": "string", "minLength": 1, "description": description, **more}


def mapping(noun: str, properties: Schema, required: tuple[str, ...] = (), **more: Any) -> Schema:
    """A mapping with known keys and the user's own `x-...` ones; `x-noun` is what messages call it."""
    return {
        "type": "object",
        "x-noun": noun,
        "properties": properties,
        "required": list(required),
        "patternProperties": _USERS_OWN,
        "additionalProperties": False,
        **more,
    }


def table(noun: str, values: Schema, description: str, **more: Any) -> Schema:
    """A mapping from free names to values of one shape."""
    return {"type": "object", "x-noun": noun, "additionalProperties": values, "description": description, **more}


def listing(items: Schema, description: str, **more: Any) -> Schema:
    return {"type": "array", "items": items, "description": description, **more}


def reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _whole(description: str, minimum: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "description": description}


@cache
def _choice(name: str) -> list[str]:
    return list(typing.get_args(typing.get_type_hints(Rule, localns={"Condition": Condition})[name]))


def requires_schema() -> Schema:
    """`requires` of a rule, `excluded_when` of a fault: config fact -> tests of its value."""
    number: Schema = {"type": "number"}
    scalar: Schema = {"type": ["number", "string", "boolean"]}
    tests = {
        "above": {**number, "description": "the fact is larger than this"},
        "below": {**number, "description": "the fact is smaller than this"},
        "equals": {**scalar, "description": "the fact is exactly this"},
        "not": {**scalar, "description": "the fact is anything but this"},
        "in": listing(scalar, "the fact is one of these", minItems=1),
        "known": {"type": "boolean", "description": "whether the fact is known at all"},
    }
    return table(
        "config fact",
        mapping("test of a config fact", tests, minProperties=1, description="its tests, such as {above: 0}"),
        "config fact -> tests of its value",
    )


def rule_schema() -> Schema:
    """One rule."""
    condition = reference("condition")
    properties: Schema = {
        "id": text("unique name of the rule, in lower case with dashes", pattern=ID),
        "summary": text("what is seen, with its numbers: {metric}, {config.fact}, {observations}, {step}, as {kl_ref:.3g}"),
        "group": {"enum": _choice("group"), "description": "what the rule looks at"},
        "severity": {
            "enum": _choice("severity"),
            "description": "critical pages somebody, warning is read today, info is kept",
        },
        "requires": requires_schema(),
        "when": {
            **condition,
            "description": "the condition that is wrong: one kind, such as threshold: {metric: logp_gap, above: 0.05}",
        },
        "unless": {**condition, "description": "blocks the rule while it is known to hold"},
        "for": _whole("observations the condition must hold before the alert fires", 1),
        "keep_firing_for": _whole("observations it must not hold before the alert resolves", 0),
        "clear_when": {**condition, "description": "resolves the alert only once this holds (hysteresis)"},
        "after": _whole("observations to ignore at the start of a run", 0),
        "suspects": table(
            "fault",
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "description": "a probability, such as 0.7"},
            "fault id -> probability that it is the cause when the rule fires; together at most 1",
        ),
        "first_test": text("id of the first test to run"),
        "labels": table("label", {"type": ["string", "number", "boolean"]}, "free labels, for routing"),
        "maturity": {
            "enum": _choice("maturity"),
            "description": "experimental rules are tried out, stable ones are relied on",
        },
        "why": text("why this is a fault and where the threshold was measured"),
        "false_positives": text("when the rule fires on a healthy run"),
        "references": listing({"type": "string", "minLength": 1}, "where the rule comes from"),
    }
    required = ("id", "summary", "group", "severity", "when", "suspects", "first_test")
    return mapping("rule", properties, required, description="a condition plus what it means")


def fault_schema() -> Schema:
    """An entry of `faults`."""
    strings = {"type": "string", "minLength": 1}
    pair = {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "prefixItems": [strings, {"enum": ["up", "down", "zero"]}],
        "items": False,
        "description": "[metric, up | down | zero]",
    }
    properties: Schema = {
        "number": _whole("number in the chapter's catalogue", 1),
        "title": text("what the fault is, in a few words"),
        "summary": text("what goes wrong, in one or two sentences"),
        "prior": {"type": "number", "description": "log odds before any evidence, relative to the other faults"},
        "explains": listing(pair, "symptoms that the fault causes downstream"),
        "excluded_when": requires_schema(),
        "failing_checks": listing(strings, "invariants that fail under the fault"),
        "may_fail": listing(strings, "invariants that fail under the fault in some set-ups"),
        "signature": text("how it looks in the metrics"),
        "look_alikes": listing(strings, "what looks the same and how it differs"),
        "fix": text("what to change"),
        "action": {"enum": ["continue", "stop", "roll back"], "description": "what to do with the run meanwhile"},
        "first_test": text("id of the test that decides"),
        "sources": listing(strings, "where the fault was seen"),
    }
    return mapping("fault", properties, ("title", "summary"), description="what can be wrong with a run")


def first_test_schema() -> Schema:
    """An entry of `first_tests`."""
    properties: Schema = {
        "title": text("the test in a few words"),
        "tier": {"enum": ["rows", "dump", "trainer"], "description": "what it needs: metrics, a recorded batch, a probe"},
        "how": text("what to do and what each outcome means"),
        "command": text("the command that runs it, with {run} for the run"),
        "check": {"type": "integer", "minimum": 1, "description": "number of the invariant that it runs"},
        "decides": table("outcome", {"type": "string", "minLength": 1}, "outcome -> fault id"),
    }
    return mapping("first test", properties, ("title", "tier", "how"), description="the cheapest test that decides")


def metric_schema() -> Schema:
    """An entry of `metrics`: of a pack, where every field is optional, and of the catalogue."""
    number: Schema = {"type": "number"}
    properties: Schema = {
        "group": text("which of the chapter's groups it belongs to"),
        "unit": {"type": "string", "description": "unit of the value, empty for a plain number"},
        "help": text("what the metric is"),
        "flags": text("what a departure means"),
        "prometheus": text("name of the gauge"),
        "labels": table("label", {"type": "string"}, "fixed labels of its series"),
        "low": {**number, "description": "smallest possible value"},
        "high": {**number, "description": "largest possible value"},
    }
    return mapping("metric", properties, description="a metric that the pack reads")


def condition_schemas() -> Schema:
    """`condition`, every kind and every dataclass that a kind uses, by their names in `$defs`."""
    definitions: Schema = {
        "condition": {
            "type": "object",
            "x-noun": "condition kind",
            "properties": {kind: reference(kind) for kind in KINDS},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        }
    }
    for kind, cls in KINDS.items():
        inline = shapes.inline_field(cls)
        body = of_hint(inline.hint, definitions) if inline else _dataclass_schema(cls, definitions, kind)
        definitions[kind] = {**body, "description": inspect.getdoc(cls) or kind}
    return definitions


def of_hint(hint: Any, definitions: Schema) -> Schema:
    """The schema of a type hint; dataclasses on the way are added to `definitions`."""
    options = shapes.members(hint)
    if len(options) > 1:
        return _union(options, definitions)
    hint = options[0]
    if hint is Condition:
        return reference("condition")
    if hint in _SCALARS:
        return {"type": _SCALARS[hint], **({"minLength": 1} if hint is str else {})}
    if typing.get_origin(hint) is Literal:
        return {"enum": list(typing.get_args(hint))}
    if shapes.element_of(hint) is not None:
        return {"type": "array", "items": of_hint(shapes.element_of(hint), definitions), "minItems": 1}
    if shapes.value_of(hint) is not None:
        return {"type": "object", "additionalProperties": of_hint(shapes.value_of(hint), definitions), "minProperties": 1}
    if dataclasses.is_dataclass(hint):
        return _nested(hint, definitions)
    raise TypeError(f"rules/shapes.py does not know how to write {hint!r} in YAML")


def _nested(cls: Any, definitions: Schema) -> Schema:
    """A reference to a dataclass, or, if it may be written as its bare `value`, the choice between the two."""
    name = cls.__name__
    if name not in definitions:
        definitions[name] = {}  # a placeholder, so that a dataclass can hold itself
        body = {**_dataclass_schema(cls, definitions, name.lower()), "description": inspect.getdoc(cls) or name}
        short = shapes.short_field(cls)
        if short is not None:
            definitions[name + "Fields"] = body
            bare = of_hint(short.hint, definitions)
            body = {"if": {"type": "object"}, "then": reference(name + "Fields"), "else": {**bare, "x-or": "a mapping"}}
        definitions[name] = body
    return reference(name)


def _dataclass_schema(cls: Any, definitions: Schema, noun: str) -> Schema:
    properties: Schema = {}
    for item in shapes.fields(cls):
        properties[item.key] = of_hint(item.hint, definitions)
        properties[item.key] |= {key: item.metadata[key] for key in _PASSED_ON if key in item.metadata}
        if "help" in item.metadata:
            properties[item.key]["description"] = item.metadata["help"]
        if not item.required and isinstance(item.default, str | int | float):
            properties[item.key]["default"] = item.default
    return mapping(noun, properties, tuple(f.key for f in shapes.fields(cls) if f.required))


def _union(options: tuple[Any, ...], definitions: Schema) -> Schema:
    """A choice by the YAML shape of the value: mappings first, then lists, then scalars."""
    mappings = [o for o in options if dataclasses.is_dataclass(o) or o is Condition or shapes.value_of(o) is not None]
    lists = [o for o in options if shapes.element_of(o) is not None]
    scalars = [o for o in options if o not in mappings and o not in lists]
    bare = [f.hint for o in mappings if (f := shapes.short_field(o)) is not None]
    schema = _scalar_union([*scalars, *(m for hint in bare for m in shapes.members(hint))], definitions)
    if lists:
        schema = _choose("array", of_hint(lists[0], definitions), schema)
    if mappings:
        schema = _choose("object", _keyed(mappings, options, definitions), schema)
    return schema


def _scalar_union(scalars: list[Any], definitions: Schema) -> Schema:
    if not scalars:
        return {}
    if len(scalars) == 1:
        return of_hint(scalars[0], definitions)
    if all(scalar in _SCALARS for scalar in scalars):
        return {"type": [_SCALARS[scalar] for scalar in scalars]}
    literals = [o for o in scalars if typing.get_origin(o) is Literal]
    plain = [_SCALARS[scalar] for scalar in scalars if scalar in _SCALARS]
    words = {"enum": [word for literal in literals for word in typing.get_args(literal)]}
    return {"if": {"type": plain}, "then": {}, "else": words} if plain else words


def _choose(shape: str, then: Schema, otherwise: Schema) -> Schema:
    if not otherwise:
        return then
    also = {"object": "a mapping", "array": "a list"}[shape]
    if "type" in otherwise or "enum" in otherwise:
        otherwise = {**otherwise, "x-or": also}
    return {"if": {"type": shape}, "then": then, "else": otherwise}


def _keyed(mappings: list[Any], options: tuple[Any, ...], definitions: Schema) -> Schema:
    """The schema of a mapping that is one of several dataclasses, told apart by a key that only one of them requires."""
    schemas = []
    for option in mappings:
        schema = of_hint(option, definitions)
        schemas.append(reference(option.__name__ + "Fields") if shapes.short_field(option) is not None else schema)
    schema = schemas[-1]
    for option, body in reversed(list(zip(mappings[:-1], schemas[:-1], strict=True))):
        key = shapes.discriminator(option, options)
        if key is None:
            raise TypeError(f"{option!r} needs a required key of its own to be told apart from {options!r}")
        schema = {"if": {"required": [key]}, "then": body, "else": schema}
    return schema


@cache
def pack_schema() -> Schema:
    """The schema of a whole pack, as `rules/rules.schema.json` has it."""
    names = {"type": "string", "minLength": 1}
    one_or_more = {"if": {"type": "array"}, "then": listing(names, ""), "else": {**names, "x-or": "a list of them"}}
    properties: Schema = {
        "version": {"const": 1, "description": "version of the rule language"},
        "pack": text("name of the pack"),
        "description": text("what the pack is for"),
        "extends": {
            **one_or_more,
            "description": "packs to build on: a shipped pack's name or a path relative to this file",
        },
        "override": table("rule id", {"type": "object"}, "rule id -> fields to change; null removes a field"),
        "disable": listing(names, "ids of rules to leave out"),
        "metrics": table("metric", metric_schema(), "metrics that the trainer logs beside the known ones"),
        "faults": table("fault", reference("fault"), "faults beside the shipped ones"),
        "first_tests": table("first test", reference("first_test"), "first tests beside the shipped ones"),
        "rules": listing(reference("rule"), "the rules"),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rltriage rule pack",
        **mapping("pack", properties, ("version",)),
        "$defs": {
            "rule": rule_schema(),
            "fault": fault_schema(),
            "first_test": first_test_schema(),
            **condition_schemas(),
        },
    }
