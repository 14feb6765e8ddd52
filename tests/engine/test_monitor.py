"""The monitor: rows, repeats, merges, segments, rewinds, facts, the alert's life, failures, reload."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltriage.engine.monitor import Monitor
from rltriage.engine.report import Incident
from rltriage.engine.rows import Fact, Row, Run
from rltriage.rules.conditions.absent import Absent
from rltriage.rules.conditions.base import Kind, Verdict
from rltriage.rules.conditions.departure import Departure
from rltriage.rules.conditions.divergence import Divergence
from rltriage.rules.conditions.logic import All, Any
from rltriage.rules.conditions.nonfinite import Nonfinite
from rltriage.rules.conditions.repeated import Repeated
from rltriage.rules.conditions.spike import Spike
from rltriage.rules.conditions.terms import Term, Window, number
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.conditions.trend import Trend
from rltriage.rules.conditions.trivial import Trivial
from rltriage.rules.loader import load_rules
from rltriage.rules.model import Catalogue, RulePack

HIGH = Threshold(metric="x", above=number(0.5))


def short(alerts):
    """(rule, state, step) of each transition."""
    return [(alert.rule, alert.state, alert.step) for alert in alerts]


def test_an_alert_fires_and_resolves(watch, rule, rows) -> None:
    """`for` counts observations in a row; the onset is the first of them; the id stays the same."""
    alerts = rows(watch(rule(hold=3)), x=[1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    assert short(alerts) == [("r", "firing", 4), ("r", "resolved", 6)]
    assert alerts[0].since_step == 2 and alerts[0].id == alerts[1].id
    assert alerts[0].values == {"x": 1.0} and alerts[0].summary == "x is 1"


def test_unknown_freezes_pending_and_firing(watch, rule, rows) -> None:
    """A row without the metric neither resets, nor counts, nor resolves."""
    monitor = watch(rule(hold=2))
    assert short(rows(monitor, x=[1.0, None, None, 1.0, None], y=[0.0] * 5)) == [("r", "firing", 3)]
    assert short(rows(monitor, x=[None, 0.0], y=[0.0] * 2, start=5)) == [("r", "resolved", 6)]


def test_keep_firing_for_waits_for_calm(watch, rule, rows) -> None:
    """It resolves at the second quiet observation in a row."""
    alerts = rows(watch(rule(keep_firing_for=2)), x=[1.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    assert short(alerts) == [("r", "firing", 0), ("r", "resolved", 4)]


def test_clear_when_adds_hysteresis(watch, rule, rows) -> None:
    """Without the second condition it stays firing."""
    clear = Threshold(metric="x", below=number(0.2))
    alerts = rows(watch(rule(clear_when=clear)), x=[1.0, 0.4, 0.3, 0.1])
    assert short(alerts) == [("r", "firing", 0), ("r", "resolved", 3)]


def test_recovery_is_measured_from_the_firing(watch, rule, rows) -> None:
    """`at_firing` holds the level of another metric when the rule fired."""
    back = Threshold(metric="reward", at_least=Term(metric="reward", stat="at_firing", recent=1, times=2.0))
    monitor = watch(rule(clear_when=back))
    alerts = rows(monitor, x=[1.0, 0.0, 0.0], reward=[0.25, 0.4, 0.5])
    assert short(alerts) == [("r", "firing", 0), ("r", "resolved", 2)]


def test_warm_up_is_ignored(watch, rule, rows) -> None:
    """`after` counts the rule's own observations."""
    assert short(rows(watch(rule(after=2)), x=[1.0, None, 1.0, 1.0], y=[0.0] * 4)) == [("r", "firing", 3)]


def test_unless_blocks_only_when_it_is_known(watch, rule, rows) -> None:
    """An unknown veto does not block; a true one freezes."""
    guarded = rule(unless=Threshold(metric="veto", above=number(0.5)))
    assert short(rows(watch(guarded), x=[1.0])) == [("r", "firing", 0)]
    assert short(rows(watch(guarded), x=[1.0, 1.0], veto=[1.0, 0.0])) == [("r", "firing", 1)]
    assert short(rows(watch(guarded), x=[1.0, 1.0, 0.0], veto=[0.0, 1.0, 1.0])) == [
        ("r", "firing", 0),
        ("r", "resolved", 2),
    ]


