"""Firing and silent cases of every kind that compares a run with itself, at the boundary of each formula."""

from __future__ import annotations

import math

import pytest

from rltriage.rules.conditions.absent import Absent
from rltriage.rules.conditions.all_fail import AllFail
from rltriage.rules.conditions.band import Band
from rltriage.rules.conditions.departure import Departure
from rltriage.rules.conditions.divergence import Divergence
from rltriage.rules.conditions.equal import Equal
from rltriage.rules.conditions.held_out import HeldOut
from rltriage.rules.conditions.nonfinite import Nonfinite
from rltriage.rules.conditions.race import Race
from rltriage.rules.conditions.spike import Spike
from rltriage.rules.conditions.terms import Term, number
from rltriage.rules.conditions.trade import Trade
from rltriage.rules.conditions.trend import Trend
from rltriage.rules.conditions.trivial import Trivial
from rltriage.rules.conditions.weighted_sum import WeightedSum

NAN = math.nan


def wave(level, size, count):
    """Noise of a known size around a level: alternating above and below."""
    return [level + (size if i % 2 else -size) for i in range(count)]


def test_trivial_waits_until_the_policy_can_have_moved(judge) -> None:
    """Only rows after one with grad_norm > 0 and lr > 0 are informative; warm-up at lr 0 is not."""
    rule = Trivial(metric="kl_ref", equals=0.0, min=3)
    assert judge(rule, kl_ref=[0.0] * 6, grad_norm=[1.0] * 6, lr=[0.0, 1e-6] + [1e-6] * 4) == "????yy"
    assert judge(rule, kl_ref=[0.0] * 6, grad_norm=[0.0] * 6, lr=[1e-6] * 6) == "??????"
    assert judge(rule, kl_ref=[0.0] * 9) == "??????yyy"
    assert judge(rule, kl_ref=[0.0] * 9, grad_norm=[0.0] * 9) == "?????????"


def test_trivial_never_holds_again_after_another_value(judge) -> None:
    """One other value settles it; -0.0 is 0."""
    x = [0.0, -0.0, 0.0, 0.0, 1e-12, 0.0, 0.0, 0.0]
    assert judge(Trivial(metric="x", equals=0.0, min=3, informative=False), x=x) == "??yynnnn"


def test_trivial_of_the_latest_rows_counts_anew_after_another_value(judge) -> None:
    """With `latest` an exact value may begin in mid-run; in a log that rounds it is never known to be exact."""
    rule = Trivial(metric="x", equals=0.0, min=3, informative=False, latest=True)
    x = [1.0, 0.0, 0.0, 0.0, 0.0, 1e-12, 0.0, 0.0, 0.0]
    assert judge(rule, x=x) == "n??yyn??y"
    assert judge(rule, config={"resolution": 1e-3}, x=[0.001, *[0.0] * 60]) == "n" + "?" * 60


def test_trivial_ignores_what_was_not_informative(judge) -> None:
    """A first value that no update had produced yet neither counts nor breaks it."""
    rule = Trivial(metric="x", equals=1.0, min=2)
    assert judge(rule, x=[3.0, 1.0, 1.0], grad_norm=[1.0] * 3, lr=[1.0] * 3) == "??y"


def test_trivial_needs_fifty_rows_of_a_log_that_rounds(judge) -> None:
    """At a resolution of 1e-5 or coarser an exact 0 is a small number as well."""
    rule = Trivial(metric="x", equals=0.0, min=3, informative=False)
    assert judge(rule, config={"resolution": 1e-3}, x=[0.0] * 50) == "?" * 49 + "y"
    assert judge(rule, config={"resolution": {"x": 1e-5}}, x=[0.0] * 50) == "?" * 49 + "y"
    assert judge(rule, config={"resolution": 1e-6}, x=[0.0] * 3) == "??y"


