"""Recording rules: promtool proves what it computes, vmalert loads it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from rltriage.exporters.recording import ALL, recording_rules

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (("", ""), 0),
        (("without (instance, job)", "without (job)"), 1),
        (("unless on (run, rule)", "or"), 1),
        (("max (", "min ("), 1),
    ],
)
def test_promtool_accepts_the_rules_and_proves_what_they_compute(server_binary, tmp_path, wrong, code):
    """Replicas count once, explained alerts and ended runs not at all; with another rule the proof fails."""
    promtool = server_binary("promtool")
    (tmp_path / "recording.yaml").write_text(recording_rules().replace(*wrong))
    (tmp_path / "tests.yaml").write_text((FOLDER / "recording.tests.yaml").read_text())
    for command in (["check", "rules", "--lint=all", "--lint-fatal", "recording.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == (code if command[0] == "test" else 0), done.stdout + done.stderr


def test_every_recorded_name_is_proven():
    """A rule that nobody tests may compute anything."""
    (case,) = yaml.safe_load((FOLDER / "recording.tests.yaml").read_text())["tests"]
    assert {test["expr"] for test in case["promql_expr_test"]} == {each.record for each in ALL}


def test_vmalert_loads_the_rules(vmalert):
    """Recording rules of a group follow one another there too."""
    done = vmalert(recording_rules())
    assert done.returncode == 0, done.stderr


def test_every_metric_is_one_that_we_export(exported):
    """A renamed metric must not leave a rule that records nothing."""
    named = set(re.findall(r"rltriage_\w+", " ".join(each.expression for each in ALL)))
    assert len(named) >= 6 and named <= exported
