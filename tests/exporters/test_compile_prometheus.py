"""Compiled rules: accepted by promtool, proven by their own generated tests, and saying what the engine says."""

import math
import subprocess
from dataclasses import fields, replace

import pytest
import yaml

from rltriage.engine.monitor import Monitor
from rltriage.engine.report import Alert, Suspect
from rltriage.engine.rows import Row, Run
from rltriage.exporters.compile_prometheus import compile_engine, compile_metrics
from rltriage.exporters.delivery.message import identity_labels
from rltriage.exporters.naming import Names
from rltriage.exporters.promql import NotExact, metric_expression, witness
from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.conditions.logic import All, Any
from rltriage.rules.conditions.nonfinite import Nonfinite
from rltriage.rules.conditions.terms import Term, Window
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.loader import load_rules
from rltriage.rules.model import Rule, RulePack

CATALOGUE = load_catalogue()
NAMES = Names(CATALOGUE.metrics)
HIGH = Threshold("logp_gap", above=Term(value=0.5))
LOW = Threshold("reward", at_most=Term(value=-1.0))
RULE = Rule(
    "gap-high", "logp_gap is {logp_gap}", "consistency", "critical", HIGH, {"mask_shift": 0.8}, "mask_equals_policy_tokens"
)
LENGTH = 'max without (instance, job, outcome) (rltriage_outcome_response_length_mean_tokens{{outcome="{}"}})'
GAP = "max without (instance, job) (rltriage_logp_gap_nats)"


@pytest.fixture(scope="module")
def pack():
    """The shipped pack."""
    return load_rules("triage")


