"""Reads a condition's dataclass: which YAML keys it has, of which type, and how YAML turns into it and back.

The one place that knows how Python's type hints correspond to YAML. Understood: `float`, `int`, `str`, `bool`, `Literal`,
`X | None`, `tuple[X, ...]`, `Mapping[str, X]`, nested frozen dataclasses, `Condition`, and unions of those that differ in
their YAML shape (a number or a mapping; two mappings that require different keys). A kind whose only field is a condition
or a list of conditions (`not`, `all`, `any`) is written without the field's name, and so is the `value` of a nested
dataclass that requires nothing.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, Union

from rltriage.rules.conditions import KINDS, base
from rltriage.rules.conditions.base import Condition

if typing.TYPE_CHECKING:
    from rltriage.rules.model import Problem
    from rltriage.rules.yamlmarks import Node


class Field(NamedTuple):
    """A YAML key of a dataclass. `name` is the Python attribute, `key` what users write."""

    name: str
    key: str
    hint: Any
    default: Any
    metadata: Mapping[str, Any]

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING


def fields(cls: Any) -> tuple[Field, ...]:
    """The YAML keys of a dataclass in the order in which it declares them."""
    return _fields(cls)


@cache
def _fields(cls: type[Any]) -> tuple[Field, ...]:
    hints = typing.get_type_hints(cls, localns={**vars(base), "Mapping": Mapping, "Condition": Condition})
    return tuple(
        Field(f.name, f.metadata.get("yaml", f.name), hints[f.name], _default(f), f.metadata)
        for f in dataclasses.fields(cls)
        if f.init
    )


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def inline_field(cls: Any) -> Field | None:
    """The field of a kind that is written without its name, if it has just the one and that holds conditions."""
    only = fields(cls)
    if len(only) == 1 and only[0].required and (only[0].hint is Condition or element_of(only[0].hint) is Condition):
        return only[0]
    return None


def short_field(cls: Any) -> Field | None:
    """The `value` field of a dataclass whose keys are all optional: `above: 3` is short for `above: {value: 3}`."""
    if not dataclasses.is_dataclass(cls) or any(f.required for f in fields(cls)):
        return None
    return next((f for f in fields(cls) if f.name == "value"), None)


def members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union without None; the hint itself if it is none."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        flat: list[Any] = []
        for member in typing.get_args(hint):
            flat += [m for m in members(member) if m is not type(None)]
        return tuple(flat)
    return (hint,)


def element_of(hint: Any) -> Any:
    """X of `tuple[X, ...]`, else None."""
    arguments = typing.get_args(hint)
    return arguments[0] if typing.get_origin(hint) is tuple and len(arguments) == 2 and arguments[1] is ... else None


def value_of(hint: Any) -> Any:
    """X of `Mapping[str, X]`, else None."""
    origin = typing.get_origin(hint)
    return typing.get_args(hint)[1] if isinstance(origin, type) and issubclass(origin, Mapping) else None


def build_condition(node: Node, problems: list[Problem]) -> Condition | None:
    """The condition that a validated node describes; None, with a Problem, if its kind refuses the values."""
    kind, below = next((k, n) for k, n in node.entries.items() if not k.startswith("x-"))
    cls = KINDS[kind]
    inline = inline_field(cls)
    if inline is None:
        return typing.cast("Condition | None", _build_dataclass(cls, below, problems, node.key(kind)))
    return typing.cast(
        "Condition | None", _construct(cls, {inline.name: build(inline.hint, below, problems)}, below, problems)
    )


def build(hint: Any, node: Node, problems: list[Problem]) -> Any:
    """The Python value of a node that has passed the schema of `hint`."""
    hint = _alternative(hint, node)
    if hint is Condition:
        return build_condition(node, problems)
    if dataclasses.is_dataclass(hint):
        return _build_dataclass(hint, node, problems, node)
    if element_of(hint) is not None:
        return tuple(build(element_of(hint), element, problems) for element in node.elements)
    if value_of(hint) is not None:
        return {key: build(value_of(hint), below, problems) for key, below in node.entries.items()}
    if hint is float or hint is int:
        return hint(typing.cast(float, node.value))
    return node.plain()


def _alternative(hint: Any, node: Node) -> Any:
    """The member of a union that a validated node is written as."""
    options = members(hint)
    if len(options) == 1:
        return options[0]
    for option in options:
        if dataclasses.is_dataclass(option) or option is Condition or value_of(option) is not None:
            if node.kind == "mapping" and discriminator(option, options) in {None, *node.entries}:
                return option
        elif element_of(option) is not None:
            if node.kind == "list":
                return option
        elif typing.get_origin(option) is Literal:
            if node.value in typing.get_args(option):
                return option
        elif node.kind == "scalar" and _is_scalar(option, node.value):
            return option
    return next((option for option in options if node.kind == "scalar" and short_field(option)), options[0])


def _is_scalar(option: Any, value: Any) -> bool:
    if option is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(option, type) and isinstance(value, option) and (option is bool or not isinstance(value, bool))


def discriminator(option: Any, options: tuple[Any, ...]) -> str | None:
    """The required key that tells a dataclass from the others of its union; None if there is no other."""
    others = [o for o in options if dataclasses.is_dataclass(o) and o is not option]
    if not dataclasses.is_dataclass(option) or not others:
        return None
    taken = {f.key for other in others for f in fields(other) if f.required}
    return next((f.key for f in fields(option) if f.required and f.key not in taken), None)


def _build_dataclass(cls: Any, node: Node, problems: list[Problem], place: Node) -> Any:
    values = {}
    short = short_field(cls)
    if node.kind == "scalar" and short is not None:
        values[short.name] = build(short.hint, node, problems)
    for item in fields(cls):
        below = node.get(item.key)
        if below is not None:
            values[item.name] = build(item.hint, below, problems)
    return _construct(cls, values, node if node.kind == "mapping" else place, problems)


def _construct(cls: Any, values: dict[str, Any], node: Node, problems: list[Problem]) -> Any:
    """Make the object and ask it what its fields cannot say one by one ("exactly one of above and below")."""
    if any(value is None or (isinstance(value, tuple) and None in value) for value in values.values()):
        return None  # something below was refused, which has been reported
    try:
        made = cls(**values)
    except (ValueError, TypeError) as error:
        problems.append(node.problem("value", str(error)))
        return None
    complaints = made.problems() if hasattr(made, "problems") else []
    for complaint in complaints:
        name, message, hint = ("", complaint, "") if isinstance(complaint, str) else (*complaint, "")[:3]
        key = next((f.key for f in fields(cls) if f.name == name), name)
        problems.append((node.get(key) or node).problem("value", message, hint))
    return None if complaints else made


def plain_condition(condition: Any) -> dict[str, Any]:
    """The condition as YAML data, without the fields that have their default."""
    inline = inline_field(type(condition))
    return {condition.kind: plain(getattr(condition, inline.name)) if inline else _plain_fields(condition)}


def plain(value: Any) -> Any:
    """The YAML data of any value of a condition."""
    if isinstance(getattr(type(value), "kind", None), str):
        return plain_condition(value)
    if dataclasses.is_dataclass(value):
        written, short = _plain_fields(value), short_field(type(value))
        return written[short.key] if short is not None and set(written) == {short.key} else written
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def _plain_fields(value: Any) -> dict[str, Any]:
    pairs = ((f, getattr(value, f.name)) for f in fields(type(value)))
    return {f.key: plain(item) for f, item in pairs if f.required or item != f.default}
