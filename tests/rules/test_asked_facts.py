"""Which config facts the shipped rules still ask for, given what a log has."""

from __future__ import annotations

from rltriage.rules.frameworks import asked_facts
from rltriage.rules.loader import load_rules

RULES = load_rules("triage").rules


def test_a_fact_is_asked_for_where_its_rule_has_its_metrics() -> None:
    """With a KL to the reference, a rule asks how strong it is; with a clip share, whether it can be 0."""
    asked = asked_facts(RULES, ["kl_ref", "clip_frac", "reward"], {})
    assert "kl-ref-exactly-zero" in asked["kl_coef"]
    assert asked["updates_per_batch"]
    assert asked_facts(RULES, ["my_score"], {}) == {}


def test_known_facts_are_not_asked_for() -> None:
    """Neither a known one, nor another one of a rule that the known one rules out."""
    asked = asked_facts(RULES, ["kl_ref"], {"kl_coef": 0})
    assert "kl_coef" not in asked
    assert "kl-ref-exactly-zero" not in {rule for rules in asked.values() for rule in rules}
