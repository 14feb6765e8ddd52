"""The shipped pack as an example of the language: it loads cleanly, round-trips, and breaks with located errors."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from rltriage.rules import check_rules, describe_rule, load_catalogue, load_rules
from rltriage.rules.errors import RulePackError
from rltriage.rules.loader import SHIPPED, dump_pack
from rltriage.rules.model import RulePack
from rltriage.rules.yamlmarks import read


@pytest.fixture(scope="module")
def triage() -> RulePack:
    return load_rules("triage")


def test_the_shipped_pack_has_neither_errors_nor_warnings() -> None:
    """Faults, first tests, metrics and facts of every shipped rule are in the catalogues."""
    assert check_rules(["triage"]) == []


def test_the_shipped_pack_survives_a_round_trip(triage: RulePack, folder) -> None:
    """Every kind and operand that it uses is written back as it was read."""
    again = load_rules(folder.write(json.dumps(dump_pack(triage))))
    assert again.rules == triage.rules


def test_every_shipped_rule_can_be_explained(triage: RulePack) -> None:
    """The description names the suspects with their titles and the first test with its instructions."""
    catalogue = load_catalogue()
    for rule in triage.rules:
        words = " ".join(describe_rule(rule, catalogue).split())
        assert catalogue.first_tests[rule.first_test].title in words
        assert all(fault in words and catalogue.faults[fault].title in words for fault in rule.suspects)


def places_in(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of plain data."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in list(keys) for place in [(value, key), *places_in(value[key])]]


JUNK = (
    None,
    True,
    0,
    -1,
    1e9,
    "",
    "a",
    "reward",
    [],
    {},
    [1],
    {"metric": "reward"},
    {"threshold": {"metric": "x", "above": 1}},
)


def test_damaged_shipped_rules_raise_nothing_but_the_pack_error(folder) -> None:
    """Whatever part of whatever rule is replaced or renamed, the outcome is a pack or located problems."""
    rng = random.Random(0)
    node, _ = read(SHIPPED / "triage.yaml")
    assert node is not None
    refused = 0
    for _ in range(120):
        rules = json.loads(json.dumps(rng.sample(node.plain()["rules"], 3)))
        for _ in range(rng.randint(1, 3)):
            container, key = rng.choice(places_in(rules))
            if rng.random() < 0.3 and isinstance(container, dict):
                container[rng.choice(["metric", "above", "window", "for"])] = container.pop(key)
            else:
                container[key] = rng.choice(JUNK)
        try:
            load_rules(folder.write(json.dumps({"version": 1, "rules": rules})))
        except RulePackError as error:
            refused += 1
            assert all(problem.mark.line == 1 and problem.message for problem in error.problems)
    assert refused > 60