def test_coming_and_going_becomes_one_state(watch, rule, rows) -> None:
    """The third cycle is flapping; it resolves after twenty calm observations."""
    monitor = watch(rule())
    alerts = rows(monitor, x=[1.0, 0.0] * 8)
    assert [alert.state for alert in alerts] == ["firing", "resolved", "firing", "resolved", "firing", "flapping"]
    assert [alert.state for alert in monitor.open_alerts] == ["flapping"]
    assert short(rows(monitor, x=[0.0] * 30, start=16)) == [("r", "resolved", 34)]
    assert monitor.open_alerts == ()


def test_the_end_closes_without_resolving(watch, rule, rows) -> None:
    """An ended run keeps its evidence: `ended`, or `stale` when rows stop; a later row may open it again."""
    monitor = watch(rule())
    rows(monitor, x=[1.0])
    assert short(monitor.close("stale").alerts) == [("r", "stale", 0)]
    assert short(rows(monitor, x=[1.0], start=1)) == [("r", "firing", 1)]
    assert short(monitor.close().alerts) == [("r", "ended", 1)]
    assert monitor.close().alerts == ()


def test_rows_that_go_on_decide_over_stale_alerts(watch, rule, rows) -> None:
    """Stale is no end: the alert keeps its id, and the next row makes it fire again, resolve, or flap as it did."""
    monitor = watch(rule())
    rows(monitor, x=[1.0])
    (first,) = monitor.open_alerts
    assert short(monitor.close("stale").alerts) == [("r", "stale", 0)]
    assert monitor.close("stale").alerts == () and [one.state for one in monitor.open_alerts] == ["stale"]
    (again,) = rows(monitor, x=[1.0], start=1)
    assert again.id == first.id and rows(monitor, x=[1.0], start=2) == []
    monitor.close("stale")
    assert short(rows(monitor, x=[0.0], start=3)) == [("r", "resolved", 3)]
    rows(monitor, x=[1.0, 0.0, 1.0, 0.0], start=4)
    monitor.close("stale")
    assert short(rows(monitor, x=[0.0], start=8)) == [("r", "flapping", 8)]


def test_repeats_are_ignored_and_repeating_values_are_not(watch, rule) -> None:
    """The same step again counts once; a new step with the same values is an observation of a dead run."""
    monitor = watch(rule(hold=3))
    for _ in range(5):
        assert monitor.observe(Row(0, {"x": 1.0})).alerts == ()
    assert monitor.counters.repeats == 4
    assert monitor.observe(Row(1, {"x": 1.0})).alerts == ()
    assert short(monitor.observe(Row(2, {"x": 1.0})).alerts) == [("r", "firing", 2)]


def test_records_of_one_step_merge_in_any_order(watch, rule) -> None:
    """Disjoint keys of a step give the same alerts as one row, whatever comes first."""
    both = rule(when=All((HIGH, Threshold(metric="y", above=number(0.5)))), hold=2)
    expected = [("r", "firing", 1)]
    for order in (("x", "y"), ("y", "x")):
        monitor = watch(both)
        found = []
        for step in range(2):
            for name in order:
                found += monitor.observe(Row(step, {name: 1.0})).alerts
        assert short(found) == expected
        assert monitor.counters.merged == 2


def test_a_merged_record_is_no_second_observation(watch, rule) -> None:
    """Rules that do not read the new keys are left alone; those that do are judged anew, not counted twice."""
    monitor = watch(rule(hold=2), rule("any", Any((HIGH, Threshold(metric="y", above=number(0.5)))), hold=2))
    assert monitor.observe(Row(0, {"x": 1.0})).alerts == ()
    assert monitor.observe(Row(0, {"y": 1.0})).alerts == ()
    assert monitor.observe(Row(0, {"z": 1.0})).alerts == ()
    assert sorted(short(monitor.observe(Row(1, {"x": 1.0, "y": 1.0})).alerts)) == [("any", "firing", 1), ("r", "firing", 1)]


def test_the_first_value_of_a_step_stays(watch, rule) -> None:
    """A second record that contradicts the first is counted, its other keys are read."""
    monitor = watch(rule())
    monitor.observe(Row(0, {"x": 0.0}))
    monitor.observe(Row(0, {"x": 1.0, "y": 1.0}))
    assert monitor.counters.conflicts == 1 and monitor.open_alerts == ()


