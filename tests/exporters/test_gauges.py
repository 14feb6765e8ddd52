"""What a scrape shows of runs, rows and alerts, and that handing a row over can neither raise nor mix steps."""

import gzip
import math
import threading
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rltriage.engine.report import EMPTY, Incident, StepReport, Suspect
from rltriage.engine.rows import Fact, Row, Run
from rltriage.exporters.gauges import QUIET_RUNS, Gauges
from rltriage.exporters.naming import Family, Names, Series
from rltriage.exporters.state import Health
from rltriage.rules.model import MetricInfo, Rule
from rltriage.watching import WatchedRun

RUN = Run("demo", {"project": "gym"})


def values(gauges, openmetrics=False):
    """Samples of a scrape as {(name, labels): value}; a duplicate series fails."""
    parse = parse_openmetrics if openmetrics else parse_text
    samples = [sample for family in parse(gauges.render(openmetrics).decode()) for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def value(gauges, name, **labels):
    """The value of the one series with these labels among its own, or None."""
    found = [v for (key, own), v in values(gauges).items() if key == name and labels.items() <= dict(own).items()]
    assert len(found) <= 1
    return found[0] if found else None


def test_a_row_becomes_gauges_under_canonical_names_and_run_labels(gauges):
    """Metrics, step, row count and time of a row carry the run's labels."""
    gauges.publish(RUN, Row(3, {"reward": 0.5, "clip_frac": 0.25, "ratio_max": math.inf}, time=77.0), EMPTY)
    assert value(gauges, "rltriage_reward_mean", run="demo", project="gym") == 0.5
    assert value(gauges, "rltriage_clipped_tokens_ratio") == 0.25
    assert value(gauges, "rltriage_importance_weight_max") == math.inf
    assert value(gauges, "rltriage_training_step") == 3
    assert value(gauges, "rltriage_rows_total") == 1
    assert value(gauges, "rltriage_last_row_timestamp_seconds") == 77.0
    assert value(gauges, "rltriage_run_state", state="running") == 1
    assert value(gauges, "rltriage_run_state", state="crashed") == 0


def test_a_row_without_time_is_dated_by_its_arrival(gauges, clock):
    """The alert on a stalled run needs a time even where the log has none."""
    gauges.publish(RUN, Row(0, {"reward": 0.0}), EMPTY)
    assert value(gauges, "rltriage_last_row_timestamp_seconds") == clock.now


def test_outcome_and_check_are_labels_of_one_family(gauges):
    """A metric split by outcome or by invariant is one family."""
    row = {
        "length_pass": 10.0,
        "length_fail": 20.0,
        "check_mask_is_policy_tokens": 0.0,
        "check_mask_is_policy_tokens_value": 41.0,
    }
    gauges.publish(RUN, Row(0, row), EMPTY)
    assert value(gauges, "rltriage_outcome_response_length_mean_tokens", outcome="correct") == 10
    assert value(gauges, "rltriage_outcome_response_length_mean_tokens", outcome="incorrect") == 20
    assert value(gauges, "rltriage_check_passed", check="mask_is_policy_tokens") == 0
    assert value(gauges, "rltriage_check_value", check="mask_is_policy_tokens") == 41


def test_a_metric_absent_from_the_newest_row_is_absent_but_evaluations_and_checks_stay(gauges):
    """An old value never looks like the new row's; what is measured now and then says at which step."""
    gauges.publish(RUN, Row(4, {"length_pass": 3.0, "eval_pass": 0.75, "check_mask": 1.0}), EMPTY)
    gauges.publish(RUN, Row(5, {"reward": 1.0}), EMPTY)
    assert value(gauges, "rltriage_outcome_response_length_mean_tokens") is None
    assert value(gauges, "rltriage_heldout_passed_episodes_ratio") == 0.75
    assert value(gauges, "rltriage_heldout_evaluation_step") == 4
    assert value(gauges, "rltriage_check_passed") == 1


def test_records_of_one_step_merge(gauges):
    """A logger that writes one step in two records shows both."""
    gauges.publish(RUN, Row(4, {"reward": 1.0}), EMPTY)
    gauges.publish(RUN, Row(4, {"entropy": 2.0}), EMPTY)
    assert value(gauges, "rltriage_reward_mean") == 1 and value(gauges, "rltriage_policy_entropy_nats") == 2


def test_a_row_handed_over_is_a_copy(gauges):
    """A loop that reuses its dict does not change what is shown."""
    metrics = {"reward": 1.0}
    gauges.publish(RUN, Row(0, metrics), EMPTY)
    metrics["reward"] = 2.0
    assert value(gauges, "rltriage_reward_mean") == 1


def test_an_unmapped_metric_is_extra_with_its_own_name_in_the_help(gauges):
    """A framework's own metric is exported, lower case, without a suffix that would make it a counter."""
    gauges.publish(RUN, Row(0, {"actor/Entropy.2": 1.0, "tokens_total": 5.0}), EMPTY)
    assert value(gauges, "rltriage_extra_actor_entropy_2") == 1
    assert value(gauges, "rltriage_extra_tokens_total_value") == 5
    assert "# HELP rltriage_extra_actor_entropy_2 Metric 'actor/Entropy.2' as logged\n" in gauges.render().decode()


def test_colliding_names_keep_the_first_and_are_counted(gauges):
    """Two logged names that would be one series never alternate in it."""
    gauges.publish(RUN, Row(0, {"a/b": 1.0, "a.b": 2.0}), EMPTY)
    assert value(gauges, "rltriage_extra_a_b") == 1
    assert value(gauges, "rltriage_exporter_dropped_total", reason="collision") == 1


def test_the_number_of_unmapped_names_is_bounded(metrics):
    """A logger that invents a name a step cannot grow the scrape without limit."""
    gauges = Gauges(metrics, max_extra=3)
    for step in range(10):
        gauges.publish(RUN, Row(step, {f"time/step_{step}": 1.0}), EMPTY)
        gauges.render()
    assert value(gauges, "rltriage_exporter_dropped_total", reason="extra") > 0
    assert gauges.render().count(b"TYPE rltriage_extra_") <= 3


def test_alert_state_with_identity_and_counters(gauges, alert):
    """A firing alert is 1 under its identity, counts each row that it lasts, and goes to 0 on resolve."""
    identity = {"rule": alert.rule, "severity": "critical", "fault": "mask_shift", "first_test": "check_mask"}
    gauges.publish(RUN, Row(7, {}), StepReport(7, (alert,)))
    gauges.publish(RUN, Row(8, {}), EMPTY)
    assert value(gauges, "rltriage_alert_firing", **identity) == 1
    assert value(gauges, "rltriage_rule_violations_total", rule=alert.rule) == 2
    gauges.publish(RUN, Row(9, {}), StepReport(9, (replace(alert, state="resolved"),)))
    assert value(gauges, "rltriage_alert_firing", **identity) == 0
    assert value(gauges, "rltriage_rule_violations_total", rule=alert.rule) == 2
    assert value(gauges, "rltriage_alert_transitions_total", to="firing") == 1
    assert value(gauges, "rltriage_alert_transitions_total", to="resolved") == 1


def test_a_changed_severity_leaves_the_old_series_at_zero(gauges, alert):
    """One rule of one run fires under one severity at a time."""
    gauges.publish(RUN, Row(7, {}), StepReport(7, (replace(alert, severity="info"),)))
    gauges.publish(RUN, Row(8, {}), StepReport(8, (alert,)))
    assert value(gauges, "rltriage_alert_firing", severity="info") == 0
    assert value(gauges, "rltriage_alert_firing", severity="critical") == 1


def test_an_alert_that_fires_and_resolves_within_one_row_is_counted_and_dated(gauges, alert, clock):
    """The counter and the time of the last firing show what no scrape of the state can."""
    gauges.publish(RUN, Row(7, {}), StepReport(7, (alert, replace(alert, state="resolved"))))
    assert value(gauges, "rltriage_alert_firing") == 0
    assert value(gauges, "rltriage_rule_violations_total") == 1
    assert value(gauges, "rltriage_alert_last_firing_timestamp_seconds", severity="critical") == clock.now


def test_stale_is_not_recovery_but_an_ended_run_closes_its_alerts(gauges, alert, clock):
    """Missing rows never resolve an alert."""
    gauges.publish(RUN, Row(7, {}), StepReport(7, (alert,)))
    gauges.publish(RUN, None, StepReport(7, (replace(alert, state="stale"),)))
    gauges.end("demo", "stale", clock.now)
    assert value(gauges, "rltriage_alert_firing") == 1
    assert value(gauges, "rltriage_rows_total") == 1
    gauges.end("demo", "finished", clock.now)
    assert value(gauges, "rltriage_alert_firing") == 0
    assert value(gauges, "rltriage_run_state", state="finished") == 1


def test_an_explained_alert_is_marked(gauges, alert):
    """Compiled rules can leave out what another alert explains."""
    gauges.publish(RUN, Row(7, {}), StepReport(7, (replace(alert, explained_by="nan-loss"),)))
    assert value(gauges, "rltriage_alert_explained", rule=alert.rule) == 1


def test_suspect_scores_follow_the_incident_and_go_with_the_last_alert(gauges, alert):
    """Scores of a closed incident do not linger."""
    suspects = (Suspect("mask_shift", "m", 0.8, 1), Suspect("staleness", "s", 0.1))
    incident = Incident("i", "demo", 7, 5, "critical", suspects, "t", "t", "stop", (alert.rule,))
    gauges.publish(RUN, Row(7, {}), StepReport(7, (alert,), incident))
    assert value(gauges, "rltriage_incident_suspect_score", fault="mask_shift") == 0.8
    told = {"severity": "critical", "fault": "mask_shift", "first_test": "t", "best_test": "t", "action": "stop"}
    assert value(gauges, "rltriage_incident_info", **told) == 1
    gauges.publish(RUN, Row(8, {}), StepReport(8, (replace(alert, state="resolved"),)))
    assert value(gauges, "rltriage_incident_suspect_score", fault="mask_shift") is None
    assert value(gauges, "rltriage_incident_info", **told) is None


def test_what_watching_costs_and_what_failed_is_shown_with_the_next_row(gauges):
    """Seconds, switched-off rules, the usual interval, and the healthy range of canonical metrics with their labels."""
    gauges.publish(RUN, Row(0, {"reward": 1.0}), EMPTY)
    assert value(gauges, "rltriage_rules_failed") == 0 and value(gauges, "rltriage_evaluation_seconds_total") == 0
    assert value(gauges, "rltriage_row_interval_seconds") is None
    healthy = {"length_fail": (9.0, 14.0), "entropy": (0.2, 0.5), "actor/unknown": (0.0, 1.0)}
    gauges.measured(RUN, Health(0.25, 2, 30.0, healthy))
    gauges.publish(RUN, Row(1, {"reward": 1.0}), EMPTY)
    assert value(gauges, "rltriage_rules_failed") == 2 and value(gauges, "rltriage_evaluation_seconds_total") == 0.25
    assert value(gauges, "rltriage_row_interval_seconds") == 30
    length = "rltriage_healthy_outcome_response_length_mean_tokens"
    assert value(gauges, length, outcome="incorrect", bound="low") == 9
    assert value(gauges, "rltriage_healthy_policy_entropy_nats", bound="high") == 0.5
    assert b"unknown" not in gauges.render()
    gauges.publish(replace(RUN, labels={"team": "a"}), Row(2, {"reward": 1.0}), EMPTY)
    assert value(gauges, "rltriage_rules_failed", run=RUN.id, team="a") == 2


def test_cost_of_a_run_that_is_refused_is_no_error(metrics):
    """Beyond the limit of runs nothing is kept, and nothing raises."""
    gauges = Gauges(metrics, max_runs=1)
    gauges.publish(Run("a"), Row(0, {}), EMPTY)
    gauges.measured(Run("b"), Health(1.0))
    assert value(gauges, "rltriage_exporter_runs") == 1


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("", {}),
        ("my score", {}),
        ("my_score", {"bad-label": "x"}),
        ("my_score", {"run": "x"}),
        ("my_score", {"__name__": "x"}),
        ("rltriage_rows_total", {}),
        ("rltriage_reward_mean", {}),
    ],
)
def test_a_metric_that_a_pack_declares_without_a_valid_name_is_exported_as_an_unknown_one(metrics, name, labels):
    """One family with a name that is none would make the whole scrape unreadable."""
    gauges = Gauges({**metrics, "rejected_frac": MetricInfo("rejected_frac", "", "", "", "", name, labels)})
    gauges.publish(RUN, Row(0, {"rejected_frac": 0.5, "reward": 1.0}), EMPTY)
    assert value(gauges, "rltriage_extra_rejected_frac") == 0.5 and value(gauges, "rltriage_reward_mean") == 1


