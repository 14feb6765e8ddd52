"""Compiled rules: accepted by promtool, proven by their own generated tests, and saying what the engine says."""

import math
import shlex
import subprocess
from dataclasses import fields, replace
from urllib.parse import quote

import pytest
import yaml

from rltriage.engine.monitor import Monitor
from rltriage.engine.report import Alert, Suspect
from rltriage.engine.rows import Row, Run
from rltriage.exporters.compile_prometheus import compile_engine, compile_metrics
from rltriage.exporters.delivery.message import Links, compose, identity_labels
from rltriage.exporters.naming import Names, label_value, quoted
from rltriage.exporters.prometheusrule import MAX_BYTES, prometheus_rule
from rltriage.exporters.promql import NotExact, metric_expression, witness
from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.conditions.logic import All, Any
from rltriage.rules.conditions.nonfinite import Nonfinite
from rltriage.rules.conditions.terms import Term, Window
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.errors import RltriageError
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
    compiled = compile_(pack, CATALOGUE, links=Links("https://page.example", "https://docs.example/faults.html"))
    assert promtool_objects(server_binary("promtool"), tmp_path, compiled) == ""


def test_vmalert_loads_the_rules(vmalert, pack):
    """Both ways to compile, the whole shipped pack; what it does not know it refuses, so that loading means something."""
    links = Links("https://page.example", "https://docs.example/faults.html")
    compiled = [compile_(pack, CATALOGUE, links=links).rules for compile_ in (compile_engine, compile_metrics)]
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


def promtool_objects(promtool, folder, compiled):
    """What promtool says against a compiled pack: its lint, then the generated tests; empty if nothing."""
    (folder / "rules.yml").write_text(compiled.rules)
    (folder / "tests.yml").write_text(compiled.tests)
    for command in (["check", "rules", "--lint=all", "--lint-fatal", "rules.yml"], ["test", "rules", "tests.yml"]):
        done = subprocess.run([promtool, *command], cwd=folder, capture_output=True, text=True, timeout=60)
        if done.returncode:
            return done.stdout + done.stderr
    return ""


@pytest.mark.parametrize("compile_", [compile_engine, compile_metrics])
def test_texts_of_a_hostile_pack_reach_alertmanager_as_they_are(server_binary, vmalert, tmp_path, hostile_pack, compile_):
    """They are no templates to Prometheus or vmalert, and an operator's object holds the same."""
    pack = hostile_pack()
    links = Links("https://page.example/{{ .x }}", "https://docs.example/$rule?{{ x }}#$fault")
    compiled = compile_(pack, pack.catalogue, links=links)
    assert promtool_objects(server_binary("promtool"), tmp_path, compiled) == ""
    assert vmalert(compiled.rules).returncode == 0
    assert yaml.safe_load(prometheus_rule(compiled.rules, "evil"))["spec"] == yaml.safe_load(compiled.rules)
    proven = [alert for case in yaml.safe_load(compiled.tests)["tests"] for alert in case["alert_rule_test"]]
    told = [fires for alert in proven for fires in alert["exp_alerts"]]
    texts = set(pack.catalogue.first_tests) - set(CATALOGUE.first_tests)
    assert len(texts) > 20 and texts <= {fires["exp_annotations"]["description"] for fires in told}
    assert {label_value(text) for text in texts} <= {fires["exp_labels"].get("team") for fires in told}


def test_five_hundred_rules_are_compiled(server_binary, tmp_path, hostile_pack):
    """Into one rule file and one object; what is too large for an object of Kubernetes says so."""
    pack = hostile_pack(498)
    compiled = compile_engine(pack, pack.catalogue)
    assert promtool_objects(server_binary("promtool"), tmp_path, replace(compiled, tests="rule_files: [rules.yml]\n")) == ""
    assert len(yaml.safe_load(compiled.rules)["groups"][0]["rules"]) == 500
    assert len(prometheus_rule(compiled.rules, "evil").encode()) < MAX_BYTES
    with pytest.raises(RltriageError, match="compile the packs one by one"):
        prometheus_rule(compiled.rules.replace("x" * 5000, "x" * 50000), "evil")


@pytest.mark.parametrize("run", ["a/b c+d", "ü&?#%", "it's; rm -rf ~ '\"$(x)`y`"])
def test_a_runs_id_is_quoted_where_it_stands_in_a_link_or_a_command(server_binary, tmp_path, run):
    """The link is that of a pushed alert, and whoever pastes the command runs it on this run, and nothing else."""
    links = Links("https://page.example")
    test = replace(CATALOGUE.first_tests[RULE.first_test], command="rltriage report {run} -o {run}.html")
    catalogue = replace(CATALOGUE, first_tests={test.id: test})
    compiled = compile_engine(RulePack("p", (RULE,)), catalogue, links=links)
    found = yaml.safe_load(compiled.tests.replace("loud", "RUN"))
    for case in found["tests"]:
        for entry in case["input_series"]:
            entry["series"] = entry["series"].replace('"RUN"', quoted(run))
        for alert in (each for one in case["alert_rule_test"] for each in one["exp_alerts"]):
            if alert["exp_labels"]["run"] == "RUN":
                alert["exp_labels"]["run"] = run
                shell = "'" + run.replace("'", "'\"'\"'") + "'"
                alert["exp_annotations"] |= {
                    "summary": alert["exp_annotations"]["summary"].replace("RUN", run),
                    "page_url": f"https://page.example/runs/{quote(run, safe='')}",
                    "first_test_command": f"rltriage report {shell} -o {shell}.html",
                }
                assert shlex.split(alert["exp_annotations"]["first_test_command"]) == [
                    "rltriage", "report", run, "-o", f"{run}.html"
                ]  # fmt: skip
    assert promtool_objects(server_binary("promtool"), tmp_path, replace(compiled, tests=yaml.safe_dump(found))) == ""


@pytest.mark.parametrize("runbook", ["https://docs.example/faults.html", "https://wiki.example/$rule?about=$fault"])
@pytest.mark.parametrize("compile_", [compile_engine, compile_metrics])
def test_a_compiled_alert_links_to_the_runbook_that_a_pushed_one_links_to(pack, compile_, runbook):
    """The same address for every rule of the shipped pack; the page is the run's, because no label knows the alert's."""
    links = Links("https://page.example/", runbook)
    compiled = yaml.safe_load(compile_(pack, CATALOGUE, links=links).rules)["groups"][0]["rules"]
    rules = {rule.id: rule for rule in pack.rules}
    for alert in compiled:
        rule = rules[alert["labels"]["rule"]]
        suspects = tuple(Suspect(fault, fault, score) for fault, score in rule.suspects.items())
        pushed = Alert(
            "i", "demo", rule.id, "firing", rule.severity, rule.group, 1, 1, 0, "s", {}, suspects, rule.first_test
        )
        annotations = compose(pushed, 1.0, catalogue=CATALOGUE, links=links).annotations
        assert alert["annotations"].get("runbook_url") == annotations.get("runbook_url"), rule.id
        page = alert["annotations"]["page_url"].partition("{{")[0]
        assert page == "https://page.example/runs/" and annotations["page_url"].startswith(page)
    assert sum("runbook_url" in alert["annotations"] for alert in compiled) >= 0.9 * len(compiled)
    plain = compile_(pack, CATALOGUE).rules
    assert "runbook_url" not in plain and "page_url" not in plain, "no address is made up"
