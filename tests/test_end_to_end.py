"""From a training run to a receiver through real servers: scraped by Prometheus and pushed by the service, one alert.

    RLTRIAGE_LINGER=60 pytest tests/test_end_to_end.py -s    # prints the seconds that docs/delivery.md quotes

Compiled rules go on showing an alert for a minute after its last row, made for scrapes every 15 seconds or more. Here a
scrape comes each second, so 5 seconds are enough; RLTRIAGE_LINGER=60 leaves the rules as they are compiled.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import chaos
import pytest

from rltriage.exporters.promql import LINGER_SECONDS
from rltriage.rules.config import load_config
from rltriage.service import Service

PAUSE = threading.Event()
PATIENCE = 90.0
"""Seconds until a state that must come is given up; what is waited for comes within a few on an idle machine."""
LINGER = int(os.environ.get("RLTRIAGE_LINGER", "5"))
RULE = "logp-placeholder"
TRAINER = """
import sys, torch, rltriage
from rltriage.trainer.config import TrainConfig, config_facts
from rltriage.trainer.loop import train
torch.set_num_threads(1)
small = TrainConfig(tasks_per_step=2, eval_every=1000)
with rltriage.watch(
    "demo", config=config_facts(small), labels={"team": "post"}, listen=sys.argv[1], directory=sys.argv[2], quiet=True
) as run:
    def steps(fault, first, count):
        emit = lambda row: run.log(first + row.step, row.metrics)
        train(small, fault=fault, steps=count, seed=0, checks=False, emit=emit)
    sys.stdin.readline()
    steps("mask_shift", 0, 3)
    sys.stdin.readline()
    steps(None, 3, 3)
    sys.stdin.readline()
"""
PROMETHEUS = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
alerting: {alertmanagers: [{static_configs: [{targets: ['ALERTMANAGER']}]}]}
rule_files: [rltriage.rules.yml]
scrape_configs: [{job_name: rltriage, static_configs: [{targets: ['TRAINER']}]}]
"""
ALERTMANAGER = """
route: {receiver: hook, group_by: [run, rule], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers: [{name: hook, webhook_configs: [{url: 'HOOK', send_resolved: true}]}]
"""


def free_address() -> str:
    """An address of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def get(url: str) -> Any:
    """The body of an answer as JSON, or as text; None while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            body = answer.read().decode()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None
    return json.loads(body) if body[:1] in "[{" else body


def seconds_until(condition: Callable[[], object]) -> float:
    """Wait for a state of the servers; how long it took. Fails when it does not come."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() < begin + PATIENCE, f"it did not come within {PATIENCE:.0f} s"
        PAUSE.wait(0.05)
    return time.monotonic() - begin


@contextmanager
def running(command: list[str], log: Path, ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that answers at `ready`, ended with the block. One that this machine does not let start is a skip."""
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
        try:
            seconds_until(lambda: get(ready) is not None or process.poll() is not None)
            if process.poll() is not None:
                (pytest.fail if os.environ.get("CI") == "1" else pytest.skip)(f"{command[0]}: {log.read_text()[-500:]}")
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=30)