def test_no_name_of_ours_is_left_to_a_metric(metrics, exported):
    """What the exporters and the service say of themselves is theirs; every metric of the catalogue keeps its own name."""
    catalogue = {info.prometheus for info in metrics.values()}
    names = Names({name: MetricInfo(name, "", "", "", "", name, {}) for name in exported})
    kept = {name for name in exported if names.find(name)[0].name == name}
    assert kept == catalogue and len(exported - catalogue) > 20


def test_a_metrics_own_label_wins_over_the_runs(metrics):
    """A label twice in one series would make the whole scrape unreadable."""
    gauges = Gauges({**metrics, "score": MetricInfo("score", "", "", "", "", "my_score", {"team": "judge"})})
    gauges.publish(Run("r", labels={"team": "core"}), Row(0, {"score": 0.5, "reward": 1.0}), EMPTY)
    assert value(gauges, "my_score", team="judge") == 0.5 and value(gauges, "rltriage_reward_mean", team="core") == 1


def test_what_a_hostile_pack_declares_is_scraped(hostile_pack):
    """Its metrics, its labels and those of a run with the same names: both formats are read by the official parsers."""
    pack = hostile_pack()
    mine = [name for name in pack.catalogue.metrics if name.startswith("m") and name[1:].isdigit()]
    gauges = Gauges(pack.catalogue.metrics)
    labels = {text: text for fault in pack.catalogue.faults.values() for text in (fault.title, fault.summary)}
    watched = WatchedRun(Run('r{{x}}\n"', labels), pack, [gauges])
    for step in range(3):
        watched.emit(Row(step, dict.fromkeys(mine, 1.0)))
    found = values(gauges)
    assert found.keys() == values(gauges, openmetrics=True).keys() and len(found) > len(mine) > 20
    assert value(gauges, "rltriage_alert_firing", rule="rule-0") == 1


