"""The configurations and the systemd units, checked by the programs that read them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rltriage.rules.config import load_config

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def checked(*command: str) -> str:
    """What a checker says; it must be content."""
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_prometheus_configuration_is_valid(server_binary, tmp_path):
    """With the compiled rules beside it, as the stack and the compose file put them."""
    shutil.copytree(DEPLOY / "prometheus", tmp_path / "prometheus")
    (tmp_path / "prometheus" / "rules").mkdir()
    rules = tmp_path / "prometheus" / "rules" / "rltriage.yaml"
    rules.write_text("groups: [{name: g, rules: [{alert: A, expr: up == 0}]}]\n")
    said = checked(server_binary("promtool"), "check", "config", str(tmp_path / "prometheus" / "prometheus.yaml"))
    assert "rltriage.yaml" in said and "meta-alerts.yaml" in said


def test_alertmanager_routes_people_and_the_watchdog_apart(server_binary):
    """amtool: the configuration is valid, and each alert goes where it should."""
    amtool, file = server_binary("amtool"), str(DEPLOY / "alertmanager" / "alertmanager.yaml")
    checked(amtool, "check-config", file)
    routes = (amtool, "config", "routes", "test", f"--config.file={file}")
    checked(*routes, "--verify.receivers=told", "severity=critical", "fault=mask_shift", "run=r")
    checked(*routes, "--verify.receivers=watchdog", "alertname=RltriageWatchdog", "severity=none")


def test_the_watchdog_that_is_routed_is_the_one_that_fires():
    """A renamed alert would page people for ever."""
    meta = (DEPLOY / "prometheus" / "meta-alerts.yaml").read_text()
    for name in re.findall(r'alertname="(\w+)"', (DEPLOY / "alertmanager" / "alertmanager.yaml").read_text()):
        assert f"alert: {name}\n" in meta


def test_rltriage_reads_its_configuration():
    """Logs and state lie beside the file, wherever that is mounted."""
    found = load_config(DEPLOY / "rltriage.yaml")
    assert found.state_dir == DEPLOY / "state" and [source.where for source in found.sources] == [str(DEPLOY / "runs")]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_what_systemd_understands_and_are_locked_up(path, tmp_path):
    """`systemd-analyze verify` has nothing to say, and `security` gives an exposure below 2 of 10."""
    analyze = shutil.which("systemd-analyze") or pytest.skip("systemd-analyze is not installed: units are only parsed")
    text = path.read_text().replace("/opt/rltriage/bin/rltriage", "/bin/true")
    unit = tmp_path / path.name.replace("@.", "@node.")
    unit.write_text(text)
    if unit.name != path.name:
        (tmp_path / path.name).write_text(text)
    assert checked(analyze, "verify", str(unit)).strip() == ""
    said = checked(analyze, "security", "--no-pager", "--offline=true", str(unit))
    assert float(re.search(r"exposure level for \S+: ([\d.]+)", said)[1]) < 2


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_run_what_the_command_line_has(path, takes):
    """ExecStart's words after the program are arguments that it takes."""
    (words,) = re.findall(r"^ExecStart=/opt/rltriage/bin/rltriage (.+)$", path.read_text(), re.MULTILINE)
    takes(words.split())
