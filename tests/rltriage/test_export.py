"""`rltriage export` and the rule files that belong to no pack."""

import json

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

from rltriage.exporters.grafana import files
from rltriage.exporters.meta_alerts import meta_alerts
from rltriage.exporters.recording import recording_rules


@pytest.fixture
def run(tmp_path):
    """A log whose KL to the reference stays exactly 0: a fault if kl_coef is above 0."""
    rows = [{"step": s, "time": 1.7e9 + s, "reward": 0.2, "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-3} for s in range(12)]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_run_is_exported_with_its_alerts_or_without(rltriage, run):
    """The rules see what they would have seen live; `--metrics-only` leaves it out."""
    with_alerts, without = (
        {family.name: family.samples for family in parse(rltriage("export", run, "--config", "kl_coef=0.1", *more).out)}
        for more in ((), ("--metrics-only",))
    )
    fired = {sample.labels["fault"] for sample in with_alerts["rltriage_alert_firing"] if sample.value}
    assert "ref_is_policy" in fired and "rltriage_incident" in with_alerts
    assert "rltriage_alert_firing" not in without
    assert len(without["rltriage_reward_mean"]) == len(with_alerts["rltriage_reward_mean"]) == 12


def test_rows_without_times_are_refused(rltriage, tmp_path):
    """Exit 2 and one sentence that says what to log."""
    path = tmp_path / "run.jsonl"
    path.write_text('{"step": 0, "reward": 1.0}\n{"step": 1, "reward": 1.0}\n')
    ran = rltriage("export", path)
    assert ran.code == 2 and "has no time at step 0: log `time`" in ran.err and "Traceback" not in ran.err


def test_dashboards_are_written_with_their_addresses(rltriage, tmp_path):
    """The files of `files`, below the folder; a run may be exported in the same go or not at all."""
    ran = rltriage("export", "--grafana", tmp_path / "g", "--page", "https://p.example", "--recorded")
    assert ran.code == 0 and ran.err == ""
    assert {str(path) for path in (tmp_path / "g").rglob("*") if path.is_file()} == set(ran.out.split())
    found = {
        str(path.relative_to(tmp_path / "g")): path.read_text() for path in (tmp_path / "g").rglob("*") if path.is_file()
    }
    assert found == files("https://p.example", "", True) != files()
    assert "state:rltriage_run_state:sum" in found["dashboards/rltriage-fleet.json"]


def test_nothing_to_export_is_bad_usage(rltriage):
    """It says what to name."""
    ran = rltriage("export")
    assert ran.code == 2 and "name a RUN, or --grafana DIR" in ran.err


def test_rule_files_that_belong_to_no_pack(rltriage, tmp_path):
    """Meta-alerts with links, recording rules; a pack beside them is bad usage."""
    assert rltriage("rules", "compile", "--kind", "meta", "--docs", "https://d.example").out == meta_alerts(
        "https://d.example"
    )
    out = tmp_path / "recording.yaml"
    assert rltriage("rules", "compile", "--kind", "recording", "-o", out).code == 0
    assert out.read_text() == recording_rules() and yaml.safe_load(out.read_text())["groups"]
    refused = rltriage("rules", "compile", "triage", "--kind", "meta")
    assert refused.code == 2 and "--kind meta is about no pack" in refused.err


def test_compiled_alerts_link_where_they_are_told(rltriage):
    """`--docs` is our own runbook, `--runbook` one's own, `--page` the on-call page."""

    def links(*given):
        (group,) = yaml.safe_load(rltriage("rules", "compile", *given).out)["groups"]
        (alert,) = (each["annotations"] for each in group["rules"] if each["labels"]["rule"] == "kl-ref-exactly-zero")
        return alert.get("runbook_url"), alert.get("page_url", "").partition("{{")[0]

    assert links() == (None, "")
    assert links("--docs", "https://d.example/") == ("https://d.example/faults.md#ref_is_policy", "")
    own = ("--runbook", "https://w.example/$fault", "--docs", "https://d.example", "--page", "https://p.example")
    assert links(*own) == ("https://w.example/ref_is_policy", "https://p.example/runs/")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--runbook wiki/$fault", "'--runbook': it must be an http:// or https:// URL"),
        ("--runbook https://w.example/$falt", "`$falt` stands for nothing: did you mean `fault`?"),
        ("--page https://me:hunter22@p.example", "'--page': it holds a password in plain text"),
        ("--docs docs", "'--docs': it must be an http:// or https:// URL"),
        ("--kind meta --page https://p.example", "leave them out with --kind meta"),
        ("--kind recording --docs https://d.example", "link to nothing: leave out --docs"),
    ],
)
def test_an_address_that_leads_nowhere_is_bad_usage(rltriage, given, words):
    """Before it is in every alert; a password in it is not repeated."""
    ran = rltriage("rules", "compile", *given.split())
    assert ran.code == 2 and words in " ".join(ran.err.split()) and "hunter22" not in ran.err and ran.out == ""


def test_addresses_without_dashboards_are_bad_usage(rltriage, run):
    """An option that would do nothing is an error."""
    for given in (("--page", "https://p.example"), ("--docs", "https://d.example"), ("--recorded",)):
        ran = rltriage("export", run, *given)
        assert ran.code == 2 and "add --grafana DIR" in ran.err