def test_declared_rules_are_zero_before_they_fire(metrics, alert):
    """A dashboard tells a quiet rule from one that is not evaluated."""
    rule = Rule(alert.rule, "s", "consistency", "critical", None, {"mask_shift": 1.0}, "check_mask")
    gauges = Gauges(metrics, [rule])
    gauges.publish(RUN, Row(0, {}), EMPTY)
    assert value(gauges, "rltriage_alert_firing", rule=alert.rule) == 0
    assert value(gauges, "rltriage_rule_violations_total", rule=alert.rule) == 0
    gauges.publish(RUN, Row(1, {}), StepReport(1, (alert,)))
    assert value(gauges, "rltriage_alert_firing", rule=alert.rule) == 1


def test_quiet_rules_are_shown_for_few_runs_only(metrics, alert):
    """A service of many runs does not export thousands of zeros; a rule that fires is shown for any run."""
    rule = Rule(alert.rule, "s", "consistency", "critical", None, {"mask_shift": 1.0}, "check_mask")
    gauges = Gauges(metrics, [rule])
    for index in range(QUIET_RUNS + 5):
        gauges.publish(Run(f"run-{index}"), Row(0, {}), EMPTY)
    assert gauges.render().count(b"\nrltriage_alert_firing{") == QUIET_RUNS
    gauges.publish(Run(f"run-{QUIET_RUNS}"), Row(1, {}), StepReport(1, (alert,)))
    assert value(gauges, "rltriage_alert_firing", run=f"run-{QUIET_RUNS}") == 1