class World:
    """The addresses of everything, and what each side says of the alert of RULE."""

    def __init__(self, folder: Path, hook: Any) -> None:
        self.folder, self.hook = folder, hook
        self.trainer, self.prometheus, self.alertmanager = free_address(), free_address(), free_address()
        self.process: subprocess.Popen[bytes] | None = None

    def go_on(self) -> None:
        """Let the trainer take its next steps."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def rows(self) -> list[float]:
        """When each row of the run was logged (unix seconds)."""
        file = self.folder / "runs" / "demo" / "rows.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line)["time"] for line in lines if line.endswith("\n")]

    def pulled(self) -> list[dict[str, str]]:
        """The labels of the alert as Prometheus sends it."""
        found = get(f"http://{self.prometheus}/api/v1/alerts")["data"]["alerts"]
        return [alert["labels"] for alert in found if alert["labels"].get("rule") == RULE and alert["state"] == "firing"]

    def held(self) -> list[dict[str, Any]]:
        """The alert as Alertmanager holds it: one entry for each set of labels."""
        found = get(f"http://{self.alertmanager}/api/v2/alerts?active=true&filter=rule={RULE}")
        return [alert for alert in found if alert["labels"]["run"] == "demo"]

    def told(self) -> list[tuple[str, dict[str, str]]]:
        """(status, labels) of what the receiver behind Alertmanager got, in order."""
        with self.hook.lock:
            alerts = [alert for _, body in self.hook.accepted for alert in body["alerts"]]
        return [(alert["status"], alert["labels"]) for alert in alerts if alert["labels"]["rule"] == RULE]


@pytest.fixture
def world(tmp_path, server_command):
    """A trainer that waits to be told its steps, Prometheus with the compiled rules, Alertmanager and a receiver."""
    pytest.importorskip("torch")
    prometheus, alertmanager = server_command("prometheus"), server_command("prometheus-alertmanager")
    with ExitStack() as stack:
        found = World(tmp_path, stack.enter_context(chaos.Journal()))
        compile_rules(tmp_path / "rltriage.rules.yml")
        (tmp_path / "am.yml").write_text(ALERTMANAGER.replace("HOOK", found.hook.url))
        (tmp_path / "prom.yml").write_text(
            PROMETHEUS.replace("ALERTMANAGER", found.alertmanager).replace("TRAINER", found.trainer)
        )
        command = [*alertmanager, f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/am"]
        command += [f"--web.listen-address={found.alertmanager}", "--cluster.listen-address=", "--log.level=error"]
        stack.enter_context(running(command, tmp_path / "am.log", f"http://{found.alertmanager}/-/ready"))
        command = [sys.executable, "-c", TRAINER, found.trainer, str(tmp_path / "runs")]
        found.process = stack.enter_context(running(command, tmp_path / "trainer.log", f"http://{found.trainer}/metrics"))
        command = [*prometheus, f"--config.file={tmp_path}/prom.yml", f"--storage.tsdb.path={tmp_path}/tsdb"]
        command += [f"--web.listen-address={found.prometheus}", "--log.level=warn"]
        stack.enter_context(running(command, tmp_path / "prom.log", f"http://{found.prometheus}/-/ready"))
        # Prometheus waits five seconds for its list of targets; what is measured is an alert, not a start.
        seconds_until(lambda: get(f"http://{found.prometheus}/api/v1/query?query=up==1")["data"]["result"])
        yield found


def compile_rules(file: Path) -> None:
    """What `rltriage rules compile` writes, with a linger that fits a scrape each second."""
    command = [sys.executable, "-m", "rltriage", "rules", "compile", "--to", "prometheus", "-o", str(file)]
    subprocess.run(command, check=True, timeout=PATIENCE)
    text = file.read_text()
    assert f"< {LINGER_SECONDS}" in text
    file.write_text(text.replace(f"< {LINGER_SECONDS}", f"< {LINGER}"))


@contextmanager
def service(world: World) -> Iterator[Service]:
    """A service that follows the run's directory and pushes to the same Alertmanager."""
    file = world.folder / "rltriage.yaml"
    file.write_text(
        f"version: 1\nstate_dir: state\nlisten: 127.0.0.1:0\nsources: [{{path: runs}}]\n"
        f"receivers: [{{name: am, alertmanager: 'http://{world.alertmanager}'}}]\n"
    )
    found = Service(load_config(file))
    found.start()
    try:
        yield found
    finally:
        found.stop()


def test_a_fault_is_pulled_and_pushed_as_one_alert_and_resolves_when_mended(world):
    """Training with a shifted mask, scraped: the receiver hears fault and first test, then that it is over."""
    times = {}
    world.go_on()
    seconds_until(world.rows)
    seconds_until(world.pulled)
    times["first bad row until Prometheus fires"] = time.time() - world.rows()[0]
    seconds_until(world.told)
    times["first bad row until the receiver hears of it"] = time.time() - world.rows()[0]
    (status, labels), (pulled,), (before,) = world.told()[0], world.pulled(), world.held()
    assert status == "firing" and labels["fault"] == "mask_shift" and labels["first_test"] == "mask_equals_policy_tokens"
    assert labels == pulled == before["labels"] and labels["team"] == "post" and labels["severity"] == "critical"
    assert "alert_id" not in before["annotations"], "nobody has pushed yet"

    with service(world) as pushing:
        times["start of the service until its push is there"] = seconds_until(
            lambda: "alert_id" in world.held()[0]["annotations"]
        )
        (held,) = world.held()  # the same labels are the same alert
        assert held["labels"] == pulled and held["fingerprint"] == before["fingerprint"]
        assert world.pulled() == [pulled] and {status for status, _ in world.told()} == {"firing"}

        world.go_on()
        seconds_until(lambda: len(world.rows()) == 6)
        seconds_until(lambda: not world.pulled() and not world.held())
        seconds_until(lambda: world.told()[-1][0] == "resolved")
        times["third good row until the receiver hears that it is over"] = time.time() - world.rows()[-1]
        assert pushing.dispatcher.states["am"].refused == 0
    assert world.told()[-1][1] == labels
    print("".join(f"\n{what}: {seconds:.1f} s" for what, seconds in times.items()))
