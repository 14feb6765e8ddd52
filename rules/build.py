"""Turns validated nodes into rules, and rules back into plain data."""

from __future__ import annotations

import dataclasses
from typing import Any

from rltriage.rules import catalogue as entries
from rltriage.rules.model import Catalogue, Problem, Rule
from rltriage.rules.shapes import build_condition, plain_condition
from rltriage.rules.validate import closest
from rltriage.rules.yamlmarks import Node

_CONDITIONS = ("when", "unless", "clear_when")
_KEYS = {"hold": "for"}  # `for` is a word of Python
_NOT_WRITTEN = ("mark", "pack")


def build_rule(node: Node, pack: str, problems: list[Problem]) -> Rule | None:
    """The rule that a validated node describes; None, with problems, if a condition refuses its values."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Rule):
        below = node.get(_KEYS.get(field.name, field.name))
        if below is None or field.name in _NOT_WRITTEN:
            continue
        values[field.name] = build_condition(below, problems) if field.name in _CONDITIONS else below.plain()
    if any(values.get(name, 0) is None for name in _CONDITIONS):
        return None
    for name in ("hold", "keep_firing_for", "after"):
        if name in values:
            values[name] = int(values[name])
    values["suspects"] = dict(sorted(values["suspects"].items(), key=lambda pair: -pair[1]))
    values["references"] = tuple(values.get("references", ()))
    values["labels"] = {key: _label(value) for key, value in values.get("labels", {}).items()}
    return Rule(**values, mark=node.mark, pack=pack)


def _label(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain_rule(rule: Rule) -> dict[str, Any]:
    """The rule as YAML data, without the fields that have their default; loading it gives an equal rule."""
    written: dict[str, Any] = {}
    for field in dataclasses.fields(Rule):
        value = getattr(rule, field.name)
        if field.name in _NOT_WRITTEN or (field.name != "suspects" and value in (None, "", {}, (), _default(field))):
            continue
        if field.name in _CONDITIONS:
            value = plain_condition(value)
        elif field.name == "requires":
            value = {fact: dict(tests) for fact, tests in value.items()}
        elif field.name in ("suspects", "labels"):
            value = dict(value)
        written[_KEYS.get(field.name, field.name)] = list(value) if isinstance(value, tuple) else value
    return written


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default


def merge_catalogue(catalogue: Catalogue, packs: list[Node], problems: list[Problem]) -> Catalogue:
    """The shipped catalogue with the faults, first tests and metrics that packs declare themselves."""
    parts: dict[str, dict[str, Any]] = {
        "faults": dict(catalogue.faults),
        "first_tests": dict(catalogue.first_tests),
        "metrics": dict(catalogue.metrics),
    }
    broken = {(p.mark.path, p.mark.line) for p in problems}
    for pack in packs:
        for section, known in parts.items():
            node = pack.get(section)
            if node is None or any((below.source.path, below.line) in broken for below in node.walk()):
                continue
            for name, entry in entries.ENTRY[section](node).items():
                if section != "metrics" and name in known:
                    noun = section[:-1].replace("_", " ")
                    problems.append(node.key(name).problem("duplicate", f"the {noun} `{name}` exists already", "rename it"))
                else:
                    known[name] = entry
    merged = Catalogue(**parts)
    for pack in packs:
        problems += _entry_problems(pack, merged)
    return merged


def _entry_problems(pack: Node, merged: Catalogue) -> list[Problem]:
    """The ids that a pack's own faults and first tests refer to must exist."""
    found = []
    for fault in pack.at("faults").entries.values() if pack.get("faults") else ():
        test = fault.get("first_test")
        if test is not None and test.value not in merged.first_tests:
            hint = closest(str(test.value), merged.first_tests)
            found.append(test.problem("unknown", f"there is no first test `{test.value}`", hint))
    for entry in pack.at("first_tests").entries.values() if pack.get("first_tests") else ():
        for outcome in entry.at("decides").entries.values() if entry.get("decides") else ():
            if outcome.value not in merged.faults:
                hint = closest(str(outcome.value), merged.faults)
                found.append(outcome.problem("unknown", f"there is no fault `{outcome.value}`", hint))
    return found
