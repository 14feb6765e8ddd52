"""Checks marked nodes by a JSON Schema and says, for every mistake, where it is, what is wrong and what to write instead.

What is wrong is found by `jsonschema`; its messages speak of instances and schemas, so each error is worded anew from its
place: an unknown field at the key, a missing one at the mapping, a wrong value at the value.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rltriage.rules.model import Problem
from rltriage.rules.yamlmarks import Node

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

MAX_ALIKE = 20
NEAR = "did you mean"
"""How a hint begins that knows what was meant."""
MAX_ERRORS = 1000  # of one rule, or of a file without its rules: nobody reads more, and a large file could have 100,000
_DEFINITIONS = "#/$defs/"
_COUNTS = ("minProperties", "maxProperties", "minItems", "maxItems")

_TYPE_WORDS = {
    "object": "a mapping (`key: value`)",
    "array": "a list",
    "number": "a number",
    "integer": "a whole number",
    "string": "text",
    "boolean": "true or false",
}
_BOUND_WORDS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "more than",
    "exclusiveMaximum": "less than",
}


def validate(node: Node, schema: dict[str, Any], what: str) -> list[Problem]:
    """Every mistake in `node` and below; `what` names it in messages ("the pack")."""
    return Checker(schema.get("$defs", {})).check(node, schema, what)


def closest(word: str, known: Iterable[str]) -> str:
    """ "did you mean `x`?" for the known word that is nearest, or an empty text."""
    near = meant(word, known)
    return f"{NEAR} `{near}`?" if near else ""


def meant(word: str, known: Iterable[str]) -> str:
    """The known word that is nearest, if one is near."""
    import difflib

    folded = {name.lower().replace("-", "_"): name for name in known}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), list(folded), 1, 0.6)
    return folded[near[0]] if near else ""


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


class Checker:
    """Checks many nodes by schemas that share their definitions (`$defs`)."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        from jsonschema import Draft202012Validator, validators

        def follow(validator: Any, ref: str, instance: object, schema: object) -> Iterator[ValidationError]:
            # The library's own way asks a registry at each step, which costs as much again as all the rest.
            yield from validator.descend(instance, definitions[ref.removeprefix(_DEFINITIONS)])

        finite = {"number": lambda _, value: _is_number(value), "integer": lambda _, value: _is_whole(value)}
        types = Draft202012Validator.TYPE_CHECKER.redefine_many(finite)
        self._validator: Callable[[dict[str, Any]], Validator] = validators.extend(  # type: ignore[no-untyped-call]  # untyped there
            Draft202012Validator, {"$ref": follow}, type_checker=types
        )
        self._definitions = definitions

    def check(self, node: Node, schema: dict[str, Any], what: str) -> list[Problem]:
        """Every mistake in `node` and below; `what` names it in messages ("the rule `kl-high`")."""
        found = list(islice(self._validator(schema).iter_errors(node.plain()), MAX_ERRORS))
        if not found:
            return []
        counted = {tuple(error.absolute_path) for error in found if error.validator in _COUNTS}
        problems: list[Problem] = []
        told: set[tuple[Any, ...]] = set()
        for error in found:
            path = tuple(error.absolute_path)
            # Where the number of keys or elements is wrong, what those below are meant to be can only be guessed.
            if any(path[:end] in counted for end in range(len(path))) or (
                path in counted and error.validator not in _ALONE
            ):
                continue
            # One mistake a value: text where a number belongs is not also out of range. A mapping has several.
            kind = (path, error.validator if node.at(*path).kind == "mapping" else "")
            if kind not in told:
                told.add(kind)
                problems += _worded(error, self._place(error, node, schema, what))
        return problems

    def _place(self, error: ValidationError, node: Node, schema: dict[str, Any], what: str) -> _Place:
        """The node that an error is about, what messages call it, and its schema with what its references add."""
        place = _Place(node, self._resolve(schema), what)
        path, steps = deque(error.absolute_path), deque(error.absolute_schema_path)
        while len(steps) > 1:
            step = steps.popleft()
            if step in ("then", "else"):
                branch = self._resolve(place.schema[step])
                hints = {key: place.schema[key] for key in ("description",) if key in place.schema}
                place = place._replace(schema={**hints, **branch})
            elif step == "properties":
                key = str(steps.popleft())
                below = self._resolve(place.schema["properties"][key])
                place = _Place(place.node.at(path.popleft()), below, f"`{key}`")
            elif step == "additionalProperties":
                key, noun = str(path.popleft()), place.schema.get("x-noun", "field")
                below = self._resolve(place.schema[step])
                place = _Place(place.node.at(key), below, f"the {noun} `{key}`")
            elif step in ("items", "prefixItems"):
                index = int(path.popleft())
                below = self._resolve(place.schema[step] if step == "items" else place.schema[step][steps.popleft()])
                element = place.node.at(index)
                place = _Place(element, below, _element_name(element, below, index, place.what))
        return place

    def _resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Follow `$ref`; keywords beside it (a description) win."""
        while "$ref" in schema:
            target = self._definitions[schema["$ref"].removeprefix(_DEFINITIONS)]
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema


_ALONE = (*_COUNTS, "required")


class _Place(NamedTuple):
    """Where an error is: the node, the schema that it has to fit, and what messages call it."""

    node: Node
    schema: dict[str, Any]
    what: str


def _worded(error: ValidationError, place: _Place) -> list[Problem]:
    """The problem, or problems, that an error means."""
    node, schema, what = place
    keyword = str(error.validator)
    if keyword == "type":
        return [_wrong_type(*place)]
    if keyword == "required":
        return _missing(*place)
    if keyword == "additionalProperties":
        return _unknown(*place)
    if keyword == "const":
        return [node.problem("value", f"{what} must be {schema['const']}, not {shown(node)}", f"write {schema['const']}")]
    if keyword == "enum":
        hint = closest(str(node.value), schema["enum"]) or str(schema.get("description", ""))
        return [node.problem("value", f"{what} cannot be {shown(node)}: {choices(schema['enum'], 20)}", hint)]
    if keyword == "minLength":
        return [node.problem("value", f"{what} is empty", _described(schema))]
    if keyword == "pattern":
        better = re.sub("[^a-z0-9]+", "-", str(node.value).lower()).strip("-")
        hint = f"write it in lower case with dashes: {better}" if better else _described(schema)
        return [node.problem("value", f"{what} cannot be {node.value!r}", hint)]
    if keyword in _BOUND_WORDS:
        message = f"{what} must be {_BOUND_WORDS[keyword]} {schema[keyword]}, not {node.value}"
        return [node.problem("range", message, _described(schema))]
    if keyword in _COUNTS:
        return [_elements(*place) if node.kind == "list" else _entries(*place)]
    return [node.problem("value", f"{what} is not as it should be: {error.message[:200]}", _described(schema))]


def _wrong_type(node: Node, schema: dict[str, Any], what: str) -> Problem:
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    wanted = " or ".join([_TYPE_WORDS[kind] for kind in kinds] + ([schema["x-or"]] if "x-or" in schema else []))
    if node.kind == "scalar" and node.value is None:
        return node.problem("type", f"{what} has no value; it must be {wanted}", _described(schema))
    hint = _described(schema)
    if kinds == ["boolean"] and isinstance(node.value, str):
        hint = "write true or false, without quotes"
    elif kinds == ["array"]:
        hint = f"write [{node.value}]" if node.kind == "scalar" else "begin each element with `- `"
    elif kinds == ["string"] and node.kind == "scalar":
        hint = f'put it in quotes: "{node.value}"'
    elif isinstance(node.value, str) and _number_in(node.value):
        hint = f"write {node.value.strip()} without quotes"
    elif isinstance(node.value, str) and node.value.endswith("%") and _number_in(node.value[:-1]):
        hint = f"write {float(node.value[:-1]) / 100:g}"
    return node.problem("type", f"{what} must be {wanted}, not {shown(node)}", hint)


def _missing(node: Node, schema: dict[str, Any], what: str) -> list[Problem]:
    found = []
    # A misspelt key is one mistake: the hint at the key says which was meant.
    misspelt = {meant(name, schema.get("properties", {})) for name in _foreign(node, schema)[:MAX_ALIKE]}
    for key in schema["required"]:
        if key not in node.entries and key not in misspelt:
            hint = f"add `{key}: ...`: {_described(schema.get('properties', {}).get(key, {}))}".rstrip(": ")
            found.append(node.problem("missing", f"{what} lacks `{key}`", hint))
    return found


def _unknown(node: Node, schema: dict[str, Any], what: str) -> list[Problem]:
    known = schema.get("properties", {})
    noun = schema.get("x-noun", "field")

    def problem(key: Node) -> Problem:
        name = str(key.value)
        message = f"`{name}` is not a {noun}" if noun == "condition kind" else f"{what} has no field `{name}`"
        return key.problem("unknown", message, closest(name, known) or choices(known, 30))

    return capped([node.key(name) for name in _foreign(node, schema)], problem)


def _foreign(node: Node, schema: dict[str, Any]) -> list[str]:
    """The keys that the schema refuses."""
    if schema.get("additionalProperties") is not False:
        return []
    known, free = schema.get("properties", {}), schema.get("patternProperties", ())
    return [name for name in node.entries if name not in known and not any(re.search(each, name) for each in free)]


def _elements(node: Node, schema: dict[str, Any], what: str) -> Problem:
    """A list that is too short or too long."""
    size, low, high = len(node.elements), schema.get("minItems", 0), schema.get("maxItems", math.inf)
    wanted = f"{low}" if low == high else f"at least {low}" if size < low else f"at most {high}"
    message = f"{what} must have {wanted} element{'s' if wanted[-1] != '1' else ''}, not {size}"
    return node.problem("size", message, _described(schema))


def _entries(node: Node, schema: dict[str, Any], what: str) -> Problem:
    """A mapping that is empty, or has several keys where one belongs."""
    noun, known = schema.get("x-noun", "field"), schema.get("properties", {})
    if not node.entries:
        return node.problem("size", f"{what} is empty: it needs a {noun}", choices(known, 20) if known else "")
    first, second = list(node.entries)[:2]
    message = f"{what} must have exactly one {noun}, not both `{first}` and `{second}`"
    hint = "indent the parameters below their kind" if second not in known else ""
    return node.key(second).problem("size", message, hint or "combine them with `all: [...]` or `any: [...]`")


def _element_name(element: Node, schema: dict[str, Any], index: int, what: str) -> str:
    """What messages call an element of a list: a rule by its id, anything else by its place."""
    identity, noun = element.get("id"), schema.get("x-noun")
    if noun and identity is not None and isinstance(identity.value, str):
        return f"the {noun} `{identity.value}`"
    return f"{noun} {index + 1} of {what}" if noun else f"element {index + 1} of {what}"


def _is_number(value: object) -> bool:
    """A finite number: comparing with NaN or infinity would make a rule that silently never fires."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: object) -> bool:
    return _is_number(value) and float(value).is_integer()  # type: ignore[arg-type]


def _number_in(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _described(schema: dict[str, Any]) -> str:
    """The first line of a schema's description, with its choices."""
    first = str(schema.get("description", "")).split("\n", 1)[0]
    options = " | ".join(str(option) for option in schema.get("enum", ()))
    return f"{options} ({first})" if options and first else options or first