def test_race_holds_when_half_is_lost_and_nothing_gained(judge) -> None:
    """Half of the start is the boundary; a rise of the other metric beyond its noise excuses the fall."""
    rule = Race(falling="entropy", rising="reward")
    flat, risen = wave(0.2, 0.02, 12), wave(0.2, 0.02, 6) + wave(0.6, 0.02, 6)
    assert judge(rule, entropy=[1.0] * 5 + [0.5] * 7, reward=flat)[-3:] == "yyy"
    assert judge(rule, entropy=[1.0] * 5 + [0.51] * 7, reward=flat)[-1] == "n"
    assert judge(rule, entropy=[1.0] * 5 + [0.5] * 7, reward=risen)[-1] == "n"
    assert judge(rule, entropy=[1.0] * 5 + [0.5] * 7, reward=flat)[:9] == "?" * 9


def test_race_knows_its_limits(judge) -> None:
    """Near the ceiling there is nothing to gain; a reward that never varied says nothing; nor does a start of 0."""
    rule = Race(falling="entropy", rising="reward", ceiling=Term(config="reward_max"))
    entropy = [1.0] * 5 + [0.4] * 7
    assert judge(rule, config={"reward_max": 1.0}, entropy=entropy, reward=wave(0.95, 0.01, 12))[-1] == "n"
    assert judge(rule, entropy=entropy, reward=wave(0.95, 0.01, 12))[-1] == "y"
    assert judge(rule, entropy=entropy, reward=[0.2] * 12)[-1] == "?"
    assert judge(rule, entropy=[0.0] * 12, reward=wave(0.2, 0.01, 12))[-1] == "?"
    assert judge(rule, entropy=entropy, reward=wave(-3.0, 0.01, 12))[-1] == "y"


@pytest.mark.parametrize(
    ("rule", "now", "expected"),
    [
        (Departure(metric="x", factor=2.0), 2.0, "y"),
        (Departure(metric="x", factor=2.0), 1.99, "n"),
        (Departure(metric="x", factor=2.0, by=number(1.5)), 2.0, "n"),
        (Departure(metric="x", by=number(0.5)), 1.5, "y"),
        (Departure(metric="x", factor=2.0, reach=number(2.5)), 2.25, "n"),
        (Departure(metric="x", factor=2.0, reach=number(2.5)), 2.5, "y"),
        (Departure(metric="x", direction="down", factor=0.25), 0.25, "y"),
        (Departure(metric="x", direction="down", factor=0.25), 0.26, "n"),
        (Departure(metric="x", direction="down", by=number(0.5), reach=number(0.25)), 0.5, "n"),
        (Departure(metric="x", factor=2.0, abs=True), -2.0, "y"),
        (Departure(metric="x", by=Term(config="reward_max", times=0.2)), 1.5, "?"),
        (Departure(metric="x", by=Term(config="reward_max", times=0.2, default=1.0)), 1.25, "y"),
        (Departure(metric="x", factor=2.0, reach=Term(metric="never")), 1.0, "n"),
        (Departure(metric="x", factor=2.0, reach=Term(metric="never")), 2.0, "?"),
    ],
)
def test_departure_needs_every_limit(judge, rule, now, expected) -> None:
    """Factor, amount and level at their boundaries, in both directions, from a start of 1."""
    assert judge(rule, x=[1.0] * 5 + [now] * 5) == "?" * 9 + expected


def test_departure_waits_for_start_and_window(judge) -> None:
    """Unknown before baseline + window observations, however large the change."""
    assert judge(Departure(metric="x", factor=3.0, baseline=2, window=3), x=[1.0, 1.0, 9.0, 9.0, 9.0]) == "????y"
    assert Departure(metric="x").problems()


def test_divergence_compares_with_its_own_start(judge) -> None:
    """A ratio that always was 1.4 is the task; at 1.5 times its start it holds; rows without both do not count."""
    rule = Divergence(left="a", right="b", mode="ratio", factor=1.5)
    assert judge(rule, a=[1.4] * 5 + [2.1] * 5, b=[1.0] * 10) == "?" * 9 + "y"
    assert judge(rule, a=[1.4] * 5 + [2.0] * 5, b=[1.0] * 10)[-1] == "n"
    assert judge(rule, a=[1.0] * 5 + [None] * 3 + [3.0] * 4, b=[1.0] * 12) == "?" * 12
    assert judge(rule, a=[1.0] * 12, b=[1.0] * 5 + [0.0] * 7) == "?" * 12


