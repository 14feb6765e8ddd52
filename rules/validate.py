"""Checks marked nodes by a JSON Schema and says, for every mistake, where it is, what is wrong and what to write instead.

It understands the keywords that `rules/schema.py` writes; tests compare it with the `jsonschema` package on random packs.
A walk of our own has two reasons: it reports at the node itself (an unknown key at the key, a missing one at the mapping,
a wrong value at the value), and importing and running `jsonschema` costs more time than all the rest of loading a pack.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rltriage.rules.model import Problem
from rltriage.rules.yamlmarks import Node

MAX_ALIKE = 20

_TYPE_WORDS = {
    "object": "a mapping (`key: value`)",
    "array": "a list",
    "number": "a number",
    "integer": "a whole number",
    "string": "text",
    "boolean": "true or false",
}


def validate(node: Node, schema: dict[str, Any], what: str, definitions: dict[str, Any] | None = None) -> list[Problem]:
    """Every mistake in `node` and below; `what` names it in messages ("the pack")."""
    return _Validator(definitions if definitions is not None else schema.get("$defs", {})).check(node, schema, what)


def closest(word: str, known: Iterable[str]) -> str:
    """ "did you mean `x`?" for the known word that is nearest, or an empty text."""
    import difflib

    folded = {name.lower().replace("-", "_"): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), list(folded), 1, 0.6)
    return f"did you mean `{folded[near[0]]}`?" if near else ""


def capped(wrong: Sequence[Node], problem: Callable[[Node], Problem]) -> list[Problem]:
    """A problem for each node, or for the first ones only: near misses take time, and nobody reads thousands."""
    found = [problem(node) for node in wrong[:MAX_ALIKE]]
    if len(wrong) > MAX_ALIKE:
        found.append(wrong[MAX_ALIKE].problem("unknown", f"{len(wrong) - MAX_ALIKE} more names here are unknown too"))
    return found


def choices(known: Iterable[str], limit: int = 12) -> str:
    """ "it is one of a, b, c", cut after `limit` words."""
    words = [str(word) for word in known]
    return "it is one of " + ", ".join(words[:limit]) + (", ..." if len(words) > limit else "")


def shown(node: Node) -> str:
    """What stands there, in words: the text 'abc', the number 3, a list, nothing."""
    if node.kind != "scalar":
        return "a list" if node.kind == "list" else "a mapping"
    value = node.value
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:40] + '...'!r}"
    return f"the number {value}" if math.isfinite(value) else f".{value}"


class _Validator:
    def __init__(self, definitions: dict[str, Any]) -> None:
        self.definitions = definitions
        self.types: dict[str, Callable[[Node], bool]] = {
            "object": lambda node: node.kind == "mapping",
            "array": lambda node: node.kind == "list",
            "string": lambda node: node.kind == "scalar" and isinstance(node.value, str),
            "boolean": lambda node: isinstance(node.value, bool),
            "number": lambda node: _is_number(node.value),
            "integer": lambda node: _is_number(node.value) and float(node.value).is_integer(),  # type: ignore[arg-type]
        }

    def check(self, node: Node, schema: dict[str, Any], what: str) -> list[Problem]:
        schema = self.resolve(schema)
        if "if" in schema:
            branch = "then" if self.matches(node, schema["if"]) else "else"
            return self.check(node, {**_hints(schema), **self.resolve(schema[branch])}, what)
        wrong = self.check_value(node, schema, what)
        if wrong is not None:
            return [wrong]
        if node.kind == "mapping":
            return self.check_mapping(node, schema, what)
        return self.check_list(node, schema, what) if node.kind == "list" else []

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Follow `$ref`; keywords beside it (a description) win."""
        while "$ref" in schema:
            target = self.definitions[schema["$ref"].removeprefix("#/$defs/")]
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema

    def matches(self, node: Node, test: dict[str, Any]) -> bool:
        """Whether a node fits the `if` of a choice: a type, or a key that it has."""
        if "type" in test:
            kinds = test["type"] if isinstance(test["type"], list) else [test["type"]]
            return any(self.types[kind](node) for kind in kinds)
        return node.kind != "mapping" or all(key in node.entries for key in test["required"])

    def check_value(self, node: Node, schema: dict[str, Any], what: str) -> Problem | None:
        """The first thing wrong with the node itself: its type, its choice, its range."""
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if kinds and not any(self.types[kind](node) for kind in kinds):
            return self.wrong_type(node, schema, kinds, what)
        if "const" in schema and (node.kind != "scalar" or node.value != schema["const"] or isinstance(node.value, bool)):
            return node.problem("value", f"{what} must be {schema['const']}, not {shown(node)}", f"write {schema['const']}")
        if "enum" in schema and (node.kind != "scalar" or node.value not in schema["enum"] or isinstance(node.value, bool)):
            hint = closest(str(node.value), schema["enum"]) or str(schema.get("description", ""))
            return node.problem("value", f"{what} cannot be {shown(node)}: {choices(schema['enum'], 20)}", hint)
        if isinstance(node.value, str):
            return self.check_text(node, node.value, schema, what)
        return self.check_range(node, schema, what)

    def wrong_type(self, node: Node, schema: dict[str, Any], kinds: list[str], what: str) -> Problem:
        wanted = " or ".join([_TYPE_WORDS[kind] for kind in kinds] + ([schema["x-or"]] if "x-or" in schema else []))
        if node.kind == "scalar" and node.value is None:
            return node.problem("type", f"{what} has no value; it must be {wanted}", _described(schema))
        hint = _described(schema)
        if kinds == ["boolean"] and isinstance(node.value, str):
            hint = "write true or false, without quotes"
        elif "string" in kinds and node.kind == "scalar":
            hint = f'put it in quotes: "{node.value}"'
        elif isinstance(node.value, str) and _number_in(node.value):
            hint = f"write {node.value.strip()} without quotes"
        elif isinstance(node.value, str) and node.value.endswith("%") and _number_in(node.value[:-1]):
            hint = f"write {float(node.value[:-1]) / 100:g}"
        return node.problem("type", f"{what} must be {wanted}, not {shown(node)}", hint)

    def check_text(self, node: Node, value: str, schema: dict[str, Any], what: str) -> Problem | None:
        if len(value) < schema.get("minLength", 0):
            return node.problem("value", f"{what} is empty", _described(schema))
        if "pattern" in schema and not re.search(schema["pattern"], value):
            better = re.sub("[^a-z0-9]+", "-", value.lower()).strip("-")
            hint = f"write it in lower case with dashes: {better}" if better else _described(schema)
            return node.problem("value", f"{what} cannot be {value!r}", hint)
        return None

    def check_range(self, node: Node, schema: dict[str, Any], what: str) -> Problem | None:
        if not _is_number(node.value):
            return None
        value = float(node.value)  # type: ignore[arg-type]
        bounds: tuple[tuple[str, str, Callable[[float], bool]], ...] = (
            ("minimum", "at least", lambda limit: value >= limit),
            ("maximum", "at most", lambda limit: value <= limit),
            ("exclusiveMinimum", "more than", lambda limit: value > limit),
            ("exclusiveMaximum", "less than", lambda limit: value < limit),
        )
        for keyword, words, holds in bounds:
            if keyword in schema and not holds(schema[keyword]):
                message = f"{what} must be {words} {schema[keyword]}, not {node.value}"
                return node.problem("range", message, _described(schema))
        return None

    def check_mapping(self, node: Node, schema: dict[str, Any], what: str) -> list[Problem]:
        found: list[Problem] = []
        noun = schema.get("x-noun", "field")
        properties = schema.get("properties", {})
        for key in schema.get("required", ()):
            if key not in node.entries:
                hint = f"add `{key}: ...`: {_described(self.resolve(properties.get(key, {})))}".rstrip(": ")
                found.append(node.problem("missing", f"{what} lacks `{key}`", hint))
        count = _count(node, schema, noun, what)
        if count is not None:
            return [*found, count]  # what the keys below are meant to be can only be guessed
        free = schema.get("additionalProperties", True)
        unknown: list[Node] = []
        for key, below in node.entries.items():
            if key in properties:
                found += self.check(below, properties[key], f"`{key}`")
            elif any(re.search(pattern, key) for pattern in schema.get("patternProperties", ())):
                continue
            elif free is False:
                unknown.append(node.key(key))
            elif free is not True:
                found += self.check(below, free, f"the {noun} `{key}`")
        return found + capped(unknown, lambda key: _unknown(key, noun, what, properties))

    def check_list(self, node: Node, schema: dict[str, Any], what: str) -> list[Problem]:
        size, low, high = len(node.elements), schema.get("minItems", 0), schema.get("maxItems", math.inf)
        if not low <= size <= high:
            wanted = f"{low}" if low == high else f"at least {low}" if size < low else f"at most {high}"
            message = f"{what} must have {wanted} element{'s' if wanted[-1] != '1' else ''}, not {size}"
            return [node.problem("size", message, _described(schema))]
        found: list[Problem] = []
        places = schema.get("prefixItems", [])
        for index, element in enumerate(node.elements):
            rule = places[index] if index < len(places) else schema.get("items", {})
            if rule is not False:
                found += self.check(element, rule, self.name_of(element, rule, index, what))
        return found

    def name_of(self, element: Node, rule: dict[str, Any], index: int, what: str) -> str:
        """What messages call an element of a list: a rule by its id, anything else by its place."""
        identity = element.get("id")
        noun = self.resolve(rule).get("x-noun")
        if noun and identity is not None and isinstance(identity.value, str):
            return f"the {noun} `{identity.value}`"
        return f"{noun} {index + 1} of {what}" if noun else f"element {index + 1} of {what}"


