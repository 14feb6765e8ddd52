"""What a message says: labels that identify, annotations that describe."""

import re
from dataclasses import replace
from pathlib import Path

from rltriage.exporters.delivery.message import MAX_TEXT, Links, Message, alert_name, compose
from rltriage.rules.loader import load_rules
from rltriage.rules.model import Catalogue, FirstTest

ROOT = Path(__file__).parents[3]
CATALOGUE = Catalogue(
    {}, {"kl_after_one_step": FirstTest("kl_after_one_step", "KL after one step", "trainer", "", "check {run}")}, {}
)


def test_labels_identify_and_hold_nothing_that_moves(make_alert):
    """Two rows of one alert have equal labels: a step or value in them would be a second alert to Alertmanager."""
    one = compose(make_alert(), 100.0, labels={"team": "posttraining"})
    two = compose(make_alert(step=90, values={"kl_ref": 0.5}, summary="else"), 900.0, labels={"team": "posttraining"})
    assert one.labels == two.labels
    assert one.labels == {
        "alertname": "KlRefExactlyZero",
        "run": "r1",
        "team": "posttraining",
        "rule": "kl-ref-exactly-zero",
        "group": "consistency",
        "severity": "critical",
        "fault": "ref_is_policy",
        "first_test": "kl_after_one_step",
    }
    assert one.annotations != two.annotations


def test_empty_labels_are_left_out(make_alert):
    """Alertmanager drops an empty value silently, which would be another identity."""
    labels = compose(make_alert(suspects=(), first_test=""), 1.0, labels={"team": ""}).labels
    assert "" not in labels.values() and not {"fault", "first_test", "team"} & set(labels)


def test_a_runs_labels_cannot_replace_ours_and_are_bounded(make_alert):
    """A label called severity is kept under another name, as in the gauges; odd names and long values do no harm."""
    given = {
        "severity": "info",
        "alertname": "x",
        "bad-name": "v",
        "long": "y" * 5000,
        **{f"l{i}": "v" for i in range(100)},
    }
    labels = compose(make_alert(), 1.0, labels=given).labels
    assert labels["severity"] == "critical" and labels["alertname"] == "KlRefExactlyZero" and labels["bad_name"] == "v"
    assert labels["label_severity"] == "info" and labels["label_alertname"] == "x"
    assert len(labels["long"]) <= 128 and len(labels) <= 26


def test_a_rules_labels_win_over_the_runs(make_alert):
    """Routing labels of a rule are part of the alert's identity, whatever its run is labelled."""
    labels = compose(make_alert(labels={"team": "rules"}), 1.0, labels={"team": "runs", "lab": "a"}).labels
    assert (labels["team"], labels["lab"]) == ("rules", "a")


def test_annotations_carry_text_ranking_step_values_and_the_command(make_alert):
    """What somebody on call needs stands in the annotations, the command with its run filled in."""
    found = compose(make_alert(), 1.0, catalogue=CATALOGUE).annotations
    assert found["suspects"] == "ref_is_policy 0.70, dead_gradient 0.20"
    assert (found["step"], found["since_step"], found["values"]) == ("7", "5", "kl_ref=0")
    assert found["first_test_command"] == "check r1"
    assert "KL after one step" in found["description"] and "ref_is_policy" in found["description"]


def test_an_alert_links_to_its_own_page_and_to_its_faults_runbook(make_alert):
    """Only where the addresses are known; the fault is the runbook's anchor unless the address says where it belongs."""
    odd = make_alert(run="a/b c", id="1")

    def links(alert, *given):
        found = compose(alert, 1.0, links=Links(*given)).annotations
        return found.get("page_url"), found.get("runbook_url")

    page = "http://watch/runs/a%2Fb%20c/alerts/1"
    assert links(odd, "http://watch/", "https://docs/faults.html") == (page, "https://docs/faults.html#ref_is_policy")
    assert links(odd, "", "https://wiki/$fault?rule=${rule}") == (
        None,
        "https://wiki/ref_is_policy?rule=kl-ref-exactly-zero",
    )
    assert links(odd) == (None, None)
    assert links(make_alert(run="..", id="1"), "http://watch")[0] == "http://watch/runs/~../alerts/1"
    unnamed = make_alert(suspects=())
    assert links(unnamed, "", "https://docs/faults.html") == (None, None), "a runbook about no fault is none"
    assert links(unnamed, "", "https://wiki/$rule")[1] == "https://wiki/kl-ref-exactly-zero"


def test_every_fault_has_an_anchor_in_our_own_runbook():
    """`runbook_url` may point to a copy of docs/faults.md."""
    headings = set(re.findall(r"^## (\w+)$", (ROOT / "docs" / "faults.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert load_rules("triage").catalogue.faults.keys() <= headings


def test_long_text_is_cut(make_alert):
    """A chat service would cut it anyway, and Alertmanager bounds nothing."""
    assert len(compose(make_alert(summary="x" * 99_999), 1.0).annotations["summary"]) == MAX_TEXT


def test_only_a_critical_alert_with_a_suspect_pages(make_alert):
    """Severity alone wakes nobody up."""
    assert compose(make_alert(), 1.0).page
    assert not compose(make_alert(suspects=()), 1.0).page
    assert not compose(make_alert(severity="warning"), 1.0).page


def test_an_alert_never_starts_in_the_future(make_alert):
    """A trainer's clock may run ahead of ours."""
    assert compose(make_alert(time=500.0), 100.0).starts == 100.0
    assert compose(make_alert(time=50.0), 100.0).starts == 50.0


def test_a_message_survives_being_stored(make_alert):
    """Text that UTF-8 cannot carry included."""
    message = compose(replace(make_alert(), summary="caf\u00e9 \ud800 \u2603"), 1.5)
    assert Message.from_json(message.to_json()) == message


def test_alert_names_are_camel_case():
    """As Prometheus names alerts, whatever the rule's id holds."""
    assert [alert_name(rule) for rule in ("nan", "a-b_c", "logp-gap-2x", "--")] == ["Nan", "ABC", "LogpGap2x", "Rltriage"]
