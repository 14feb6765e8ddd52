"""`all`, `any`, `not`, `repeated`, `rows`, `fact`, `resumed`: conditions about conditions, positions and facts."""

from __future__ import annotations

from itertools import product

import pytest

from rltriage.rules.conditions.fact import FactIs
from rltriage.rules.conditions.logic import All, Any, Not
from rltriage.rules.conditions.repeated import Repeated
from rltriage.rules.conditions.resumed import Resumed
from rltriage.rules.conditions.rows import Rows
from rltriage.rules.conditions.terms import number
from rltriage.rules.conditions.threshold import Threshold

ON = {name: Threshold(metric=name, above=number(0.5)) for name in "abc"}
VALUE = {True: 1.0, False: 0.0, None: None}
LETTER = {True: "y", False: "n", None: "?"}


def kleene_all(parts):
    """The definition: the minimum of false < unknown < true."""
    return False if False in parts else None if None in parts else True


def kleene_any(parts):
    """The definition: the maximum of false < unknown < true."""
    return True if True in parts else None if None in parts else False


@pytest.mark.parametrize("size", [1, 2, 3])
def test_combinations_follow_kleene(judge, size) -> None:
    """Every combination of true, false and unknown parts gives the value of the truth table."""
    parts = tuple(ON[name] for name in "abc"[:size])
    for truth in product((True, False, None), repeat=size):
        row = {name: [VALUE[value]] for name, value in zip("abc", truth, strict=False)}
        assert judge(All(parts), z=[0.0], **row) == LETTER[kleene_all(truth)]
        assert judge(Any(parts), z=[0.0], **row) == LETTER[kleene_any(truth)]
    assert judge(Not(ON["a"]), z=[0.0] * 3, a=[None, 1.0, 0.0]) == "?ny"


def test_repeated_counts_known_verdicts(judge) -> None:
    """Two in five: the first two hits suffice, hits leave the window, unknown rows are not counted and freeze it."""
    two_in_five = Repeated(ON["a"], 2, 5)
    assert judge(two_in_five, a=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]) == "nnnnynn"
    assert judge(two_in_five, a=[1.0, None, None, None, None, None, 1.0], z=[0.0] * 7) == "nnnnnny"
    assert judge(Repeated(ON["a"], 3, 3), a=[1.0, 1.0, 1.0, 0.0, 1.0]) == "nnynn"


def test_repeated_counts_rows_that_a_combination_does_not_ask_about(judge) -> None:
    """An earlier part that decides does not hide a hit from the count."""
    both = All((ON["b"], Repeated(ON["a"], 2, 5)))
    assert judge(both, a=[1.0, 0.0, 1.0], b=[0.0, 0.0, 1.0]) == "nny"


def test_rows_restrict_to_positions_and_steps(judge) -> None:
    """Positions count from 0 in the segment; a largest step keeps restarts in the middle out."""
    assert judge(Rows(last=1), a=[0.0] * 4) == "yynn"
    assert judge(Rows(first=2, last=2), a=[0.0] * 4) == "nnyn"
    assert judge(Rows(max_step=1), a=[0.0] * 4) == "yynn"
    assert Rows(first=3, last=2).problems()


@pytest.mark.parametrize(
    ("tests", "value", "expected"),
    [
        ({"above": 1.0}, 2, "y"),
        ({"above": 1.0}, 1, "n"),
        ({"below": 1.0}, 0.5, "y"),
        ({"equals": "token_mean"}, "token-mean", "y"),
        ({"differs": "token_mean"}, "token_mean", "n"),
        ({"among": ("grpo", "rloo")}, "rloo", "y"),
        ({"equals": True}, True, "y"),
        ({"known": True}, 3, "y"),
        ({"known": False}, 3, "n"),
    ],
)
def test_facts_are_tested_as_in_requires(judge, tests, value, expected) -> None:
    """Each test of a config fact, and unknown for a fact that nobody gave."""
    condition = FactIs(name="f", **tests)
    assert judge(condition, config={"f": value}, a=[0.0]) == expected
    assert judge(condition, a=[0.0]) == ("?" if "known" not in tests else "n" if tests["known"] else "y")
    assert FactIs(name="f").problems()


def test_a_resume_is_a_gap_of_more_than_three_strides() -> None:
    """The rows after the gap count; a stride of ten is no resume, nor is a log that skips a few steps."""
    assert resumed([0, 1, 2, 3, 7, 8, 9], rows=2) == "nnnnyyn"
    assert resumed([0, 1, 2, 3, 6, 7], rows=2) == "nnnnnn"
    assert resumed([10, 20, 30, 40, 50], rows=2) == "nnnnn"


def test_a_first_step_beyond_two_strides_is_a_resume() -> None:
    """It is known from the second row on; a log that starts at its stride did not resume."""
    assert resumed([50, 51, 52], rows=3) == "nyy"
    assert resumed([20, 30, 40], rows=3) == "nnn"


def test_a_declared_resume_needs_no_gap() -> None:
    """`resumed_at` marks the first row at or after that step."""
    assert resumed([1, 2, 3, 4], rows=2, config={"resumed_at": 3}) == "nnyy"
    assert resumed([7, 8, 9, 10], rows=2, config={"resumed_at": 5}) == "yynn"


def resumed(steps, rows, config=None):
    """One letter a row."""
    from rltriage.engine.monitor import Monitor
    from rltriage.engine.rows import Fact, Row, Run
    from rltriage.rules.model import Catalogue, Rule, RulePack

    rule = Rule("r", "", "outcome", "info", Resumed(rows), {"resume_state": 1.0}, "score_batch")
    facts = {name: Fact(value, "declared") for name, value in (config or {}).items()}
    monitor = Monitor(Run("run", facts=facts), RulePack("p", (rule,)), Catalogue({}, {}, {}))
    letters = ""
    for step in steps:
        monitor.observe(Row(step, {"a": float(step)}))
        letters += LETTER[monitor.explain("r").holds]
    return letters