def test_samples_of_the_embedding_program_are_shown_and_cannot_break_a_scrape(metrics):
    """What `more` gives is fresh in every scrape; when it fails, the rest is still shown."""
    given = [(Series(Family("rltriage_queue_length", "gauge", "Entries"), ()), 3.0)]
    gauges = Gauges(metrics, more=lambda: given)
    assert value(gauges, "rltriage_queue_length") == 3
    given[0] = (given[0][0], 4.0)
    assert value(gauges, "rltriage_queue_length") == 4
    broken = Gauges(metrics, more=lambda: 1 / 0)
    assert value(broken, "rltriage_exporter_failures_total") >= 1


def test_series_of_an_ended_run_stay_for_the_declared_time_and_then_go(gauges, clock):
    """A dead run never looks alive."""
    gauges.publish(RUN, Row(0, {"reward": 1.0}), EMPTY)
    gauges.end("demo", "crashed", clock.now)
    clock.now += 59
    assert value(gauges, "rltriage_run_state", state="crashed") == 1
    clock.now += 2
    assert b"demo" not in gauges.render()


def test_a_row_after_the_end_makes_a_run_live_again(gauges, clock):
    """A stalled run that goes on is running, and is not forgotten."""
    gauges.publish(RUN, Row(0, {"reward": 1.0}), EMPTY)
    gauges.end("demo", "stale", clock.now)
    gauges.publish(RUN, Row(1, {"reward": 1.0}), EMPTY)
    clock.now += 100
    assert value(gauges, "rltriage_run_state", state="running") == 1


