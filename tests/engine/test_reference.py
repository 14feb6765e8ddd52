"""The healthy reference: what it is made of, whom it fits, and what is said where nothing fits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltriage.engine.monitor import Monitor
from rltriage.engine.reference import (
    NONE_GIVEN,
    Fitted,
    HealthyRun,
    Reference,
    build,
    needs_reference,
    read_reference,
    shipped,
    to_json,
    write_reference,
)
from rltriage.engine.report import ConfigChange
from rltriage.engine.rows import Fact, Row, Run
from rltriage.engine.rundir import RunDirectory, row_line
from rltriage.rules.errors import RltriageError
from rltriage.rules.loader import load_rules

FACTS = {"lr": Fact(1e-3, "declared"), "steps": Fact(24, "declared"), "kl_term": Fact(True, "inferred")}


def runs(count=10, steps=8, first=0, facts=None):
    """Runs whose metric is the step plus a level of the seed, and one metric that only every fourth row has."""
    return [
        HealthyRun(
            f"r{seed}",
            [
                Row(first + step, {"x": step + seed / 10, **({"sparse": seed} if step % 4 == 0 else {})})
                for step in range(steps)
            ],
            facts or FACTS,
        )
        for seed in range(count)
    ]


def test_bounds_are_the_range_of_two_rows_on_either_side_widened_by_half_its_width():
    """DESIGN, Definitions: [min - R/2, max + R/2] over +-2 steps."""
    reference = build(runs(), "r")
    band = reference.band("x", 4)
    assert band is not None and (band.low, band.high) == (2.0, 6.9)
    assert band.bounds == pytest.approx((2.0 - 2.45, 6.9 + 2.45))


def test_median_spread_and_seed_spread_are_what_they_say():
    """The seed spread is that of the runs' own means: row-to-row movement does not count."""
    band = build(runs(), "r").band("x", 4)
    assert band is not None
    assert band.median == pytest.approx(4.45)
    assert band.seed_spread == pytest.approx(0.3028, abs=1e-4)
    assert band.spread > band.seed_spread


def test_steps_count_from_the_start_of_each_run():
    """A run that begins at step 100 is compared by the distance to its first step."""
    reference = build(runs(first=100), "r")
    assert reference.phases[0] == (0, 0) and reference.band("x", 4) == build(runs(), "r").band("x", 4)


def test_nothing_is_known_beyond_the_last_step_or_of_a_metric_that_few_runs_had():
    """Unknown, never a guess."""
    some = runs(12)
    for run in some[:3]:
        for row in run.rows:
            row.metrics["rare"] = 1.0
    reference = build(some, "r")
    assert reference.band("x", 8) is None and reference.band("rare", 0) is None and reference.band("y", 0) is None


def test_a_sparse_metric_is_known_near_the_rows_that_had_it():
    """The neighbours fill the gaps."""
    reference = build(runs(), "r")
    assert all(reference.band("sparse", step) is not None for step in range(7))


@pytest.mark.parametrize("value", [1e308, -1e308, float("inf"), float("nan")])
def test_values_that_no_square_can_hold_are_left_out(value):
    """A diverged value in one healthy run costs its metric that run, and not the whole reference."""
    healthy = runs(count=11)
    healthy[0] = HealthyRun("r0", [Row(row.step, {**row.metrics, "x": value}) for row in healthy[0].rows], FACTS)
    band = build(healthy, "r").band("x", 4)
    assert band is not None and (band.low, band.high) == (2.1, 7.0)