def test_a_rule_observes_where_its_sparsest_metric_is_fresh(watch, rule, rows) -> None:
    """Carried values never count towards `for`: an evaluation every third row makes observations every third row."""
    sparse = rule(when=All((HIGH, Threshold(metric="eval", above=number(0.5)))), hold=2)
    alerts = rows(watch(sparse), x=[1.0] * 8, eval=[1.0, None, None, 1.0, None, None, 1.0, None])
    assert short(alerts) == [("r", "firing", 3)]


def test_a_step_back_to_the_first_is_a_new_segment(watch, rule, rows) -> None:
    """Open alerts close as superseded, histories restart, the next alert has another id."""
    monitor = watch(rule(when=Departure(metric="x", factor=2.0, baseline=2, window=1)))
    first = rows(monitor, x=[1.0, 1.0, 5.0])
    second = rows(monitor, x=[5.0, 5.0, 5.0, 20.0])
    assert short(first + second) == [("r", "firing", 2), ("r", "superseded", 0), ("r", "firing", 3)]
    assert second[-1].segment == 1 and monitor.counters.segments == 2
    assert first[0].id != second[-1].id


def test_a_step_back_to_the_middle_drops_what_followed(watch, rule, rows) -> None:
    """The baseline stays, the window is filled again."""
    monitor = watch(rule(when=Departure(metric="x", factor=2.0, baseline=2, window=3), keep_firing_for=9))
    assert short(rows(monitor, x=[1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0])) == []
    assert short(rows(monitor, x=[3.0], start=5)) == []
    assert short(rows(monitor, x=[3.0], start=6)) == [("r", "firing", 6)]
    assert monitor.counters.rewinds == 1 and monitor.segment == 0


def test_a_partial_last_batch_is_read_but_not_judged(watch, rule, rows) -> None:
    """Under half the usual episodes nothing fires; half is enough."""
    for episodes, fired in ((31.0, []), (32.0, [("r", "firing", 4)])):
        monitor = watch(rule())
        assert short(rows(monitor, x=[0.0] * 4 + [1.0], n_episodes=[64.0] * 4 + [episodes])) == fired


def test_a_violated_requirement_switches_the_rule_off(watch, rule, rows) -> None:
    """Known and violated: silent, and listed with the reason."""
    monitor = watch(rule(requires={"kl_coef": {"above": 0}}), config={"kl_coef": 0})
    assert rows(monitor, x=[1.0]) == []
    assert monitor.rules_skipped == {"r": "config: kl_coef is 0"}
    assert monitor.rules_evaluated == 0
    assert monitor.explain("r").holds is None


def test_an_unknown_requirement_caps_the_severity_and_asks(watch, rule, rows) -> None:
    """The alert is info and carries the one question that would decide."""
    (alert,) = rows(watch(rule(severity="critical", requires={"kl_coef": {"above": 0}})), x=[1.0])
    assert alert.severity == "info" and "--config kl_coef=" in alert.question


def test_a_fact_that_the_rows_state_decides(watch, rule) -> None:
    """An open alert gets its full severity when the fact appears, and closes when the fact speaks against it."""
    for value, state, severity in ((0.04, "firing", "critical"), (0.0, "superseded", "info")):
        monitor = watch(rule(severity="critical", requires={"kl_coef": {"above": 0}}))
        monitor.observe(Row(0, {"x": 1.0}))
        (alert,) = monitor.observe(Row(1, {"x": 1.0, "kl_coef": value})).alerts
        assert (alert.state, alert.severity) == (state, severity)
        assert monitor.facts["kl_coef"] == Fact(value, "logged", "in the rows")


def test_facts_are_inferred_but_never_override(watch, rule) -> None:
    """A ratio off 1 proves a second update unless samples are stale; a declared fact stays."""
    row = Row(0, {"ratio_max": 1.3, "kl_ref": 0.01})
    plain, declared, stale = watch(), watch(config={"updates_per_batch": 1}), watch(config={"async_lag": 2})
    for monitor in (plain, declared, stale):
        monitor.observe(row)
    assert plain.facts["updates_per_batch"].provenance == "inferred" and plain.facts["kl_term"].value is True
    assert declared.facts["updates_per_batch"] == Fact(1, "declared")
    assert "updates_per_batch" not in stale.facts


