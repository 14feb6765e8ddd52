"""Alerts on rltriage itself: promtool proves the file, vmalert loads it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from rltriage.exporters.meta_alerts import META_ALERTS, meta_alerts

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
NAMES = [alert.name for alert in META_ALERTS]


@pytest.fixture
def promtool(server_binary, tmp_path):
    """Runs promtool in a folder with the rules and their tests; returns the finished process."""
    binary = server_binary("promtool")

    def run(*arguments, rules=None):
        (tmp_path / "meta-alerts.yaml").write_text(rules or meta_alerts())
        (tmp_path / "tests.yaml").write_text((FOLDER / "meta-alerts.tests.yaml").read_text())
        return subprocess.run([binary, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    return run


def test_promtool_accepts_the_file_and_its_tests_pass(promtool):
    """Linted with every check, then run against series that fire and series that must stay silent."""
    for arguments in (
        ["check", "rules", "--lint=all", "--lint-fatal", "meta-alerts.yaml"],
        ["test", "rules", "tests.yaml"],
    ):
        done = promtool(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_vmalert_loads_the_file(vmalert):
    """It does not know all that Prometheus knows."""
    done = vmalert(meta_alerts("https://docs.example"))
    assert done.returncode == 0, done.stderr


def test_every_alert_has_a_firing_and_a_silent_case():
    """Each is expected somewhere, and one case has all of them silent."""
    cases = yaml.safe_load((FOLDER / "meta-alerts.tests.yaml").read_text())["tests"]
    expected = [sample["labels"] for case in cases for one in case["promql_expr_test"] for sample in one["exp_samples"]]
    assert set(NAMES) == {re.search(r'alertname="(\w+)"', labels)[1] for labels in expected}
    silent = [one for case in cases for one in case["promql_expr_test"] if one["expr"].startswith("max_over_time(ALERTS")]
    assert len(silent) == 1 and silent[0]["exp_samples"] == []


@pytest.mark.parametrize("expression", ["vector(0) == 1", "vector(1)"])
def test_the_tests_fail_on_an_alert_that_never_or_always_fires(promtool, expression):
    """A test that cannot fail proves nothing."""
    rules = yaml.safe_load(meta_alerts())
    (mine,) = [rule for rule in rules["groups"][0]["rules"] if rule["alert"] == "RltriageReloadFailed"]
    mine["expr"] = expression
    assert promtool("test", "rules", "tests.yaml", rules=yaml.safe_dump(rules)).returncode == 1


def test_every_alert_says_what_it_means_and_what_to_do():
    """The runbook travels with the alert; with an address for the pages it is linked, too."""
    for rule in yaml.safe_load(meta_alerts("https://docs.example/rltriage/"))["groups"][0]["rules"]:
        annotations = rule["annotations"]
        assert {"summary", "description", "runbook", "runbook_url"} == set(annotations)
        assert annotations["runbook_url"] == f"https://docs.example/rltriage/meta-alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("none", "warning", "critical")
    assert all("runbook_url" not in rule["annotations"] for rule in yaml.safe_load(meta_alerts())["groups"][0]["rules"])


def test_every_metric_is_one_that_we_export(exported):
    """A renamed metric must not leave an alert that can never fire."""
    named = set(re.findall(r"rltriage_\w+", " ".join(alert.expression for alert in META_ALERTS)))
    assert len(named) >= 14 and named <= exported


def test_a_page_describes_every_alert():
    """The runbook's anchors are the names of the alerts."""
    page = (Path(__file__).parents[2] / "docs" / "meta-alerts.md").read_text()
    assert re.findall(r"^## (Rltriage\w+)$", page, re.MULTILINE) == NAMES
