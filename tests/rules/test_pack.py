"""The shipped pack loads without a complaint and its rule tests pass; each rule has a firing and a silent one."""

from functools import cache
from pathlib import Path

import pytest

from rltriage.engine.ruletests import run_rule_tests
from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.loader import SHIPPED, check_rules, load_rules

TESTS = SHIPPED / "triage.tests.yaml"
PACK = load_rules("triage")


@cache
def results():
    """Every rule test of the shipped pack, run once."""
    return run_rule_tests(TESTS, PACK, load_catalogue())


def test_the_pack_has_no_problem_and_no_warning():
    """Ids, metrics, facts, faults, tests and summaries all exist."""
    assert check_rules([SHIPPED / "triage.yaml"]) == []


@pytest.mark.parametrize("result", results(), ids=lambda result: result.name)
def test_rule_test(result):
    """A rule test of the shipped pack passes."""
    assert result.passed, result.message


@pytest.mark.parametrize("kind", ["firing", "silent"])
def test_every_rule_is_tested(kind):
    """No rule is without a case that fires and one that stays silent."""
    tested = {rule for result in results() if result.kind == kind for rule in result.rules}
    assert [rule.id for rule in PACK.rules if rule.id not in tested] == []


def test_every_rule_says_why():
    """A rule without a reason and a source of its threshold cannot be argued with."""
    assert [rule.id for rule in PACK.rules if len(rule.why) < 20] == []


def test_every_fault_of_the_catalogue_that_rows_can_reveal_is_a_suspect():
    """Every class has its rule, also those without a recorded case."""
    suspects = {fault for rule in PACK.rules for fault in rule.suspects}
    assert set(load_catalogue().faults) - suspects == set()


def test_an_alert_names_the_test_that_its_strongest_suspect_can_be_told_by():
    """No rule's suspects add up to more than certainty, and the strongest comes first."""
    for rule in PACK.rules:
        weights = list(rule.suspects.values())
        assert sum(weights) <= 1 + 1e-9 and weights == sorted(weights, reverse=True), rule.id


def test_unknown_names_raise_only_nonfinite(tmp_path):
    """Rows whose metrics have names that no rule knows can be judged by NaN alone."""
    from rltriage.engine.monitor import Monitor
    from rltriage.engine.rows import Row, Run
    from rltriage.engine.triage import Triage

    monitor = Monitor(Run("x"), PACK, load_catalogue(), triage=Triage(load_catalogue(), PACK))
    rows = [
        Row(i, {"unknown/a": 0.0, "unknown/b": 1e9 * (i % 2), "unknown/c": float("nan") if i == 30 else 1.0})
        for i in range(40)
    ]
    fired = {alert.rule for row in rows for alert in monitor.observe(row).alerts}
    assert fired == {"not-finite"}


def test_the_tests_lie_beside_the_pack():
    """`rules test` finds them by name."""
    assert Path(TESTS).is_file()