def test_skipped_rules_name_what_was_never_logged(watch, rule, rows) -> None:
    """A rule is evaluated when it could have fired on the metrics seen."""
    some = Any((HIGH, Threshold(metric="never", above=number(0.5))))
    every = All((HIGH, Threshold(metric="never", above=number(0.5))))
    monitor = watch(rule("some", some), rule("every", every), rule("every-row", Nonfinite()))
    rows(monitor, x=[0.0])
    assert monitor.rules_skipped == {"every": "never logged: never"}
    assert monitor.rules_evaluated == 2


def test_overdue_rows_are_seen_by_the_clock_alone(watch, rule) -> None:
    """`tick` fires the rule about silence, a later row resolves it, no other rule is judged by time."""
    monitor = watch(rule("late", Absent(overdue=5.0, seconds=30.0)), rule())
    for step in range(5):
        monitor.observe(Row(step, {"x": 0.0}, 1000.0 + 10 * step))
    assert monitor.tick(1060.0).alerts == ()
    assert short(monitor.tick(1091.0).alerts) == [("late", "firing", 4)]
    assert monitor.tick(1100.0).alerts == ()
    assert short(monitor.observe(Row(5, {"x": 0.0}, 1101.0)).alerts) == [("late", "resolved", 5)]


class Broken(Kind):
    """A condition that fails at one row."""

    kind = "broken"

    def metrics(self):
        """It reads x."""
        return frozenset(("x",))

    def bind(self, view):
        """Fails when x is 2."""
        last = view.last("x")

        def check(past):
            return 1 / (2 - last(past)) < 0

        return check

    def explain(self, view, past):
        """Never reached."""
        return Verdict(None, {}, "")


class BrokenTracker(Broken):
    """A condition whose tracker fails at one row."""

    class Tracker:
        """Fails when x is 2."""

        reach = 0
        done = False

        def push(self, value):
            """Take one observation."""
            1 / (2 - value)

    def bind(self, view):
        """Ask for the tracker."""
        view.track("x", ("broken",), lambda past: self.Tracker())
        return lambda past: None


@pytest.mark.parametrize("kind", [Broken, BrokenTracker])
def test_a_failing_condition_is_switched_off_alone(watch, rule, rows, kind) -> None:
    """It is counted and listed; the other rules and the run go on."""
    monitor = watch(rule("bad", kind()), rule())
    assert short(rows(monitor, x=[0.0, 2.0, 2.0, 0.0])) == [("r", "firing", 1), ("r", "resolved", 3)]
    assert monitor.counters.errors == 1
    assert monitor.rules_skipped["bad"].startswith("failed: ZeroDivisionError")


class Judge:
    """A triage that explains one rule by another and names an incident; or fails."""

    def __init__(self, explained=None, error=None) -> None:
        self.explained, self.error, self.calls = explained or {}, error, []

    def update(self, run, facts, open_alerts, row, logged):
        """Remember the call."""
        self.logged = logged
        self.calls.append((row.step, tuple(alert.rule for alert in open_alerts)))
        if self.error:
            raise self.error
        incident = Incident("i", run.id, row.step, row.step, "warning", (), "", "", "continue", ())
        return self.explained, incident


def test_triage_is_asked_when_something_changed(watch, rule, rows) -> None:
    """At transitions and at results of invariants only; its explanations reach the alerts."""
    judge = Judge({"b": "a"})
    monitor = watch(rule("a"), rule("b"), triage=judge)
    alerts = rows(monitor, x=[0.0, 1.0, 1.0, 0.0], check_mask=[None, None, 1.0, None])
    assert judge.calls == [(1, ("a", "b")), (2, ("a", "b")), (3, ())]
    assert [alert.explained_by for alert in alerts[:2]] == [None, "a"]
    assert monitor.observe(Row(9, {"x": 1.0})).incident is not None


def test_triage_hears_of_every_metric_of_the_run(watch, rule) -> None:
    """Of rows without a transition, of other records of the step and of values that are no number, too."""
    judge = Judge()
    monitor = watch(rule(), triage=judge)
    for step, metrics in ((0, {"early": 1.0}), (1, {"beside": 1.0}), (1, {"x": 1.0, "odd": float("nan")})):
        monitor.observe(Row(step, metrics))
    assert judge.logged == {"early", "beside", "x", "odd"}


def test_a_failing_triage_loses_no_alert(watch, rule, rows) -> None:
    """The alert goes out without an explanation, the error is counted."""
    monitor = watch(rule(), triage=Judge(error=RuntimeError("no")))
    assert short(rows(monitor, x=[1.0])) == [("r", "firing", 0)]
    assert monitor.counters.errors == 1


