"""What the exporter tests share: the real metric catalogue, one alert, and gauges with a clock that the test moves."""

import subprocess
from pathlib import Path

import pytest
import yaml

from rltriage import service
from rltriage.engine.report import Alert, Incident, Suspect
from rltriage.exporters import gauges as gauges_module
from rltriage.exporters import samples
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.naming import Family
from rltriage.rules.loader import load_rules
from rltriage.rules.model import Catalogue, FirstTest, MetricInfo

ROOT = Path(__file__).parents[2]
METRICS = ROOT / "rules" / "metrics.yaml"


HOSTILE = (
    "{{ $value }}", '{{ template "x" }}', "{{- end -}}", "{{", "}}", "{", "{{{", "`{{`", "{run}", "{{run}", "{{{run}}}",
    "\"double\" 'single' \\", "$run ${run} $__all [[run]] %s", "a\nb\r\nc\td", "x" * 5000, "é漢😀\u2028\u0085\u200f",
    "<script>alert(1)</script>", "# a", "- a: b", "yes", "*x", "&a", "!tag", "'; rm -rf ~ '",
)  # fmt: skip
"""Texts that mean something to YAML, to Prometheus' templates, to Grafana, to a shell or to a browser."""


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="session")
def metrics():
    """The shipped metric catalogue."""
    entries = yaml.safe_load(METRICS.read_text())["metrics"]
    return {name: MetricInfo(name=name, **entry) for name, entry in entries.items()}


@pytest.fixture(scope="session")
def exported(metrics):
    """The name of every sample that rltriage exports, unmapped metrics apart."""
    values = [value for module in (gauges_module, samples, service) for value in vars(module).values()]
    return {value.sample_name for value in values if isinstance(value, Family)} | {
        info.prometheus for info in metrics.values()
    }


@pytest.fixture
def vmalert(server_binary, tmp_path):
    """Loads rule files, given as texts, in the real vmalert; returns the finished process."""
    binary = server_binary("vmalert")

    def load(*texts):
        for number, text in enumerate(texts):
            (tmp_path / f"vmalert-{number}.yml").write_text(text)
        files = [f"-rule={tmp_path}/vmalert-{number}.yml" for number in range(len(texts))]
        return subprocess.run([binary, "-dryRun", *files], capture_output=True, text=True, timeout=60)

    return load


@pytest.fixture
def clock():
    """Time as the gauges see it."""
    return Clock()


@pytest.fixture
def gauges(metrics, clock):
    """Gauges over the shipped catalogue."""
    return Gauges(metrics, linger=60.0, clock=clock)


@pytest.fixture
def catalogue(metrics):
    """One test that can be run, one that can only be read."""
    tests = (
        FirstTest("check_mask", "mask = policy tokens", "trainer", "run it", "rltriage check --only 1 {run}", 1),
        FirstTest("read_trajectories", "read 20 trajectories", "dump", "Take the 20 with the highest reward. Read each."),
    )
    return Catalogue({}, {test.id: test for test in tests}, metrics)


@pytest.fixture
def alert():
    """A firing alert with two suspects."""
    return Alert(
        id="0a1b",
        run="demo",
        rule="logp-gap-from-start",
        state="firing",
        severity="critical",
        group="consistency",
        step=7,
        since_step=5,
        segment=0,
        summary="logp_gap is 0.531 where fp32 engines stay under 0.0001",
        values={"logp_gap": 0.5312, "limit": 1e-4, "start": 0.52},
        suspects=(
            Suspect("mask_shift", "the action mask is one token off", 0.93, 1),
            Suspect("engine_mismatch", "sampler and trainer disagree", 0.003),
        ),
        first_test="check_mask",
    )


@pytest.fixture
def incident(alert):
    """An incident whose first test is not its best."""
    return Incident(
        "0c",
        "demo",
        7,
        5,
        "critical",
        alert.suspects,
        "read_trajectories",
        "check_mask",
        "stop",
        (alert.rule,),
        ("reward-flat",),
        "logp_gap_gt1_frac",
    )


@pytest.fixture
def hostile_pack(tmp_path):
    """Makes a pack of a user whose every text, label, fault, test and metric is hostile, loaded as any other."""

    def make(rules=None):
        faults = {text: {"title": text, "summary": text} for text in HOSTILE}
        tests = {text: {"title": text, "tier": "rows", "how": text, "command": text} for text in HOSTILE}
        gauges = {
            f"m{number}": {"help": text, "prometheus": text, "labels": {text: text}} for number, text in enumerate(HOSTILE)
        }
        found = []
        for number in range(rules or len(HOSTILE)):
            text = HOSTILE[number % len(HOSTILE)]
            found.append(
                {
                    "id": f"rule-{number}",
                    "summary": text.replace("{", "{{").replace("}", "}}"),
                    "group": "behavior",
                    "severity": "warning",
                    "when": {"threshold": {"metric": f"m{number % len(HOSTILE)}", "above": 0.5}},
                    "suspects": {text: 0.5},
                    "first_test": text,
                    "why": text,
                    "labels": {"team": text, text: "x"},
                }
            )
        # One name of an alert, two rules on one metric.
        found += [{**found[0], "id": "a-b"}, {**found[0], "id": "a_b"}]
        text = yaml.safe_dump({"version": 1, "metrics": gauges, "faults": faults, "first_tests": tests, "rules": found})
        (tmp_path / "evil.yaml").write_text(text)
        return load_rules(str(tmp_path / "evil.yaml"))

    return make