@pytest.mark.parametrize("compile_", [compile_engine, compile_metrics])
def test_promtool_accepts_the_rules_and_their_tests_pass(server_binary, pack, tmp_path, compile_):
    """The whole shipped pack, linted, then run against series that fire, that are brief, explained or quiet."""
    promtool = server_binary("promtool")
    compiled = compile_(pack, CATALOGUE)
    (tmp_path / "rules.yml").write_text(compiled.rules)
    (tmp_path / "tests.yml").write_text(compiled.tests)
    for command in (["check", "rules", "--lint=all", "--lint-fatal", "rules.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_vmalert_loads_the_rules(vmalert, pack):
    """Both ways to compile, the whole shipped pack; what it does not know it refuses, so that loading means something."""
    compiled = [compile_(pack, CATALOGUE).rules for compile_ in (compile_engine, compile_metrics)]
    done = vmalert(*compiled)
    assert done.returncode == 0, done.stderr
    refused = vmalert(compiled[0].replace("  labels:\n", "  keep_firing_for: 1m\n    labels:\n", 1))
    assert refused.returncode != 0 and "unknown fields in rule: keep_firing_for" in refused.stderr


def test_the_generated_tests_fail_on_a_wrong_rule(server_binary, pack, tmp_path):
    """A test that cannot fail proves nothing."""
    promtool = server_binary("promtool")
    compiled = compile_engine(replace(pack, rules=pack.rules[:2]), CATALOGUE)
    for wrong in (("== 1) or", "== 0) or"), ("< 60", "< 1"), ("unless on (run)", "or"), ("group: ", "group: not-")):
        assert wrong[0] in compiled.rules
        (tmp_path / "rules.yml").write_text(compiled.rules.replace(*wrong))
        (tmp_path / "tests.yml").write_text(compiled.tests)
        done = subprocess.run([promtool, "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, timeout=60)
        assert done.returncode == 1, wrong


def test_every_rule_is_compiled_or_left_out_with_a_reason(pack):
    """Nothing is dropped silently."""
    rules = {rule.id for rule in pack.rules}
    engine = yaml.safe_load(compile_engine(pack, CATALOGUE).rules)["groups"]
    assert len(engine[0]["rules"]) == len(rules)
    compiled = compile_metrics(pack, CATALOGUE)
    exact = {alert["labels"]["rule"] for alert in yaml.safe_load(compiled.rules)["groups"][0]["rules"]}
    assert exact | set(compiled.left_out) == rules and not exact & set(compiled.left_out)
    assert len(exact) >= 14 and all(compiled.left_out.values())


def test_what_translates_says_what_the_engine_says(pack):
    """Values that do not hold, then values that do: the engine's own rule agrees with the generated test."""
    left_out = compile_metrics(pack, CATALOGUE).left_out
    judged = 0
    for rule in pack.rules:
        quiet, loud = witness(rule.when, False), witness(rule.when, True)
        if rule.id in left_out or quiet is None or loud is None:
            continue
        monitor = Monitor(Run("demo"), RulePack("one", (rule,)), CATALOGUE)
        reports = [monitor.observe(Row(step, row)) for step, row in enumerate((quiet, loud))]
        states = [[alert.state for alert in report.alerts] for report in reports]
        assert states == [[], ["firing"]], rule.id
        judged += 1
    assert judged >= 14


def test_compiled_and_pushed_alerts_are_one_alert():
    """Alertmanager deduplicates by labels, so both ways must carry the same."""
    rule = replace(RULE, labels={"team": "post-training"})
    suspects = (Suspect("mask_shift", "m", 0.8, 1),)
    alert = Alert(
        "i",
        "demo",
        rule.id,
        "firing",
        "critical",
        rule.group,
        1,
        1,
        0,
        "s",
        {},
        suspects,
        rule.first_test,
        labels=rule.labels,
    )
    pushed = identity_labels(alert, alert.labels)
    compiled = yaml.safe_load(compile_metrics(RulePack("p", (rule,)), CATALOGUE).rules)["groups"][0]["rules"][0]
    assert {"alertname": compiled["alert"], "run": "demo", **compiled["labels"]} == pushed


@pytest.mark.parametrize(
    ("condition", "expression"),
    [
        (HIGH, f"{GAP} > 0.5 < Inf"),
        (replace(HIGH, abs=True, times=2.0), f"(2.0 * abs({GAP})) > 0.5 < Inf"),
        (LOW, "max without (instance, job) (rltriage_reward_mean) <= -1.0 > -Inf"),
        (Threshold("logp_gap", equals=Term(value=0.0)), f"abs({GAP} - 0.0) <= 0.0 < Inf"),
        (Threshold("logp_gap", differs=Term(value=1.0), tolerance=0.1), f"abs({GAP} - 1.0) > 0.1 < Inf"),
        (
            Threshold("length_fail", above=Term(metric="length_pass", times=1.5)),
            f"{LENGTH.format('incorrect')} > (1.5 * {LENGTH.format('correct')}) < Inf"
            f" and (abs((1.5 * {LENGTH.format('correct')})) < Inf)",
        ),
        (Nonfinite(("logp_gap",)), f"({GAP} != {GAP}) or (abs({GAP}) == Inf)"),
        (Threshold("actor/x", above=Term(value=1.0)), "max without (instance, job) (rltriage_extra_actor_x) > 1.0 < Inf"),
        (All((HIGH, LOW)), f"({GAP} > 0.5 < Inf) and (max without (instance, job) (rltriage_reward_mean) <= -1.0 > -Inf)"),
        (Any((HIGH, LOW)), f"({GAP} > 0.5 < Inf) or (max without (instance, job) (rltriage_reward_mean) <= -1.0 > -Inf)"),
    ],
)
def test_how_a_condition_reads_in_promql(condition, expression):
    """Finite values only, one series a run, fixed labels chosen."""
    assert metric_expression(replace(RULE, when=condition), NAMES) == expression


def test_unless_blocks_only_where_it_is_known_to_hold():
    """PromQL's unless has the engine's meaning: an absent metric does not block."""
    low = "max without (instance, job) (rltriage_reward_mean) <= -1.0 > -Inf"
    assert metric_expression(replace(RULE, unless=LOW), NAMES) == f"({GAP} > 0.5 < Inf) unless ({low})"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hold": 2}, "count rows"),
        ({"keep_firing_for": 1}, "count rows"),
        ({"after": 1}, "count rows"),
        ({"clear_when": HIGH}, "alert's own state"),
        ({"requires": {"kl_coef": {"above": 0}}}, "config facts (kl_coef)"),
        ({"when": replace(HIGH, window=Window(3))}, "windows count rows"),
        ({"when": replace(HIGH, stat="start")}, "needs start of logp_gap"),
        ({"when": replace(HIGH, max_age=2)}, "needs the age of logp_gap"),
        ({"when": replace(HIGH, above=Term(config="lr"))}, "config fact"),
        ({"when": replace(HIGH, plus=Term(metric="reward"))}, "sums of operands"),
        ({"when": Nonfinite()}, "any metric"),
        ({"when": Nonfinite(("reward/*",))}, "any metric"),
        ({"unless": replace(HIGH, stat="best")}, "needs best"),
    ],
)
def test_what_does_not_translate_says_why(change, reason):
    """A rule that would mean something else is left out, never approximated."""
    with pytest.raises(NotExact) as caught:
        metric_expression(replace(RULE, **change), NAMES)
    assert reason in str(caught.value)


def test_every_field_of_a_rule_and_a_threshold_is_translated_or_refused():
    """A field added later must be decided here before it can be ignored in silence."""
    decided = (
        "id summary group severity when suspects first_test requires unless hold keep_firing_for clear_when after labels"
    )
    told = "maturity why false_positives references mark pack"
    assert {field.name for field in fields(Rule)} == set(f"{decided} {told}".split())
    threshold = "metric stat window baseline recent min max_age abs times plus tolerance"
    threshold += " above at_least below at_most equals differs"
    assert {field.name for field in fields(Threshold)} == set(threshold.split())


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("name", ["above", "at_least", "below", "at_most", "equals", "differs"])
def test_a_witness_is_on_the_side_that_it_claims(name, holds):
    """Values of the generated tests are checked by hand-written comparisons."""
    condition = Threshold("logp_gap", **{name: Term(value=0.5)}, tolerance=0.1 if name in ("equals", "differs") else 0.0)
    value = witness(condition, holds)["logp_gap"]
    truth = {
        "above": value > 0.5,
        "at_least": value >= 0.5,
        "below": value < 0.5,
        "at_most": value <= 0.5,
        "equals": abs(value - 0.5) <= 0.1,
        "differs": abs(value - 0.5) > 0.1,
    }
    assert truth[name] is holds


def test_a_witness_of_parts_that_contradict_each_other_is_none():
    """No value is above 1 and below 0: the rule is compiled, its test left out."""
    assert witness(All((HIGH, Threshold("logp_gap", below=Term(value=0.0)))), True) is None
    assert math.isnan(witness(Any((Nonfinite(("loss",)), HIGH)), True)["loss"])


def test_templates_in_a_text_are_taken_literally(server_binary, tmp_path):
    """A rule's words cannot run Prometheus' template language."""
    rule = replace(RULE, why="ask for {{ $value }} and {{ nothing }}")
    compiled = compile_engine(RulePack("p", (rule,)), CATALOGUE)
    (tmp_path / "rules.yml").write_text(compiled.rules)
    (tmp_path / "tests.yml").write_text(compiled.tests)
    done = subprocess.run(
        [server_binary("promtool"), "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("compile_", [compile_engine, compile_metrics])
def test_texts_and_labels_of_a_pack_are_no_templates(server_binary, tmp_path, compile_):
    """Braces, quotes and lines reach Alertmanager as they are; a second rule on the metric does not disturb the proof."""
    promtool, hostile = server_binary("promtool"), "a\"b\n{{ .X }} {{ end }} '$x"
    other = replace(RULE, id="gap-also", labels={"team": hostile}, why=hostile)
    compiled = compile_(RulePack("p", (RULE, other)), CATALOGUE)
    (tmp_path / "rules.yml").write_text(compiled.rules)
    (tmp_path / "tests.yml").write_text(compiled.tests)
    done = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    alerts = [alert for case in yaml.safe_load(compiled.tests)["tests"] for alert in case["alert_rule_test"]]
    found = [fires["exp_labels"].get("team") for alert in alerts for fires in alert["exp_alerts"]]
    assert hostile in found
