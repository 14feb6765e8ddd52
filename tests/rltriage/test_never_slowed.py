"""What fails around a training run never holds it up: clients of its endpoint, a full disk, receivers that hang."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import chaos
import pytest

import rltriage
from rltriage.engine.report import StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.http import MAX_CONNECTIONS
from rltriage.following import Fleet
from rltriage.rules.config import load_config
from rltriage.service import Service


def row(step: int) -> dict[str, float]:
    """A row of sixty metrics."""
    return {"reward": 0.5, "entropy": 2.0, "clip_frac": 0.01} | {f"own/m{n}": float(n + step) for n in range(60)}


def test_clients_that_hang_at_the_endpoint_do_not_hold_up_the_run(tmp_path: Path) -> None:
    """Half requests, answers that nobody reads, more connections than there may be: every row is taken and shown."""
    with rltriage.watch("r", listen=0, directory=tmp_path, quiet=True) as run, ExitStack() as stack:
        assert run.url is not None
        address = ("127.0.0.1", int(run.url.rpartition(":")[2].partition("/")[0]))
        for number in range(MAX_CONNECTIONS + 8):
            client = stack.enter_context(socket.create_connection(address, timeout=10))
            client.sendall(b"GET /metr" if number % 2 else b"GET /metrics HTTP/1.1\r\n\r\n")
        for step in range(200):
            assert run.log(step, row(step)).step == step
        assert run.errors == 0


FULL = """
import json, resource, sys, time
import rltriage
run = rltriage.watch("r", directory=sys.argv[1], quiet=True)
row = lambda step: {"reward": 0.5, "entropy": 2.0, "clip_frac": 0.01} | {f"own/m{n}": float(n + step) for n in range(60)}
steps = [run.log(step, row(step)).step for step in range(20)]
rows = run.path / "rows.jsonl"
while len(rows.read_bytes().splitlines()) < 20:  # they are written by another thread
    time.sleep(0.01)
size = rows.stat().st_size
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))  # room for half a row
steps += [run.log(step, row(step)).step for step in range(20, 200)]
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
steps += [run.log(step, row(step)).step for step in range(200, 220)]
print(json.dumps(steps))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on the size of files stands for the full disk")
def test_a_full_disk_does_not_hold_up_the_run(tmp_path: Path) -> None:
    """Rows are judged on, nothing is raised; with room again the journal goes on, and no row is glued to a half one."""
    ran = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == list(range(220)) and ran.stderr.count("could not be written") == 1
    assert "[Errno " in ran.stderr and "Traceback" not in ran.stderr
    lines = (tmp_path / "r" / "rows.jsonl").read_text().splitlines()
    whole = [json.loads(line)["step"] for line in lines if line.endswith("}")]
    assert whole[:20] == list(range(20)) and whole[-20:] == list(range(200, 220)) and len(lines) - len(whole) <= 1


@pytest.fixture
def service(tmp_path: Path) -> Any:
    """A service with a webhook and an Alertmanager, whose journals it has as `hook` and `am`."""
    with chaos.Journal() as hook, chaos.Journal() as am:
        found = Service(load_config(chaos.configure(tmp_path, hook.url, am.url)))
        found.open()
        found.hook, found.am = hook, am  # type: ignore[attr-defined]
        yield found
        found.stop()


def log_row(folder: Path, run: str, step: int, clip: float) -> None:
    """Append a row to a log; above .5 an alert fires."""
    with open(folder / "logs" / f"{run}.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "clip_frac": clip, "reward": 0.5}) + "\n")


def test_a_receiver_that_hangs_holds_up_neither_rows_nor_the_other_receiver(service: Any, tmp_path: Path) -> None:
    """While one request gets no answer, rows are judged, shown and queued, and the other receiver hears of them."""
    asked, answer = threading.Event(), threading.Event()

    def weather() -> str:
        asked.set()
        answer.wait(8)
        return "500"

    service.hook.weather = weather
    log_row(tmp_path, "r1", 0, 0.9)
    service.discover()
    service.poll()
    hanging = threading.Thread(target=service.flush, args=("hook",))
    hanging.start()
    assert asked.wait(10)
    log_row(tmp_path, "r2", 0, 0.9)
    service.discover()
    service.poll()
    service.flush("am")
    assert hanging.is_alive(), "it still waits for its answer"
    assert {alert["labels"]["run"] for _, body in service.am.accepted for alert in body} == {"r1", "r2"}
    assert b'rltriage_training_step{run="r2"} 0' in service.gauges.render()
    answer.set()
    hanging.join(20)
    assert len(service.dispatcher.outbox.waiting("hook")) == 2


class Slow:
    """A sink that waits in the middle of the first run's rows."""

    def __init__(self) -> None:
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        self.reached.set()
        self.goes_on.wait(20)

    def end(self, run_id: str, state: str, now: float) -> None:
        """Runs go on."""


def test_a_start_with_many_rows_holds_up_neither_health_nor_scrape_nor_delivery(service: Any, tmp_path: Path) -> None:
    """While rows are taken, clients are answered and what waits is delivered; a stop does not wait for the rest."""
    log_row(tmp_path, "r1", 0, 0.9)
    service.discover()
    service.poll()
    for step in range(200):
        log_row(tmp_path, "r2", step, 0.1)
    slow = Slow()
    fleet: Fleet = service._fleets[0].fleet
    fleet._sinks = (*fleet._sinks, slow)
    service.discover()
    reading = threading.Thread(target=service.poll)
    reading.start()
    assert slow.reached.wait(10) and reading.is_alive()
    with urllib.request.urlopen(f"{service.url}/-/healthy", timeout=10) as healthy:
        assert healthy.status == 200
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=10) as scrape:
        assert b'run="r1"' in scrape.read()
    service.flush("hook")
    assert len(service.hook.accepted) == 1 and reading.is_alive()
    service._stopping.set()
    slow.goes_on.set()
    reading.join(20)
    assert not reading.is_alive() and fleet.rows < 201, "the row in progress was the last"
    service._stopping.clear()