def test_reload_keeps_unchanged_rules_and_restarts_changed_ones(watch, rule, rows) -> None:
    """Alerts of removed and changed rules close as superseded; a changed rule starts from the history that is kept."""
    level = Departure(metric="x", factor=2.0, baseline=2, window=2)
    monitor = watch(rule("same"), rule("gone"), rule("new", level))
    rows(monitor, x=[1.0] * 4)
    report = monitor.reload(RulePack("p", (replace(monitor.pack.rules[0], summary="other"), rule("new", level, hold=2))))
    assert short(report.alerts) == [("gone", "superseded", 3)]
    assert [alert.rule for alert in monitor.open_alerts] == ["same"]
    assert short(rows(monitor, x=[3.0, 3.0, 3.0], start=4)) == [("new", "firing", 5)]


@pytest.mark.parametrize(
    "change", [{"suspects": {"sign_flip": 1.0}}, {"labels": {"team": "b"}}, {"first_test": "x"}, {"group": "liveness"}]
)
def test_a_rule_that_is_called_otherwise_is_another(watch, rule, rows, change) -> None:
    """What identifies an alert to its receivers cannot change while it is open: the old one closes, a new one fires."""
    monitor = watch(rule("a"))
    rows(monitor, x=[1.0])
    report = monitor.reload(RulePack("p", (replace(monitor.pack.rules[0], **change),)))
    assert short(report.alerts) == [("a", "superseded", 0)]
    assert short(rows(monitor, x=[1.0], start=1)) == [("a", "firing", 1)]


def test_explain_gives_reason_and_numbers(watch, rule, rows) -> None:
    """At any row, for any rule; an unknown id is an error."""
    monitor = watch(rule(unless=Threshold(metric="veto", above=number(0.5))))
    rows(monitor, x=[0.75], veto=[1.0])
    verdict = monitor.explain("r")
    assert verdict.holds is None and verdict.values == {"x": 0.75}
    assert verdict.reason == "x = 0.75, limit: above 0.5; but not judged while veto = 1, limit: above 0.5"
    with pytest.raises(KeyError):
        monitor.explain("nobody")


def test_explain_says_that_a_rule_is_off(watch, rule, rows) -> None:
    """What the configuration rules out is not unknown for want of rows."""
    monitor = watch(rule(requires={"kl_coef": {"above": 0.049}}), config={"kl_coef": 0.04})
    rows(monitor, x=[1.0])
    assert monitor.explain("r").reason == "off: config: kl_coef is 0.04"


RULES = (
    ("threshold", HIGH, {"hold": 2}),
    ("departure", Departure(metric="x", factor=1.5, window=2), {"keep_firing_for": 2}),
    ("spike", Repeated(Spike(metric="y"), 2, 10), {}),
    ("trend", Trend(metric="x", direction="down", window=8), {"after": 3}),
    ("trivial", Trivial(metric="y", equals=0.0, informative=False), {}),
    ("window", Threshold(metric="y", window=Window(4, "max"), above=Term(metric="x", stat="best", times=1.5)), {}),
    ("both", All((HIGH, Threshold(metric="e", above=number(0.5)))), {"hold": 2}),
    ("ratio", Divergence(left="x", right="y", mode="ratio", factor=1.2, baseline=2, window=2), {"unless": HIGH}),
    ("bad", Nonfinite(names=("x", "y")), {}),
)
NUMBER = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 2.0, float("nan"), float("inf")])
ROW = st.fixed_dictionaries({}, optional={"x": NUMBER, "y": NUMBER, "e": NUMBER})
JUMP = st.sampled_from([1] * 12 + [0, 2, -2, -1000])


def steps(jumps):
    """Steps with repeats, gaps, rewinds and restarts."""
    step, found = 0, []
    for jump in jumps:
        found.append(step)
        step = max(0, step + jump)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(JUMP, ROW), min_size=1, max_size=60), st.data())
