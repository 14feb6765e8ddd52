"""A watched run tells its gauges what watching costs, which rules failed, and what is healthy at this step."""

from dataclasses import replace
from pathlib import Path

import pytest

from rltriage.engine.reference import Range, Reference
from rltriage.engine.rows import Fact, Row, Run
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.page.board import Board
from rltriage.exporters.report.build import build
from rltriage.exporters.report.collect import Collectors
from rltriage.recorded import read_runs
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.loader import load_rules
from rltriage.watching import WatchedRun

RUNS = Path(__file__).parents[1] / "data" / "runs"


@pytest.fixture
def recorded():
    """A healthy run of the reference trainer, with its config facts."""
    return read_runs(RUNS, ["control_max_turns_12", "mask_shift"])


def shown(gauges, run, name, **labels):
    """Values of a run's series by name and labels."""
    return [
        value
        for series, value in gauges.samples_of(run)
        if series.family.sample_name == name and labels.items() <= dict(series.labels).items()
    ]


def test_seconds_grow_and_the_interval_is_the_rows_own(recorded):
    """The engine's cost is exported by a live run, not by tests alone."""
    pack = load_rules("triage")
    gauges = Gauges(pack.catalogue.metrics)
    watched = WatchedRun(Run("a"), pack, (gauges,))
    seconds = []
    for row in recorded[0].rows[:6]:
        watched.emit(row._replace(time=1000.0 + 30 * row.step))
        seconds += shown(gauges, "a", "rltriage_evaluation_seconds_total")
    assert seconds == sorted(seconds) and len(set(seconds)) == 6 and 0 < seconds[0] < seconds[-1] < 60
    assert shown(gauges, "a", "rltriage_row_interval_seconds") == [30.0]
    assert shown(gauges, "a", "rltriage_rules_failed") == [0.0]


def test_healthy_ranges_are_shown_where_the_reference_fits(recorded):
    """Within what a metric can be; a run with other facts has none, nor has one beyond the reference's steps."""
    pack = load_rules("triage")
    (fitting,) = [run for run in recorded if run.name == "mask_shift-s0"]
    gauges = Gauges(pack.catalogue.metrics)
    run = fitting.run()
    watched = WatchedRun(run, pack, (gauges,))
    family = "rltriage_healthy_zero_advantage_groups_ratio"
    for row in fitting.rows:
        watched.emit(row)
        (low,), (high,) = (shown(gauges, run.id, family, bound=bound) for bound in ("low", "high"))
        assert 0 <= low < high <= 1
    watched.emit(Row(500, fitting.rows[-1].metrics))
    assert shown(gauges, run.id, family) == []
    other = Run("other", facts={**run.facts, "lr": Fact(0.5, "declared")})
    unlike = WatchedRun(other, pack, (gauges,))
    unlike.emit(fitting.rows[0])
    assert shown(gauges, "other", "rltriage_reward_mean") and shown(gauges, "other", family) == []


def test_a_rule_that_fails_is_counted_for_its_run(recorded, monkeypatch):
    """What is switched off is seen from outside, so that somebody hears of it."""
    pack = load_rules("triage")
    rule = next(rule for rule in pack.rules if isinstance(rule.when, Threshold) and not rule.requires)

    def bind(self, view):
        def check():
            raise ZeroDivisionError

        return check

    monkeypatch.setattr(Threshold, "bind", bind)
    gauges = Gauges(pack.catalogue.metrics)
    watched = WatchedRun(Run("a"), replace(pack, rules=(rule,)), (gauges,))
    for row in recorded[0].rows[:3]:
        watched.emit(row)
    assert shown(gauges, "a", "rltriage_rules_failed") == [1.0]
    assert list(watched.monitor.failed_rules) == [rule.id]


def test_healthy_ranges_are_looked_up_once_a_phase(recorded, monkeypatch):
    """They change with the reference's phase and with the rules alone, and a row must cost little."""
    pack = load_rules("triage")
    (fitting,) = [run for run in recorded if run.name == "mask_shift-s0"]
    watched = WatchedRun(fitting.run(), pack, (Gauges(pack.catalogue.metrics),))
    asked = []
    real = watched.monitor.healthy
    monkeypatch.setattr(watched.monitor, "healthy", lambda metrics: asked.append(watched.monitor.age) or real(metrics))
    for step in (0, 1, 2, 500, 501, 502, 503):
        watched.emit(Row(step, fitting.rows[0].metrics))
    assert asked == [0, 1, 2, 500], "each step of the reference is a phase, and none beyond it"
    watched.reload(pack)
    watched.emit(Row(504, fitting.rows[0].metrics))
    assert asked[-1] == 504


@pytest.mark.parametrize("sink", [Board, Collectors])
def test_pages_and_reports_draw_the_references_that_rules_compare_with(sink):
    """The user's own, and not the shipped ones: a picture that contradicts its alert is worse than none."""
    pack, run = load_rules("triage"), Run("r", facts={"kl_coef": Fact(0.1, "declared")})
    ours = Reference("ours", ((0, 99),), {"kl_ref": (Range(0.01, 0.002, 0.001, 0.005, 0.02),)}, {"kl_coef": 0.1}, ("a",))
    shown = sink()
    watched = WatchedRun(run, pack, (shown,), [ours])
    for step in range(3):
        watched.emit(Row(step, {"kl_ref": 0.01, "reward": 0.5}))
    report = shown.report("r") if isinstance(shown, Board) else build(shown.of(run), pack)
    assert [line.metric for line in report.metrics if line.band] == ["kl_ref"] and not report.why_no_band