@given(length=st.integers(1, 900))
@settings(max_examples=30, deadline=None)
def test_long_runs_are_cut_into_at_most_two_hundred_phases_that_cover_every_step(length):
    """A reference of ten thousand steps stays a small file."""
    reference = build(
        [HealthyRun(f"r{s}", [Row(step, {"x": step + s}) for step in range(length)], {}) for s in range(10)], "r"
    )
    assert len(reference.phases) <= 200
    assert all(reference.band("x", step) is not None for step in (0, length // 2, length - 1))


def test_fewer_than_ten_runs_are_refused_with_the_reason():
    """Healthy runs leave a band of five seeds."""
    with pytest.raises(RltriageError, match="9 runs are too few"):
        build(runs(9), "r")


def test_one_run_given_twice_is_refused_by_name():
    """The same seed twice narrows nothing and pretends to be two."""
    some = runs(10)
    with pytest.raises(RltriageError, match="twin and r0 hold the same rows"):
        build([*some, HealthyRun("twin", some[0].rows, FACTS)], "r")


def test_facts_that_all_runs_share_have_to_match_inferred_ones_and_the_length_do_not():
    """A longer run may be compared; another learning rate may not."""
    reference = build(runs(), "r")
    assert reference.facts == {"lr": 1e-3}
    assert reference.misfit({"lr": 1e-3, "steps": 1000}) == ""
    assert "lr is 0.01 here and 0.001 there" in reference.misfit({"lr": 1e-2})
    assert "lr not known here" in reference.misfit({})


def test_a_fact_that_differs_between_the_runs_need_not_match():
    """Runs of several learning rates make a reference for every learning rate."""
    some = runs(10)
    other = [HealthyRun(f"o{i}", [Row(0, {"x": i + 0.05})], {"lr": Fact(2e-3, "declared")}) for i in range(1)]
    assert build([*some, *other], "r").facts == {}


def test_a_file_is_read_as_it_was_written(tmp_path):
    """JSON with five digits, a metric a line."""
    file = tmp_path / "r.json"
    reference = build(runs(), "r")
    write_reference(file, reference)
    assert to_json(read_reference(file)) == to_json(reference)
    assert json.loads(file.read_text())["format"] == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not a reference"),
        ("[1, 2]", "not a reference"),
        ("[" * 5000, "not a reference"),
        (
            '{"format": 1, "name": "r", "runs": [], "facts": {}, "phases": [[0, Infinity]], "metrics": {}}',
            "not a reference",
        ),
        ("{}", "format"),
        ('{"format": 2}', "this version reads 1"),
        ('{"format": 1, "name": "r", "runs": [], "facts": {}, "phases": [[3, 3], [1, 1]], "metrics": {}}', "rising order"),
        ('{"format": 1, "name": "r", "runs": [], "facts": {}, "phases": [[0, 0]], "metrics": {"x": {}}}', "median"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path, content, says):
    """What, where, and what to do."""
    file = tmp_path / "r.json"
    file.write_text(content)
    with pytest.raises(RltriageError, match=says):
        read_reference(file)


def test_a_missing_file_is_one_clear_error(tmp_path):
    """The system's reason is in it."""
    with pytest.raises(RltriageError, match="No such file"):
        read_reference(tmp_path / "nothing.json")


def test_the_first_reference_that_fits_is_used_and_facts_may_come_later():
    """Facts are learnt from logs while they are read."""
    low, high = build(runs(), "low"), build(runs(facts={"lr": Fact(1.0, "declared")}), "high")
    fitted = Fitted((low, high))
    fitted.learn({})
    assert fitted.bounds("x", 4) is None and "may not fit" in fitted.why_not
    fitted.learn({"lr": Fact(1.0, "logged")})
    assert fitted.bounds("x", 4) is not None and fitted.why_not == ""


def test_references_of_one_name_are_told_apart():
    """A run that comes to fit the second of two namesakes is compared with that one, and its ranges are drawn anew."""
    one, other = (
        build(runs(facts={"lr": Fact(1e-3, "declared")}), "r"),
        build(runs(facts={"lr": Fact(2e-3, "declared")}), "r"),
    )
    fitted = Fitted([one, other])
    fitted.learn({"lr": Fact(1e-3, "declared")})
    before = fitted.phase(0)
    fitted.learn({"lr": Fact(2e-3, "declared")})
    assert fitted.why_not == ""
    assert fitted.pictured({})[0] is other
    assert before is not None and fitted.phase(0) not in (None, before)


def test_a_reference_without_phases_knows_nothing():
    """As an earlier run is, which is compared in its configuration alone."""
    earlier = Reference("before", (), {}, {"lr": 1e-3}, ("before",))
    assert earlier.phase(0) == -1
    assert earlier.band("x", 0) is None


def test_what_differs_in_config_is_said_against_reference_and_earlier_run(tmp_path):
    """Known facts alone are compared; a reference that fits differs in nothing, an earlier run in what was changed."""
    reference = build(runs(facts={"lr": Fact(1e-3, "declared"), "kl_coef": Fact(0.04, "declared")}), "mine")
    run = tmp_path / "r1"
    files = RunDirectory(run, "r1", config={"lr": 1e-2, "steps": 5}, profile="generic")
    files.write_rows(row_line(Row(0, {"reward": 0.1})))
    files.close()
    fitted = Fitted((reference, read_reference(run)))
    facts = {"lr": Fact(1e-2, "declared"), "kl_coef": Fact(0, "logged")}
    healthy = "the healthy reference mine"
    assert fitted.changes(facts) == (
        ConfigChange("kl_coef", 0.04, 0, healthy),
        ConfigChange("lr", 1e-3, 1e-2, healthy),
    )
    assert fitted.changes({"lr": Fact(1e-3, "declared")}) == (ConfigChange("lr", 1e-2, 1e-3, "the run r1"),)
    assert fitted.bounds("x", 0) is None and "does not fit" in (fitted.learn(facts) or fitted.why_not)


def test_an_earlier_run_without_rows_is_one_clear_error(tmp_path):
    """A folder is taken for a run."""
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(RltriageError):
        read_reference(tmp_path)


def test_a_shipped_reference_is_compared_only_with_runs_that_know_its_facts():
    """Another trainer's run does not hear that it is not ours; ours hears what was changed."""
    from rltriage.trainer.config import TrainConfig, config_facts

    ours = {name: Fact(value, "declared") for name, value in config_facts(TrainConfig(lr=1e-2), steps=24).items()}
    assert [(change.fact, change.before, change.now) for change in Fitted().changes(ours)] == [("lr", 1e-3, 1e-2)]
    assert Fitted().changes({"lr": Fact(5.0, "declared")}) == ()


def test_band_rules_are_skipped_with_the_reason_where_no_reference_fits():
    """None given, or one that does not fit: it is said which fact differs."""
    pack = load_rules("triage")
    rows = [Row(step, {"reward": 0.1, "grad_norm": 0.2, "clip_frac": 0.0}) for step in range(3)]

    def skipped(reference):
        monitor = Monitor(Run("r", facts={"lr": Fact(1e-2, "declared")}), pack, pack.catalogue, reference=reference)
        for row in rows:
            monitor.observe(row)
        return monitor.rules_skipped["slower-than-reference"]

    assert skipped(None) == NONE_GIVEN
    assert "lr is 0.01 here and 0.001 there" in skipped(Fitted((build(runs(), "mine"),)))


def test_a_band_rule_fires_on_a_run_that_leaves_the_reference():
    """Through the monitor, on the same facts."""
    pack = load_rules("triage")
    healthy = [
        HealthyRun(f"r{s}", [Row(i, {"reward": 0.5 + s / 100}) for i in range(10)], {"lr": Fact(1e-3, "declared")})
        for s in range(10)
    ]
    fitted = Fitted((build(healthy, "mine"),))
    monitor = Monitor(Run("r", facts={"lr": Fact(1e-3, "declared")}), pack, pack.catalogue, reference=fitted)
    fired = [a.rule for i in range(6) for a in monitor.observe(Row(i, {"reward": 0.1})).alerts if a.state == "firing"]
    assert "slower-than-reference" in fired and "slower-than-reference" not in monitor.rules_skipped


def test_the_shipped_reference_fits_the_shipped_trainer_alone():
    """It comes with the facts of the default run; a run that says less is not compared."""
    from rltriage.trainer.config import TrainConfig, config_facts

    (reference,) = shipped()
    assert reference.misfit(config_facts(TrainConfig(), steps=24)) == ""
    assert "loss_mode" in reference.misfit(config_facts(TrainConfig(loss_mode="seq_mean_token_mean")))
    assert reference.misfit({"lr": 1e-3}) != ""
    assert len(reference.runs) >= 10 and reference.band("reward", 12) is not None


def test_needing_a_reference_follows_the_logic_of_the_condition():
    """One alternative without a band is enough to do without."""
    pack = load_rules("triage")
    assert {rule.id for rule in pack.rules if needs_reference(rule.when)} == {
        "clip-frac-above-reference",
        "grad-norm-above-reference",
        "slower-than-reference",
    }
