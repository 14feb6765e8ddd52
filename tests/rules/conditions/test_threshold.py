"""`threshold`: a statistic of a metric against a limit."""

from __future__ import annotations

import pytest

from rltriage.rules.conditions.terms import Term, Window, number
from rltriage.rules.conditions.threshold import Threshold


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({"above": number(0.5)}, "nny"),
        ({"at_least": number(0.5)}, "nyy"),
        ({"below": number(0.5)}, "ynn"),
        ({"at_most": number(0.5)}, "yyn"),
        ({"equals": number(0.5)}, "nyn"),
        ({"differs": number(0.5)}, "yny"),
        ({"equals": number(0.5), "tolerance": 0.125}, "nyy"),
        ({"differs": number(0.5), "tolerance": 0.125}, "ynn"),
    ],
)
def test_each_comparison_at_its_boundary(judge, limit, expected) -> None:
    """Strict and inclusive limits differ only at equality; the tolerance itself still counts as equal."""
    assert judge(Threshold(metric="x", **limit), x=[0.25, 0.5, 0.625]) == expected


def test_a_limit_may_be_a_config_fact_or_another_metric(judge) -> None:
    """Scaled facts and metrics are limits; an unknown fact makes the verdict unknown unless it has a default."""
    rate = Threshold(metric="lr", above=Term(config="lr", times=1.2))
    assert judge(rate, config={"lr": 1.0}, lr=[1.1, 1.3]) == "ny"
    assert judge(rate, lr=[1.1, 1.3]) == "??"
    assert judge(Threshold(metric="lr", above=Term(config="lr", times=1.2, default=1.0)), lr=[1.1, 1.3]) == "ny"
    other = Threshold(metric="x", above=Term(metric="y", times=2.0, plus=number(1.0)))
    assert judge(other, x=[3.0, 3.1], y=[1.0, 1.0]) == "ny"


def test_config_facts_may_be_looked_up_inside_lists_and_mappings(judge) -> None:
    """A dotted path leads into a fact; where it leads nowhere, or to no number, the fact is unknown."""
    limit = Threshold(metric="x", above=Term(config="reward_weights.1"))
    assert judge(limit, config={"reward_weights": [0.1, 0.9]}, x=[0.5, 1.0]) == "ny"
    assert judge(limit, config={"reward_weights": {"1": 0.2}}, x=[0.5]) == "y"
    assert judge(limit, config={"reward_weights": [0.1]}, x=[0.5]) == "?"
    assert judge(limit, config={"reward_weights": [0.1, True]}, x=[0.5]) == "?"


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        ("first", 3.0),
        ("last", 4.0),
        ("lowest", 1.0),
        ("highest", 9.0),
        ("trough", 2.0),
        ("change", 2.0),
        ("count", 6.0),
        ("start", 5.0),
        ("now", 4.0),
        ("best", 5.0),
    ],
)
def test_statistics_of_a_segment(judge, stat, expected) -> None:
    """Each statistic over 3 1 5 9 2 4 with windows of three."""
    rule = Threshold(metric="x", stat=stat, baseline=3, recent=3, equals=number(expected), tolerance=1e-12)
    if stat == "start":
        rule = Threshold(metric="x", stat=stat, baseline=3, equals=number(3.0))
    assert judge(rule, x=[3.0, 1.0, 5.0, 9.0, 2.0, 4.0])[-1] == "y"


def test_the_trough_is_unknown_at_the_peak(judge) -> None:
    """Nothing has been seen since the largest value while that is the newest; a tie with it counts as newer."""
    assert judge(Threshold(metric="x", stat="trough", at_most=number(0.1)), x=[0.0, 1.0, 0.05, 0.5, 1.0]) == "??yy?"


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(3, "mean"), "??nn"),
        (Window(3, "max"), "??yy"),
        (Window(3, "median"), "??nn"),
        (Window(2, "min", min=1), "nnnn"),
        (Window(2, "max", skip=1), "??ny"),
        (Window(3, "spread"), "??yy"),
        (Window(3, "q90"), "??yy"),
    ],
)
def test_windows_wait_until_they_are_full(judge, window, expected) -> None:
    """Unknown below `min` observations (the whole window by default); `skip` leaves the newest ones out."""
    assert judge(Threshold(metric="x", window=window, above=number(0.75)), x=[0.0, 0.0, 1.0, 0.0]) == expected


def test_the_start_may_be_taken_from_fewer_observations(judge) -> None:
    """`min: 1` gives the median of the first five or fewer; without it the start waits."""
    x = [0.2, 0.2, 0.0, 0.0, 0.0, 9.0]
    assert judge(Threshold(metric="x", stat="start", min=1, above=number(0.05)), x=x) == "yyyynn"
    assert judge(Threshold(metric="x", stat="start", above=number(0.05)), x=x) == "????nn"


def test_the_absolute_value_is_taken_of_the_statistic(judge) -> None:
    """Signed estimators are judged by size: |median|, not the median of sizes."""
    assert judge(Threshold(metric="x", abs=True, above=number(0.5)), x=[-1.0, 0.1]) == "yn"


def test_an_old_value_becomes_unknown(judge) -> None:
    """`max_age` bounds how many rows a carried value counts."""
    rule = Threshold(metric="x", max_age=1, above=number(0.5))
    assert judge(rule, x=[1.0, None, None, 1.0], y=[0.0] * 4) == "yy?y"


def test_a_missing_metric_is_unknown_never_zero(judge) -> None:
    """Neither the judged metric nor the limit's default to anything."""
    assert judge(Threshold(metric="x", below=number(1.0)), y=[0.0, 0.0]) == "??"
    assert judge(Threshold(metric="y", above=Term(metric="x")), y=[1.0]) == "?"


def test_recovery_compares_with_the_level_at_firing() -> None:
    """`at_firing` is unknown outside `clear_when`."""
    assert Threshold(metric="x", above=Term(metric="x", stat="at_firing")).problems() == []


@pytest.mark.parametrize(
    "wrong",
    [
        Threshold(metric="x"),
        Threshold(metric="x", above=number(1.0), below=number(2.0)),
        Threshold(metric="x", above=number(1.0), tolerance=0.1),
        Threshold(metric="x", stat="best", window=Window(3), above=number(1.0)),
    ],
)
def test_contradictory_parameters_are_reported(wrong) -> None:
    """One limit, one statistic, a tolerance only where it means something."""
    assert len(wrong.problems()) == 1


def test_operands_have_one_source() -> None:
    """A metric, a fact or a number; statistics only of metrics, defaults only of facts."""
    assert Term().problems() and Term(metric="x", config="y").problems()
    assert Term(value=1.0, stat="best").problems() and Term(metric="x", default=1.0).problems()
    assert Window(3, min=4).problems() and not Window(3, min=3).problems()


def test_reasons_name_the_numbers() -> None:
    """An explanation shows both sides as they were compared."""
    term = Term(metric="reward", window=Window(10, skip=3), plus=Term(metric="reward", stat="noise", times=-4.0))
    assert str(term) == "median of 10 before the newest 3 of reward + -4 x noise of reward"
    assert str(Term(config="lr", times=1.2, abs=True)) == "1.2 x |config.lr|"
