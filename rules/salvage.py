"""What is left to cross-check in a rule with mistakes, so that all of them are told at once and not in rounds."""

from __future__ import annotations

import dataclasses
from functools import cache

from rltriage.rules import schema
from rltriage.rules.validate import meant
from rltriage.rules.yamlmarks import Node, parse

Places = set[tuple[str, int, int]]
_READS = ("when", "unless", "clear_when", "requires")
_STAND_IN = '{id: stand-in, summary: "", group: outcome, severity: info, suspects: {}, first_test: ""}'


def salvaged(rule: Node, broken: Places) -> Node | None:
    """The rule without its broken parts, and with harmless ones in place of those that it must have.

    None where its condition is broken: then nothing is known about what it reads. The summary is kept only where everything
    that the rule reads is whole, for otherwise it may name something rightly.
    """
    known = schema.rule_schema()["properties"]
    bad = {name for name, below in rule.entries.items() if name not in known or touched(below, broken)}
    bad |= {name for name, key in rule.keys.items() if (key.source.path, key.line, key.column) in broken}
    misread = bad | {meant(name, known) for name in bad - known.keys()}
    if "when" in misread or "when" not in rule.entries:
        return None
    if not misread.isdisjoint(_READS):
        bad.add("summary")
    stand_in = _stand_in()
    entries = {name: below for name, below in rule.entries.items() if name not in bad}
    keys = {name: key for name, key in rule.keys.items() if name not in bad}
    return dataclasses.replace(rule, entries={**stand_in.entries, **entries}, keys={**stand_in.keys, **keys})


def touched(node: Node, places: Places) -> bool:
    """Whether one of these places is in a node: only what fits the schema can be built."""
    return bool(places) and any((below.source.path, below.line, below.column) in places for below in node.walk())


@cache
def _stand_in() -> Node:
    node, _ = parse(_STAND_IN, "")
    assert node is not None
    return node
