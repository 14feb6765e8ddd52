"""`rltriage watch` and `rltriage serve` as processes: what a shell, systemd and an orchestrator see of them."""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PATIENCE = 60.0
PAUSE = threading.Event()
RULES = """
version: 1
pack: own
rules:
  - {id: clip-high, summary: "clip_frac is {clip_frac}", group: optimizer, severity: critical,
     when: {threshold: {metric: clip_frac, above: LIMIT}},
     suspects: {lr_too_high: 0.9}, first_test: rerun_lr_tenth}
"""


class Command:
    """A running command: lines of both of its streams as they come."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "rltriage", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.out, self.err = (self._lines(stream) for stream in (self.process.stdout, self.process.stderr))

    def _lines(self, stream) -> queue.Queue[str]:
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in stream], daemon=True).start()
        return lines

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def said(self, pattern: str) -> re.Match[str]:
        """The next line on stderr that fits."""
        while not (found := re.search(pattern, self.err.get(timeout=PATIENCE))):
            pass
        return found


@pytest.fixture
def start() -> Iterator[Callable[..., Command]]:
    """Starts commands; what still runs at the end is killed."""
    started: list[Command] = []

    def begin(*arguments: object) -> Command:
        started.append(Command(*arguments))
        return started[-1]

    yield begin
    for command in started:
        command.process.kill()
        command.process.wait()


def get(url: str) -> str:
    """The body of an answer, "" while nobody answers or it says no."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return ""


def until(condition: Callable[[], object]) -> None:
    """Wait for a state of the process that must come."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        PAUSE.wait(0.05)


def append(log: Path, step: int, clip: float) -> float:
    """A row; when it was written."""
    with open(log, "a") as file:
        file.write(json.dumps({"step": step, "clip_frac": clip, "reward": 0.5}) + "\n")
    return time.monotonic()


def test_watch_prints_alerts_as_rows_come_and_old_rules_outlive_a_mistake(start, tmp_path):
    """An alert comes out while the log grows, broken rules change nothing but the gauge, SIGTERM ends with 0."""
    log, rules = tmp_path / "demo.jsonl", tmp_path / "own.yaml"
    rules.write_text(RULES.replace("LIMIT", "0.5"))
    append(log, 0, 0.1)
    watch = start("watch", log, "--rules", rules, "--json")
    url = watch.said(r"metrics at (\S+)/metrics")[1]
    until(lambda: get(f"{url}/-/ready"))

    written = append(log, 1, 0.9)
    alert = json.loads(watch.out.get(timeout=PATIENCE))
    print(f"row to alert on stdout: {time.monotonic() - written:.2f} s")
    assert (alert["type"], alert["run"], alert["rule"], alert["state"], alert["step"]) == (
        "alert",
        "demo",
        "clip-high",
        "firing",
        1,
    )
    assert alert["first_test"]["id"] == "rerun_lr_tenth" and 'rule="clip-high"' in get(f"{url}/metrics")

    rules.write_text(RULES.replace("above: LIMIT", "abvoe: 0.5"))
    assert "abvoe" in watch.said(r".*abvoe.*")[0]
    until(lambda: "\nrltriage_rules_reload_success 0" in get(f"{url}/metrics"))
    append(log, 2, 0.1)
    while alert["type"] != "alert" or alert["state"] == "firing":
        alert = json.loads(watch.out.get(timeout=PATIENCE))
    assert (alert["rule"], alert["state"], alert["step"]) == ("clip-high", "resolved", 2)

    rules.write_text(RULES.replace("LIMIT", "0.05"))
    until(lambda: "\nrltriage_rules_reload_success 1" in get(f"{url}/metrics"))
    append(log, 3, 0.2)
    while alert["type"] != "alert" or alert["step"] != 3:
        alert = json.loads(watch.out.get(timeout=PATIENCE))
    assert alert["state"] == "firing", "the mended rules are in force"
    assert watch.stop() == 0


def test_serve_shows_a_run_and_stops_at_sigterm(start, tmp_path, monkeypatch):
    """The page and its JSON know the run and its alert; the process ends with 0."""
    monkeypatch.chdir(tmp_path)
    log, rules = tmp_path / "demo.jsonl", tmp_path / "own.yaml"
    rules.write_text(RULES.replace("LIMIT", "0.5"))
    append(log, 0, 0.9)
    serve = start("serve", log, "--rules", rules, "--page", "127.0.0.1:0", "--listen", "127.0.0.1:0")
    page = serve.out.get(timeout=PATIENCE).split()[1]
    until(lambda: "clip-high" in get(f"{page}/api/runs/demo"))
    assert "demo" in get(f"{page}/runs/demo")
    assert serve.stop() == 0