def test_a_difference_widens_by_an_amount(judge) -> None:
    """`by` in units of the range, for a difference that may start anywhere."""
    rule = Divergence(left="reward", right="pass_rate", by=Term(config="reward_max", times=0.25, default=1.0), window=1)
    passed = [0.25] * 8
    assert judge(rule, reward=[0.5] * 5 + [0.75, 0.625, 0.75], pass_rate=passed) == "?????yny"


def test_spike_stands_out_by_factor_deviation_and_size(judge) -> None:
    """Five times the median and six deviations and the floor, each strict or not as defined."""
    quiet = wave(1.0, 0.125, 12)
    rule = Spike(metric="x", floor=4.0)
    assert judge(rule, x=[*quiet, 5.7])[-1] == "y"
    assert judge(rule, x=[*quiet, -5.7])[-1] == "y"
    assert judge(rule, x=[*quiet, 4.9])[-1] == "n"
    assert judge(Spike(metric="x", floor=6.0), x=[*quiet, 5.7])[-1] == "n"
    assert judge(rule, x=[*wave(1.0, 0.125, 9), 5.7])[-1] == "?"
    wild = [1.0, 10.0] * 6
    assert judge(rule, x=[*wild, 60.0])[-1] == "y"
    assert judge(Spike(metric="x", mads=13.0), x=[*wild, 60.0])[-1] == "n"


def test_quiet_values_stay_out_of_the_neighbourhood(judge) -> None:
    """A log that is exactly 0 most of the time does not make every other value a spike."""
    x = [1.0, 0.0] * 12 + [1.25]
    assert judge(Spike(metric="x"), x=x)[-1] == "n"
    assert judge(Spike(metric="x", ignore=0.0), x=x)[-1] == "n"
    assert judge(Spike(metric="x", ignore=0.0), x=[1.0] + [0.0] * 20 + [1.25])[-1] == "y"
    assert judge(Spike(metric="x"), x=[1.0] + [0.0] * 20 + [1.25])[-1] == "?"


def test_a_carried_spike_is_no_spike(judge) -> None:
    """It holds in its own row alone."""
    assert judge(Spike(metric="x"), x=[*wave(1.0, 0.1, 12), 9.0, None], y=[0.0] * 14)[-2:] == "y?"


def test_trend_is_in_units_of_the_noise(judge) -> None:
    """The same shift is a trend in a quiet series and nothing in a noisy one; equal halves without noise are flat."""
    down = Trend(metric="x", direction="down", window=8)
    assert judge(down, x=wave(1.0, 0.01, 4) + wave(0.8, 0.01, 4))[-1] == "y"
    assert judge(down, x=wave(1.0, 0.2, 4) + wave(0.8, 0.2, 4))[-1] == "n"
    assert judge(Trend(metric="x", direction="up", window=8), x=wave(1.0, 0.01, 4) + wave(1.2, 0.01, 4))[-1] == "y"
    flat = Trend(metric="x", direction="flat", window=8)
    assert judge(flat, x=[1.0] * 8)[-1] == "y"
    assert judge(flat, x=[1.0] * 4 + [2.0] * 4)[-1] == "n"
    assert judge(flat, x=[1.0] * 7) == "?" * 7


def test_trend_from_the_start_is_the_sign_error(judge) -> None:
    """At most half of the first half, no later value above its median, nothing judged from a start near 0."""
    rule = Trend(metric="x", direction="down", window=8, from_start=True, z=4.0, ratio=0.5, monotone=True, start_min=0.05)
    first = [0.5, 0.52, 0.48, 0.5]
    assert judge(rule, x=[*first, 0.4, 0.25, 0.2, 0.2]) == "?" * 7 + "y"
    assert judge(rule, x=[*first, 0.4, 0.35, 0.3, 0.2])[-1] == "n"
    assert judge(rule, x=[*first, 0.51, 0.2, 0.2, 0.2])[-1] == "n"
    assert judge(rule, x=[0.04] * 4 + [0.0] * 4)[-1] == "?"
    assert judge(rule, x=[*first, 0.4, 0.25, 0.2, 0.2, 0.6, 0.1, 0.1, 0.1, 0.1])[-1] == "n"