def test_the_number_of_runs_is_bounded_and_ended_runs_make_room(metrics, clock):
    """A new run replaces the oldest ended one; without one it is refused and counted."""
    gauges = Gauges(metrics, max_runs=2, clock=clock)
    for name in "ab":
        gauges.publish(Run(name), Row(0, {"reward": 1.0}), EMPTY)
    gauges.publish(Run("c"), Row(0, {"reward": 1.0}), EMPTY)
    assert value(gauges, "rltriage_exporter_dropped_total", reason="run") == 1
    gauges.end("a", "finished", clock.now)
    gauges.publish(Run("c"), Row(0, {"reward": 1.0}), EMPTY)
    assert value(gauges, "rltriage_rows_total", run="c") == 1
    assert value(gauges, "rltriage_rows_total", run="a") is None


@pytest.mark.parametrize("text", ['a"b\\c\nd', "é€\U0001f600", "x" * 500, "\ud800", "a=b,c}"])
def test_label_values_survive_the_parsers(gauges, text):
    """Quotes, newlines, long values and lone surrogates neither break a line nor grow it."""
    gauges.publish(Run(text, {"owner": text}), Row(0, {"reward": 1.0}), EMPTY)
    for openmetrics in (False, True):
        labels = [dict(own) for (name, own) in values(gauges, openmetrics) if name == "rltriage_reward_mean"]
        assert len(labels) == 1 and len(labels[0]["run"]) <= 128
        if len(text) < 128 and text.isprintable():
            assert labels[0]["run"] == text


def test_long_run_ids_stay_apart(gauges):
    """Cutting a value must not make two runs one series."""
    for end in "ab":
        gauges.publish(Run("r" * 300 + end), Row(0, {"reward": 1.0}), EMPTY)
    assert sum(name == "rltriage_reward_mean" for name, _ in values(gauges)) == 2


def test_label_names_of_a_run_are_made_valid_and_cannot_shadow_ours(gauges):
    """A label `rule` of a run must not be mistaken for an alert's."""
    gauges.publish(
        Run("demo", {"rule": "x", "my label!": "y", "0": "z", "": "w", "empty": ""}), Row(0, {"reward": 1.0}), EMPTY
    )
    labels = next(dict(own) for (name, own) in values(gauges) if name == "rltriage_reward_mean")
    assert labels == {"run": "demo", "label_rule": "x", "my_label": "y", "label_0": "z"}


