"""Lays an override over a rule: mappings merge key by key, everything else is replaced, null removes a key."""

from __future__ import annotations

import dataclasses

from rltriage.rules.yamlmarks import Node

_CONDITIONS = frozenset({"when", "unless", "clear_when", "not"})
_SOURCES = frozenset({"metric", "config", "value"})


def overlay(base: Node, changes: Node, key: str = "") -> Node:
    """`base` with `changes` laid over it, as a new node that keeps the marks of whatever each part came from."""
    if base.kind != "mapping" or changes.kind != "mapping":
        return changes
    if key in _CONDITIONS and not base.entries.keys() & changes.entries.keys():
        return changes  # another kind of condition: its parameters have nothing in common
    merged = dataclasses.replace(base, entries=dict(base.entries), keys=dict(base.keys))
    for name in _sources_left_behind(base, changes):
        del merged.entries[name], merged.keys[name]
    for name, change in changes.entries.items():
        below = merged.entries.pop(name, None)
        if change.kind == "scalar" and change.value is None:
            merged.keys.pop(name, None)
            continue
        merged.entries[name] = change if below is None else overlay(below, change, name)
        merged.keys[name] = changes.keys[name]
    return merged


def _sources_left_behind(base: Node, changes: Node) -> list[str]:
    """An operand has one source: `above: {config: lr}` over `above: {metric: x}` leaves no metric behind."""
    if not _SOURCES & changes.entries.keys() or not base.entries.keys() & _SOURCES:
        return []
    return [name for name in base.entries if name in _SOURCES and name not in changes.entries]