def test_a_window_in_steps_follows_the_steps(judge) -> None:
    """Only the observations of the last steps count, at least four of them."""
    rule = Trend(metric="x", direction="down", window=64, window_steps=4)
    assert judge(rule, x=[9.0, 1.0, 1.01, 0.5, 0.51])[-1] == "y"
    assert judge(rule, x=[1.0, 1.01, 0.5, 0.51, 0.5, 0.51])[-1] == "n"
    assert judge(rule, x=[9.0, 1.0, 1.0]) == "???"


def test_trend_parameters_that_contradict_are_reported() -> None:
    """Combinations that mean nothing."""
    assert Trend(metric="x", direction="down", monotone=True).problems()
    assert Trend(metric="x", direction="down", from_start=True, window_steps=5).problems()
    assert Trend(metric="x", direction="flat", ratio=0.5).problems()


def test_equal_judges_an_identity_of_one_row(judge) -> None:
    """Within the tolerance it is met; a metric absent from the row makes it unknown; constants prove nothing."""
    broken = Equal(
        left=Term(metric="a"), right=(Term(metric="b", times=0.5), Term(metric="c")), holds=False, tolerance=0.125
    )
    assert judge(broken, a=[1.0, 1.0, 1.0], b=[1.0, 1.0, 1.0], c=[0.625, 0.75, None]) == "ny?"
    varies = Equal(left=Term(metric="a"), right=(Term(metric="b"),), varies=True)
    assert judge(varies, a=[1.0, 1.0, 2.0, 2.0], b=[1.0, 1.0, 2.0, 2.1]) == "??yn"
    assert Equal(left=number(1.0), right=()).problems()


def test_equal_has_a_relative_tolerance(judge) -> None:
    """The larger side is the measure."""
    rule = Equal(left=Term(metric="a"), right=(Term(metric="b"),), tolerance=0.0, relative=0.125)
    assert judge(rule, a=[8.0, 8.0], b=[7.0, 6.5]) == "yn"


def test_weighted_sum_takes_the_weights_from_the_config(judge) -> None:
    """A list in the order of appearance or a mapping by name; another number of weights is unknown."""
    rule = WeightedSum(components=("rewards/*/mean",))
    row = {"rewards/a/mean": [1.0, 1.0], "rewards/b/mean": [0.0, 0.5], "rewards/a/std": [9.0, 9.0]}
    assert judge(rule, config={"reward_weights": [0.7, 0.3]}, reward=[1.0, 0.85], **row) == "yn"
    assert (
        judge(rule, config={"reward_weights": {"rewards/b/mean": 0.3, "rewards/a/mean": 0.7}}, reward=[1.0, 0.85], **row)
        == "yn"
    )
    assert judge(rule, config={"reward_weights": [0.7]}, reward=[1.0, 0.85], **row) == "??"
    assert judge(rule, reward=[1.0, 0.85], **row) == "??"


def test_trade_needs_a_fall_a_rise_and_a_total_that_holds(judge) -> None:
    """One component at half its start, another beyond its noise; a falling total is another fault."""
    rule = Trade(components=("part/*",))
    fall, rise = wave(0.4, 0.01, 6) + wave(0.18, 0.01, 6), wave(0.2, 0.01, 6) + wave(0.5, 0.01, 6)
    level = wave(0.6, 0.05, 12)
    assert judge(rule, reward=level, **{"part/a": fall, "part/b": rise})[-1] == "y"
    assert judge(rule, reward=level, **{"part/a": fall, "part/b": wave(0.2, 0.01, 12)})[-1] == "n"
    assert judge(rule, reward=wave(0.6, 0.01, 6) + wave(0.3, 0.01, 6), **{"part/a": fall, "part/b": rise})[-1] == "n"
    assert judge(rule, reward=level, **{"part/a": fall})[-1] == "?"


