"""Prometheus itself accepts what we export: its linter, and a server that scrapes a live endpoint."""

import json
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import pytest

from rltriage.engine.report import EMPTY, Incident, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.http import serve_metrics
from rltriage.exporters.state import Health

PAUSE = threading.Event()


@pytest.fixture
def filled(gauges, metrics, alert):
    """Gauges with every canonical metric, an unmapped one and an alert."""
    names = [name.replace("<id>", "mask_is_policy_tokens") for name in metrics]
    incident = Incident("i", "demo", 7, 5, "critical", alert.suspects, "t", "t", "stop", (alert.rule,))
    row = Row(7, {**dict.fromkeys(names, 0.5), "actor/entropy_loss": 1.0})
    gauges.publish(Run("demo", {"project": "gym"}), row, StepReport(7, (alert,), incident))
    gauges.measured(Run("demo", {"project": "gym"}), Health(1e-4, 0, 30.0))
    return gauges


@pytest.fixture
def prometheus(server_binary, tmp_path, filled):
    """The address of a Prometheus that scrapes `filled` every 200 ms."""
    binary = server_binary("prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with serve_metrics(filled) as server:
        target = server.url.removeprefix("http://")
        config = tmp_path / "prometheus.yml"
        job = {"job_name": "rltriage", "static_configs": [{"targets": [target]}]}
        config.write_text(
            json.dumps({"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"}, "scrape_configs": [job]})
        )
        command = [
            binary,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
        ]
        process = subprocess.Popen([*command, "--log.level=error"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            yield address
        finally:
            process.terminate()
            process.communicate(timeout=10)


def query(address, expression):
    """The instant vector of an expression as {labels without name and scrape labels: value}; empty while unreachable."""
    url = f"http://{address}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            found = json.load(answer)["data"]["result"]
    except OSError:
        return {}
    hidden = {"__name__", "instance", "job"}
    return {tuple((k, v) for k, v in entry["metric"].items() if k not in hidden): entry["value"][1] for entry in found}


def eventually(address, expression, seconds=30.0):
    """The first non-empty answer to an expression."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = query(address, expression)
        if found:
            return found
        PAUSE.wait(0.1)
    pytest.fail(f"{expression} stayed empty for {seconds} s")


def test_promtool_finds_nothing_to_object_to(server_binary, filled):
    """Names, help texts and types pass Prometheus' own linter."""
    command = [server_binary("promtool"), "check", "metrics"]
    done = subprocess.run(command, input=filled.render(), capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_prometheus_server_scrapes_the_live_endpoint(prometheus, filled):
    """Every family arrives with its labels, a new row shows, and an ended run goes stale at once."""
    assert eventually(prometheus, "rltriage_reward_mean == 0.5") == {(("project", "gym"), ("run", "demo")): "0.5"}
    assert query(prometheus, "up") == {(): "1"}
    firing = dict(next(iter(query(prometheus, "rltriage_alert_firing == 1"))))
    assert (firing["fault"], firing["first_test"]) == ("mask_shift", "check_mask")
    families = {line.split()[2] for line in filled.render().decode().splitlines() if line.startswith("# TYPE")}
    assert len(families) > 60
    assert next(iter(query(prometheus, 'count(count by (__name__) ({__name__=~"rltriage_.*"}))').values())) == str(
        len(families)
    )
    filled.publish(Run("demo", {"project": "gym"}), Row(8, {"reward": 0.75}), EMPTY)
    assert eventually(prometheus, "rltriage_reward_mean == 0.75")
    filled.end("demo", "finished", now=0.0)
    assert eventually(prometheus, "absent(rltriage_reward_mean)")
