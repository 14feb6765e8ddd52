"""Config facts: how `--config` is read and what `requires` says about known and unknown facts."""

from __future__ import annotations

from typing import Any

import pytest

from rltriage.rules.errors import RltriageError
from rltriage.rules.facts import by_argument, judge, parse_fact


@pytest.mark.parametrize(
    ("tests", "value", "holds"),
    [
        ({"above": 0}, 0.1, True),
        ({"above": 0}, 0, False),
        ({"above": 0}, None, None),
        ({"above": 0}, "many", None),
        ({"above": 0}, True, None),
        ({"below": 3, "above": 1}, 2, True),
        ({"below": 3, "above": 1}, 3, False),
        ({"equals": 0}, 0.0, True),
        ({"equals": 1}, True, False),
        ({"equals": "token_mean"}, "Token-Mean", True),
        ({"not": "bf16"}, "fp32", True),
        ({"not": "bf16"}, "bf16", False),
        ({"not": "bf16"}, None, None),
        ({"in": [0, -1]}, -1, True),
        ({"in": ["a", "b"]}, "c", False),
        ({"known": True}, 5, True),
        ({"known": True}, None, False),
        ({"known": False}, None, True),
        ({"known": True, "above": 3}, 2, False),
    ],
)
def test_a_fact_is_judged_in_kleene_logic(tests: dict[str, Any], value: Any, holds: bool | None) -> None:
    """Every operator answers true, false or unknown; an unknown fact is never false unless it must be known."""
    assert judge({"f": tests}, {"f": value}).holds is holds
    if value is None:
        assert judge({"f": tests}, {}).holds is holds


def test_one_violation_outweighs_what_is_unknown() -> None:
    """A rule is off as soon as one fact speaks against it."""
    judgement = judge({"a": {"above": 0}, "b": {"above": 0}}, {"b": 0})
    assert judgement == (False, ("a",), ("b",), "")


def test_the_question_says_what_would_decide() -> None:
    """An unknown fact comes with the one question and the flag that answers it."""
    judgement = judge({"updates_per_batch": {"above": 1}, "kl_coef": {"above": 0}}, {"kl_coef": 0.1})
    assert judgement.unknown == ("updates_per_batch",)
    assert judgement.question == "a fault only if updates_per_batch > 1: pass --config updates_per_batch=..."
    assert by_argument(("a", "b")) == 'pass config={"a": ..., "b": ...} to rltriage.watch or its hook'
    assert judge({}, {}) == (True, (), (), "")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("lr=1e-6", ("lr", 1e-6)),
        ("has_critic=true", ("has_critic", True)),
        ("has_critic=no", ("has_critic", "no")),
        ("loss_mode=token_mean", ("loss_mode", "token_mean")),
        ("top_k=-1", ("top_k", -1)),
        ("a = b=c", ("a", "b=c")),
        ("a=", ("a", None)),
        ("reward_weights={format: 0.3, accuracy: 0.7}", ("reward_weights", {"format": 0.3, "accuracy": 0.7})),
        ("a=[1, 2]", ("a", [1, 2])),
        ("a='1'", ("a", "1")),
    ],
)
def test_a_value_is_read_as_yaml_1_2(text: str, fact: tuple[str, Any]) -> None:
    """KEY=VALUE keeps numbers, booleans and text apart as a pack does."""
    assert parse_fact(text) == fact
    assert type(parse_fact(text)[1]) is type(fact[1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "is not KEY=VALUE: write for example --config kl_coef=0.05") for text in ("lr", "=1", "")),
        ("a=[1", "close every"),
        ("a={b: 1, b: 2}", "delete one of them"),
        ("a=" + "9" * 400, "write it as 1e9"),
    ],
)
def test_a_wrong_fact_says_how_to_write_it(text: str, words: str) -> None:
    """Mistakes in --config are errors for users, not tracebacks."""
    with pytest.raises(RltriageError, match=words):
        parse_fact(text)