def test_rebuilding_by_replay_gives_the_same_state(pairs, data) -> None:
    """Kill the process after any row: replaying the journal and going on equals never having stopped."""
    run = [Row(step, row) for step, (_, row) in zip(steps(jump for jump, _ in pairs), pairs, strict=True)]
    live, whole = build(RULES), build(RULES)
    cut = data.draw(st.integers(0, len(run)))
    expected = [whole.observe(row) for row in run]
    for row in run[:cut]:
        live.observe(row)
    again = build(RULES)
    found = [again.observe(row) for row in run[:cut]] + [again.observe(row) for row in run[cut:]]
    rest = [live.observe(row) for row in run[cut:]]
    assert [r.alerts for r in found] == [r.alerts for r in expected]
    assert [r.alerts for r in rest] == [r.alerts for r in expected[cut:]]
    assert [live.explain(name) == again.explain(name) or name == "bad" for name, _, _ in RULES] == [True] * len(RULES)
    assert live.counters == again.counters == whole.counters


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(JUMP, ROW), min_size=1, max_size=60), st.integers(0, len(RULES) - 1), st.randoms())
def test_other_rules_never_change_a_verdict(pairs, index, shuffle) -> None:
    """Sharing readers and trackers is invisible: a rule gives the same transitions alone and among all."""
    run = [Row(step, row) for step, (_, row) in zip(steps(jump for jump, _ in pairs), pairs, strict=True)]
    crowd = list(RULES)
    shuffle.shuffle(crowd)
    alone, among = build(RULES[index : index + 1]), build(crowd)
    for row in run:
        mine = [alert for alert in among.observe(row).alerts if alert.rule == RULES[index][0]]
        assert mine == list(alone.observe(row).alerts)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(JUMP, ROW), min_size=1, max_size=40), st.sampled_from(["x", "y", "e"]))
def test_what_is_never_logged_never_fires(pairs, missing) -> None:
    """Rules that need a metric that never comes stay unknown."""
    monitor = build(RULES)
    for step, (_, row) in zip(steps(jump for jump, _ in pairs), pairs, strict=True):
        fired = monitor.observe(Row(step, {name: value for name, value in row.items() if name != missing})).alerts
        needing = {name for name, when, _ in RULES if missing in when.metrics() and name != "bad"}
        assert not needing & {alert.rule for alert in fired}


def build(rules) -> Monitor:
    """A monitor of some of the rules above."""
    from rltriage.rules.model import Rule

    made = [
        Rule(name, "{x}", "outcome", "warning", when, {"mask_shift": 1.0}, "t", **options) for name, when, options in rules
    ]
    return Monitor(Run("run"), RulePack("p", tuple(made)), Catalogue({}, {}, {}))


def test_long_runs_stay_bounded(watch, rule) -> None:
    """Nothing grows with the rows once the windows are full."""
    monitor = build(RULES)
    draw = random.Random(0)
    sizes = []
    for step in range(3000):
        monitor.observe(Row(step, {"x": draw.random(), "y": draw.random(), "e": draw.random()}))
        if step in (1000, 2999):
            sizes.append({name: len(series.values) for name, series in monitor._history.series.items()})
    assert max(sizes[1].values()) <= 50


@pytest.mark.parametrize("from_start", [False, True])
def test_a_run_that_goes_back_often_switches_no_trend_off(watch, rule, from_start: bool) -> None:
    """A run resumed again and again has seen more observations than it has kept: the trend is unknown, not broken."""
    monitor = watch(rule("t", Trend(metric="x", direction="up", window=20, from_start=from_start)))
    for back in (0, 15, 10, 3, 1):
        for step in range(back, 25):
            monitor.observe(Row(step, {"x": float(step % 7)}))
    assert monitor.counters.rewinds == 4
    assert monitor.counters.errors == 0


def test_the_shipped_rules_survive_any_way_back() -> None:
    """Steps that jump about, as those of threads that share a logger, and values of every size break no rule."""
    pack = load_rules("triage")
    metrics = sorted({metric for one in pack.rules for metric in one.metrics})
    random.seed(5)
    for _ in range(3):
        run = Run("run", facts={"kl_coef": Fact(0.1, "declared"), "updates_per_batch": Fact(2, "declared")})
        monitor, step = Monitor(run, pack, pack.catalogue), 0
        for _ in range(150):
            step = max(1, step - random.randrange(40)) if random.random() < 0.15 else step + random.choice((1, 1, 1, 2, 50))
            values = (0.0, 1.0, random.random(), -1e308, 1e308, float("inf"), float("nan"))
            row = {name: random.choice(values) for name in metrics if random.random() < 0.8}
            monitor.observe(Row(step, row))
        assert monitor.counters.rewinds > 5
        assert monitor.counters.errors == 0
