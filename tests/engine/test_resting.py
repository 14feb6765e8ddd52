"""Resting rules: what is said about a run is the same as if every rule were asked at every row."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltriage.engine.monitor import Monitor
from rltriage.engine.rows import Fact, Row, Run
from rltriage.recorded import read_runs
from rltriage.rules.conditions import terms
from rltriage.rules.conditions.limits import side, unequal
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.loader import load_rules
from rltriage.rules.model import Rule, RulePack

RUNS = Path(__file__).parents[1] / "data" / "runs"
PACK = load_rules("triage")
METRICS = [*sorted({metric for rule in PACK.rules for metric in rule.metrics}), "reward/a", "reward/b"]
FACTS = {"kl_coef": 0.04, "updates_per_batch": 2, "reward_max": 1.0, "max_length": 100, "lr": 0.5}


class Restless(Monitor):
    """Asks every rule and counter at every row, as if none of them could rest."""

    def observe(self, row):
        """Wake everybody before and after the values are taken."""
        self._wake_all()
        return super().observe(row)

    def _judge(self, plan, row, alerts):
        self._wake_all()
        super()._judge(plan, row, alerts)


def told(kind, run, rows, every=6):
    """Everything that a monitor says: reports, the verdicts of all rules now and then, and the books at the end."""
    monitor, said = kind(run, PACK, PACK.catalogue), []
    for number, row in enumerate(rows):
        said.append(monitor.observe(row))
        if number % every == every - 1:
            said.append([monitor.explain(rule.id) for rule in PACK.rules])
            said.append(monitor.tick((row.time or 0.0) + 1e4 * (number % 4)))
    return [*said, monitor.pending, monitor.rules_skipped, monitor.counters, monitor.close()]


def same(one, other):
    """Equal, with NaN equal to itself."""
    return repr(one) == repr(other)


class Scenario:
    """Rows around levels that jump now and then, with what logs do: gaps, NaN, repeats, second records, steps back."""

    def __init__(self, seed: int, calm: bool, tidy: bool) -> None:
        self.draw, self.tidy = random.Random(seed), tidy
        self.spread = 0.02 if calm else 0.4
        self.names = [name for name in METRICS if self.draw.random() < 0.7]
        self.levels = {name: self.draw.choice([0.0, 1.0, 0.02, 0.5, self.draw.random(), 30.0]) for name in self.names}

    def rows(self, count: int) -> list[Row]:
        """The rows."""
        found, step = [], 0
        for number in range(count):
            found.append(Row(step, self._metrics(), 1e9 + number))
            step = max(0, step + self._stride())
        return found

    def _stride(self) -> int:
        draw = self.draw
        if self.tidy or draw.random() < 0.9:
            return 1
        return draw.choice([0, 0, 2, 9, -1, -3, -12, -10_000])

    def _metrics(self) -> dict[str, float]:
        draw, row = self.draw, {}
        for name in self.names:
            if draw.random() < 0.01:
                self.levels[name] *= draw.choice([0.2, 0.5, 2.0, 5.0, -1.0])
            if not self.tidy and draw.random() < 0.05:
                continue
            row[name] = self.levels[name] * (1.0 + self.spread * draw.gauss(0.0, 1.0))
            if not self.tidy and draw.random() < 0.01:
                row[name] = draw.choice([float("nan"), float("inf"), -0.0, 1e300])
        return row


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from([{}, FACTS]))
def test_resting_changes_nothing_that_is_said(seed, calm, tidy, facts) -> None:
    """The shipped rules on rows of every kind: the same reports, verdicts, books and counts with and without rest."""
    run = Run("run", facts={name: Fact(value, "declared") for name, value in facts.items()})
    rows = Scenario(seed, calm, tidy).rows(80)
    assert same(told(Monitor, run, rows), told(Restless, run, rows))


@pytest.mark.parametrize("name", sorted(path.name.partition(".")[0] for path in RUNS.glob("*.jsonl.xz")))
def test_resting_changes_nothing_on_recorded_runs(name) -> None:
    """Two recorded runs of the reference trainer of each kind."""
    for recorded in read_runs(RUNS, [name])[:2]:
        assert same(told(Monitor, recorded.run(), recorded.rows, 12), told(Restless, recorded.run(), recorded.rows, 12))


def test_most_rules_of_a_healthy_run_rest() -> None:
    """What the speed comes from: of the rules that this run can judge few are asked at a row."""
    run = Run("run", facts={name: Fact(value, "declared") for name, value in FACTS.items()})
    monitor, asked = Monitor(run, PACK, PACK.catalogue), 0
    levels = {"reward": 0.5, "entropy": 0.6, "grad_norm": 0.4, "kl_ref": 0.01, "length": 40.0, "pass_rate": 0.4}
    draw = random.Random(1)
    for step in range(200):
        monitor.observe(Row(step, {name: level * (1 + 0.05 * draw.gauss(0, 1)) for name, level in levels.items()}))
    plan = monitor._planner.plan(tuple(levels))
    asked = sum(state.guards is None for state in plan.rules)
    assert len(plan.rules) > 30 and asked < len(plan.rules) / 3


def test_spikes_finiteness_and_vetoed_rules_rest() -> None:
    """They sleep through calm rows with the same metrics; a NaN wakes what looks for it in its very row."""
    monitor, draw = Monitor(Run("run"), PACK, PACK.catalogue), random.Random(1)
    levels = {"reward": 0.5, "grad_norm": 0.4, "lr": 1e-3, "approx_kl": 0.01, "kl_ref": 0.01, "entropy": 0.6}
    rows = [{name: level * (1 + 0.05 * draw.gauss(0, 1)) for name, level in levels.items()} for _ in range(60)]
    for step, row in enumerate(rows):
        monitor.observe(Row(step, row))
    asleep = {state.rule.id for state in monitor._roster.states if state.guards is not None}
    assert asleep >= {"grad-norm-spike", "not-finite", "kl-not-finite", "ratio-moves-with-frozen-weights"}
    report = monitor.observe(Row(60, rows[0] | {"grad_norm": float("nan")}))
    assert "not-finite" in {alert.rule for alert in report.alerts}


FLOATS = st.floats(-10, 10, allow_nan=False) | st.sampled_from([0.0, 1.0, -1.0, 0.5])


@given(st.sampled_from(["above", "at_least", "below", "at_most"]), FLOATS, FLOATS, FLOATS, st.booleans())
def test_a_side_holds_or_not_throughout(word, bound, value, other, absolute) -> None:
    """A value is on its own side, and what is in the interval compares with the bound as it does."""
    bound = abs(bound) if absolute else bound
    low, high = side(word, bound, value, absolute)
    compare = {"above": "__gt__", "at_least": "__ge__", "below": "__lt__", "at_most": "__le__"}[word]
    holds = [getattr(abs(one) if absolute else one, compare)(bound) for one in (value, other)]
    assert low <= value <= high
    assert not low <= other <= high or holds[0] == holds[1]


@given(FLOATS, FLOATS, FLOATS)
def test_unequal_values_stay_unequal(value, bound, other) -> None:
    """The interval of a value that differs from a bound leaves the bound out."""
    low, high = unequal(value, bound)
    assert low <= value <= high
    assert not low <= other <= high or (other == bound) == (value == bound)


def gain_rules() -> RulePack:
    """Gains compared with limits of every kind."""
    limits = [(word, limit) for word in ("above", "at_least", "below", "at_most") for limit in (-4, -1, 0, 2, 5)]
    rules = [
        Rule(
            f"gain-{word}-{limit}",
            "x",
            "outcome",
            "warning",
            Threshold(metric="reward", stat="gain_z", **{word: terms.number(limit)}),
            {"mask_shift": 1.0},
            "invariants",
        )
        for word, limit in limits
    ]
    return RulePack("gains", tuple(rules))


@pytest.mark.parametrize("seed", range(12))
def test_a_gain_rests_no_longer_than_its_noise_allows(seed) -> None:
    """The noise falls from one row to the next, while the values stay: soon a small gain is many standard errors."""
    pack, draw = gain_rules(), random.Random(seed)
    rows, level, spread = [], 0.5, 0.1
    for step in range(400):
        if draw.random() < 0.04:
            level, spread = 0.5 + draw.choice([-0.15, -0.03, 0.0, 0.03, 0.15]), draw.choice([0.1, 0.01, 0.001, 0.0])
        rows.append(Row(step, {"reward": level + spread * draw.gauss(0, 1)}))
    asleep = 0
    said = {}
    for kind in (Monitor, Restless):
        monitor, told = kind(Run("run"), pack, PACK.catalogue), []
        for row in rows:
            told.append((monitor.observe(row), [monitor.explain(rule.id).holds for rule in pack.rules]))
            asleep += sum(state.guards is not None for state in monitor._roster.states)
        said[kind] = told
    assert same(said[Monitor], said[Restless]) and asleep > len(rows)