def _is_number(value: object) -> bool:
    """A finite number: comparing with NaN or infinity would make a rule that silently never fires."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number_in(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _hints(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in ("description",) if key in schema}


def _described(schema: dict[str, Any]) -> str:
    """The first line of a schema's description, with its choices."""
    first = str(schema.get("description", "")).split("\n", 1)[0]
    options = " | ".join(str(option) for option in schema.get("enum", ()))
    return f"{options} ({first})" if options and first else options or first


def _count(node: Node, schema: dict[str, Any], noun: str, what: str) -> Problem | None:
    if len(node.entries) < schema.get("minProperties", 0):
        known = choices(schema["properties"], 20) if "properties" in schema else ""
        return node.problem("size", f"{what} is empty: it needs a {noun}", known)
    if len(node.entries) > schema.get("maxProperties", math.inf):
        first, second = list(node.entries)[:2]
        message = f"{what} must have exactly one {noun}, not both `{first}` and `{second}`"
        hint = "indent the parameters below their kind" if second not in schema.get("properties", {}) else ""
        return node.key(second).problem("size", message, hint or "combine them with `all: [...]` or `any: [...]`")
    return None


def _unknown(key: Node, noun: str, what: str, known: dict[str, Any]) -> Problem:
    name = str(key.value)
    message = f"`{name}` is not a {noun}" if noun == "condition kind" else f"{what} has no field `{name}`"
    return key.problem("unknown", message, closest(name, known) or choices(known, 30))