def test_a_run_has_at_most_sixteen_labels_of_its_own(gauges):
    """Cardinality is bounded by the exporter, not by the user's care."""
    gauges.publish(Run("demo", {f"l{i}": "x" for i in range(40)}), Row(0, {"reward": 1.0}), EMPTY)
    assert max(len(own) for name, own in values(gauges) if name == "rltriage_reward_mean") == 17


def test_config_facts_are_labels_of_run_info_and_follow_the_run(gauges):
    """A fact that is inferred later appears; the row counter goes on."""
    gauges.publish(RUN, Row(0, {"reward": 1.0}), EMPTY)
    later = replace(RUN, facts={"kl_coef": Fact(0.05, "inferred"), "project": Fact("shadowed", "declared")})
    gauges.publish(later, Row(1, {"reward": 1.0}), EMPTY)
    assert value(gauges, "rltriage_run_info", kl_coef="0.05", profile="generic", project="gym") == 1
    assert value(gauges, "rltriage_rows_total") == 2


def test_both_formats_hold_the_same_samples(gauges, alert):
    """OpenMetrics and text differ in headers only."""
    gauges.publish(RUN, Row(1, {"reward": 0.1, "entropy": -0.0, "x": 1e-300}), StepReport(1, (alert,)))
    assert values(gauges, True) == values(gauges, False)


def test_gzip_holds_the_same_bytes_and_a_scrape_without_change_is_cached(gauges):
    """Nothing is formatted twice for the same rows."""
    gauges.publish(RUN, Row(1, {"reward": 0.1}), EMPTY)
    assert gzip.decompress(gauges.render(gzipped=True)) == gauges.render()
    assert gauges.render() is gauges.render()
    before = gauges.render()
    gauges.publish(RUN, Row(2, {"reward": 0.1}), EMPTY)
    assert gauges.render() != before


def test_nothing_that_a_caller_passes_raises(gauges):
    """A failing exporter counts its failures and leaves training alone."""
    gauges.publish(None, Row(0, {}), EMPTY)
    gauges.publish(RUN, Row(0, None), EMPTY)
    gauges.publish(RUN, "row", EMPTY)
    gauges.end(["unhashable"], "finished", 0.0)
    gauges.publish(RUN, Row(1, {"reward": 1.0, "loss": object(), "huge": 10**400, "text": "abc"}), EMPTY)
    assert value(gauges, "rltriage_reward_mean") == 1
    assert value(gauges, "rltriage_exporter_failures_total") >= 7


def test_a_scrape_never_mixes_two_steps(gauges):
    """Sixty metrics that always equal the step are equal in every scrape taken while rows arrive."""
    names = [f"m{i}" for i in range(60)]
    done = threading.Event()

    def train():
        for step in range(3000):
            gauges.publish(RUN, Row(step, dict.fromkeys(names, float(step))), EMPTY)
        done.set()

    gauges.publish(RUN, Row(0, dict.fromkeys(names, 0.0)), EMPTY)
    thread = threading.Thread(target=train)
    thread.start()
    scrapes = 0
    while not done.is_set() or scrapes == 0:
        lines = gauges.render().decode().splitlines()
        shown = {
            line.rpartition(" ")[2] for line in lines if line.startswith(("rltriage_extra_m", "rltriage_training_step"))
        }
        assert len(shown) == 1
        scrapes += 1
    thread.join()
    assert value(gauges, "rltriage_training_step") == 2999


def test_a_rules_labels_are_on_its_alert_alone(gauges, alert):
    """Routing labels of a rule join its series and win over a label of the run; ours are never replaced."""
    alert = replace(alert, labels={"project": "rules", "severity": "page"})
    gauges.publish(Run(alert.run, {"project": "gym"}), Row(1, {"reward": 0.5}), StepReport(1, (alert,)))
    assert value(gauges, "rltriage_alert_firing", project="rules", label_severity="page", severity=alert.severity) == 1
    assert value(gauges, "rltriage_reward_mean", project="gym") == 0.5