def test_held_out_compares_gains_at_fresh_evaluations(judge) -> None:
    """From the second evaluation on: training must gain, and by more than held-out beyond its sampling error."""
    reward = [0.2] * 4 + [0.8] * 6
    evaluated = [None, None, 0.2, None, None, None, None, None, 0.3, None]
    rule = HeldOut(training="reward", held_out="eval_pass")
    assert judge(rule, reward=reward, eval_pass=evaluated) == "????????yy"
    followed = [*evaluated[:8], 0.6, None]
    assert judge(rule, reward=reward, eval_pass=followed)[-1] == "n"
    few = [None] * 8 + [10.0, None]
    assert judge(rule, reward=reward, eval_pass=evaluated, eval_n=few)[-1] == "n"
    assert judge(rule, reward=[0.2] * 10, eval_pass=evaluated)[-1] == "n"


def test_held_out_takes_its_base_around_the_first_evaluation(judge) -> None:
    """An evaluation in the first row uses the first three rows of training."""
    rule = HeldOut(training="reward", held_out="eval_pass")
    reward = [0.0, 0.6, 0.6] + [0.7] * 6
    assert judge(rule, reward=reward, eval_pass=[0.1] + [None] * 7 + [0.1])[-1] == "n"
    assert judge(rule, reward=[0.1] * 3 + [0.7] * 6, eval_pass=[0.1] + [None] * 7 + [0.1])[-1] == "y"


def test_all_fail_uses_what_is_logged_or_a_proven_bound(judge) -> None:
    """The share itself; else, once reward equals pass_rate in five rows, zero_adv_frac - pass_rate; over 32 groups."""
    rule = AllFail(at_least=0.5)
    assert judge(rule, all_fail_frac=[0.5] * 4, n_groups=[16.0] * 4) == "?yyy"
    assert judge(rule, all_fail_frac=[0.25, 0.75, 0.75], n_groups=[16.0] * 3) == "?yy"
    rows = {"zero_adv_frac": [0.75] * 10, "pass_rate": [0.125] * 10}
    assert judge(rule, reward=[0.125] * 10, **rows) == "?" * 8 + "yy"
    assert judge(rule, reward=[0.25] * 10, **rows) == "?" * 10
    assert judge(rule, reward=[0.125] * 10, n_groups=[32.0] * 10, **rows) == "????yyyyyy"


class Healthy:
    """A reference that knows one metric for three steps."""

    why_not = ""

    def learn(self, facts):
        """It fits every run."""

    def bounds(self, metric, step):
        """0 to 1 for x."""
        return (0.0, 1.0) if metric == "x" and step < 3 else None


def test_band_is_outside_the_reference(judge) -> None:
    """The edge is inside; sides can be told apart; without a reference nothing is known."""
    assert judge(Band(metric="x"), reference=Healthy(), x=[1.0, 1.1, -0.1, 5.0]) == "nyy?"
    assert judge(Band(metric="x", side="above"), reference=Healthy(), x=[1.0, 1.1, -0.1]) == "nyn"
    assert judge(Band(metric="x"), x=[5.0]) == "?"


def test_absent_needs_a_metric_that_was_always_there(judge) -> None:
    """Twenty rows of presence, then `rows` rows of absence."""
    always, once = [1.0] * 20 + [None] * 4, [1.0] * 10 + [None] * 14
    rule = Absent(names=("reward",), rows=3)
    assert judge(rule, reward=always, y=[0.0] * 24) == "?" * 20 + "nnyy"
    assert judge(rule, reward=once, y=[0.0] * 24) == "?" * 24
    assert Absent().problems() and Absent(names=("x",), overdue=3.0).problems()


def test_nonfinite_holds_in_the_row_itself(judge) -> None:
    """NaN and infinities of the named metrics, of all, or of all but some; unknown in rows without them."""
    named = Nonfinite(names=("loss", "grad_*"))
    assert judge(named, loss=[1.0, NAN, math.inf, None], y=[NAN] * 4) == "nyy?"
    assert judge(named, grad_norm=[NAN, 1.0]) == "yn"
    assert judge(Nonfinite(), y=[0.0, -math.inf]) == "ny"
    assert judge(Nonfinite(ignored=("kl_*",)), kl_ref=[NAN], y=[0.0]) == "n"
