"""What many runs cost Prometheus: series, scrapes, memory, rules. `make scale`, or `nice python benchmarks/scale.py`.

A real Prometheus (deploy/fetch_servers.sh) scrapes expositions that the real `Gauges` render from recorded rows, every two
seconds until the chunks in its memory are full, with all rules of `rules compile` and of deploy/prometheus loaded. Every
hundredth run has a fault. Two layouts: one engine for all runs, and one beside each trainer. What was measured goes to
benchmarks/scale.json, from which `make docs` writes the tables of docs/scale.md; figures for sizes beyond what was measured
are projected from it, linearly, and the page says so. Takes twenty minutes and less than half a core.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rltriage.engine.monitor import Monitor
from rltriage.engine.report import StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.compile_prometheus import compile_engine
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.promql import engine_expression
from rltriage.recorded import read_runs
from rltriage.rules.loader import load_rules
from rltriage.rules.model import RulePack

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "scale.json"
SERVERS = ROOT / ".cache" / "servers" / "usr" / "bin"
METRICS = 60
FAULT_EVERY = 100
SCRAPE_SECONDS = 2
RULE_SECONDS = 10
FULL_SECONDS = 250
"""More than the 120 samples that a chunk in memory holds."""
CASES = (("one", 200, True), ("one", 1000, True), ("beside", 200, True), ("beside", 200, False))
"""Layout, runs, whether rules that have never fired are shown at 0 (as they are by default)."""
ENGINE = (200, 45)
"""Runs and seconds of the measurement of `rltriage watch` itself: a row of METRICS metrics a second in each run."""


class Replayed:
    """Rows and reports of a recorded healthy run and of one with a fault, with METRICS metrics each."""

    def __init__(self, pack: RulePack) -> None:
        self.pack = pack
        self.healthy, self.faulty = self._replay("healthy"), self._replay("mask_shift")

    def _replay(self, group: str) -> list[tuple[Row, StepReport]]:
        recorded = read_runs(ROOT / "tests" / "data" / "runs", only=[group])[0]
        monitor, found = Monitor(Run(group), self.pack, self.pack.catalogue), []
        for row in recorded.rows:
            logged = {name: value for name, value in row.metrics.items() if not name.startswith("check_")}
            logged |= {f"own/metric_{number}": row.step + number / 3 for number in range(METRICS - len(logged))}
            report = monitor.observe(Row(row.step, logged))
            found.append((Row(row.step, logged), report))
        return found

    def publish(self, gauges: Gauges, number: int, tick: int) -> None:
        """Row `tick` of run `number`."""
        row, report = (self.faulty if number % FAULT_EVERY == 0 else self.healthy)[tick]
        gauges.publish(Run(f"run-{number:05}", {"team": "bench"}), Row(tick, row.metrics, time.time()), report)


class Targets(ThreadingHTTPServer):
    """`/0` with all runs, or `/0` ... `/N-1` with one each.

    Rendered beforehand, half as many rows as a recorded run has, which come round: Prometheus is measured, not this server.

    `cpu` is what each body took to render and compress (processor seconds), `bytes` one body plain and with gzip.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, layout: str, runs: int, quiet: bool, replayed: Replayed) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        each = [range(runs)] if layout == "one" else [range(number, number + 1) for number in range(runs)]
        self.cpu: list[float] = []
        self.bytes = (0, 0)
        self.bodies = [self._rendered(numbers, quiet, replayed) for numbers in each]
        self.scrapes = [0] * len(each)

    def _rendered(self, numbers: range, quiet: bool, replayed: Replayed) -> list[bytes]:
        gauges = Gauges(replayed.pack.catalogue.metrics, replayed.pack.rules if quiet else (), max_runs=20_000)
        bodies = []
        for tick in range(len(replayed.healthy)):
            for number in numbers:
                replayed.publish(gauges, number, tick)
            begin = time.thread_time()
            bodies.append(gauges.render(gzipped=True))
            self.cpu.append(time.thread_time() - begin)
        self.bytes = len(gauges.render()), len(bodies[-1])
        # The first rows show how alerts come; the last ones, with all that ever fired, are those that stay.
        return bodies[len(bodies) // 2 :]

    def scrape(self, target: int) -> bytes:
        self.scrapes[target] += 1
        return self.bodies[target][self.scrapes[target] % len(self.bodies[target])]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prometheus cuts its connections when it stops."""


class _Handler(BaseHTTPRequestHandler):
    server: Targets
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.server.scrape(int(self.path.strip("/")))
        self.send_response(200)
        for name, value in (
            ("Content-Type", "text/plain; version=0.0.4"),
            ("Content-Encoding", "gzip"),
            ("Content-Length", str(len(body))),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a scrape a second."""


@contextmanager
def prometheus(folder: Path, targets: Targets, pack: RulePack) -> Iterator[str]:
    """A Prometheus that scrapes the targets and evaluates every rule; its address, once it is ready."""
    (folder / "rltriage.yaml").write_text(compile_engine(pack, pack.catalogue).rules)
    files = ["rltriage.yaml"]
    for extra in ("recording.yaml", "meta-alerts.yaml"):
        if (ROOT / "deploy" / "prometheus" / extra).exists():
            shutil.copy(ROOT / "deploy" / "prometheus" / extra, folder)
            files.append(extra)
    here = f"127.0.0.1:{targets.server_address[1]}"
    scraped = [
        {"targets": [here], "labels": {"__metrics_path__": f"/{n}", "instance": f"engine-{n}"}}
        for n in range(len(targets.bodies))
    ]
    config = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{RULE_SECONDS}s"},
        "rule_files": files,
        "scrape_configs": [{"job_name": "rltriage", "static_configs": scraped}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    port = _free_port()
    binary = shutil.which("prometheus") or str(SERVERS / "prometheus")
    command = [binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    process = subprocess.Popen(command)
    try:
        url = f"http://127.0.0.1:{port}"
        while not _answers(f"{url}/-/ready"):
            if process.poll() is not None:
                raise RuntimeError("Prometheus did not start")
            time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def own_metrics(url: str) -> dict[str, float]:
    """Prometheus' own metrics by series, as it exposes them."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}


def query(url: str, expression: str) -> list[float]:
    """The values of an instant query."""
    with urllib.request.urlopen(f"{url}/api/v1/query?query={urllib.request.quote(expression)}", timeout=30) as answer:
        return [float(entry["value"][1]) for entry in json.load(answer)["data"]["result"]]


def rule_seconds(own: dict[str, float]) -> dict[str, float]:
    """Seconds that the last evaluation of each group took."""
    groups = {}
    for series, value in own.items():
        found = re.match(r'prometheus_rule_group_last_duration_seconds\{rule_group=".*;(.*)"\}', series)
        if found:
            groups[found[1]] = value
    return groups


def measure(layout: str, runs: int, quiet: bool, replayed: Replayed, seconds: int = FULL_SECONDS) -> dict[str, Any]:
    """One case: what Prometheus says of itself after `seconds`, and what the exporter counted."""
    targets = Targets(layout, runs, quiet, replayed)
    threading.Thread(target=targets.serve_forever, args=(0.05,), daemon=True).start()
    with tempfile.TemporaryDirectory() as name, prometheus(Path(name), targets, replayed.pack) as url:
        base = own_metrics(url)["process_resident_memory_bytes"]
        time.sleep(seconds / 2)
        begin, first, samples = time.monotonic(), own_metrics(url), []
        evaluations = []
        while time.monotonic() - begin < seconds / 2:
            time.sleep(min(RULE_SECONDS, seconds / 4))
            samples.append(own_metrics(url))
            evaluations.append(rule_seconds(samples[-1]))
        last, passed = samples[-1], time.monotonic() - begin
        durations = query(url, 'min_over_time(scrape_duration_seconds{job="rltriage"}[2m])')
        scraped = query(url, 'sum(scrape_samples_scraped{job="rltriage"})')
        down = query(url, 'count(up{job="rltriage"} == 0)')
        missed = query(url, "sum(prometheus_rule_group_iterations_missed_total)")
    targets.shutdown()
    targets.server_close()
    appended = "prometheus_tsdb_head_samples_appended_total"
    float_appended = f'{appended}{{type="float"}}' if f'{appended}{{type="float"}}' in last else appended
    cores = (last["process_cpu_seconds_total"] - first["process_cpu_seconds_total"]) / passed
    # The quickest of many: what other programs on these cores add to it is no cost of the rules.
    groups = {name: min(each[name] for each in evaluations) for name in evaluations[-1]}
    return {
        "layout": layout,
        "runs": runs,
        "quiet": quiet,
        "series": int(last["prometheus_tsdb_head_series"]),
        "samples_a_scrape": int(sum(scraped)),
        "samples_a_second": round((last[float_appended] - first[float_appended]) / passed),
        "base_mib": round(base / 2**20, 1),
        "resident_mib": round(max(one["process_resident_memory_bytes"] for one in samples) / 2**20, 1),
        "cores": round(cores, 3),
        "rule_seconds": {name: round(value, 4) for name, value in groups.items()},
        "scrape_seconds": round(min(durations), 4),
        "exporter_ms": round(1000 * statistics.median(targets.cpu), 2),
        "bytes": targets.bytes[0],
        "gzip_bytes": targets.bytes[1],
        "targets_down": int(sum(down)),
        "iterations_missed": int(sum(missed)),
    }


def engine(runs: int, seconds: int) -> dict[str, Any]:
    """What one engine costs, by benchmarks/load.py: a row a second in each run."""
    from load import run

    with tempfile.TemporaryDirectory() as folder:
        result = run(runs, seconds, Path(folder))
    return {
        "runs": runs,
        "rows_a_second": runs,
        "all_seen": result.ok,
        "cores": round(result.cores, 3),
        "peak_mib": round(result.peak_mib),
        "row_age_median": round(statistics.median(result.lag), 2),
        "told_median": round(statistics.median(result.told), 2) if result.told else None,
    }


def basis(pack: RulePack) -> dict[str, Any]:
    """What the figures rest on, counted anew: a test compares it with what is recorded."""
    replayed = Replayed(pack)
    found: dict[str, Any] = {"rules": len(pack.rules), "metrics": METRICS}
    for name, number, quiet in (("run", 1, False), ("run_shown", 1, True), ("faulty", 0, False)):
        gauges = Gauges(pack.catalogue.metrics, pack.rules if quiet else ())
        alone = len(_lines(gauges.render()))
        for tick in range(len(replayed.healthy)):
            replayed.publish(gauges, number, tick)
        lines = _lines(gauges.render())
        found[f"series_{name}"] = len(lines) - alone
        found[f"bytes_{name}"] = sum(map(len, lines))
        found["series_exporter"] = alone
    found["sources"] = hashlib.sha256(_what_measures().encode()).hexdigest()[:16]
    return found


def _what_measures() -> str:
    """This program up to its tables, without comments, and the expression of a compiled rule."""
    text = Path(__file__).read_text(encoding="utf-8").split("\n# ---- tables")[0]
    return ast.dump(ast.parse(text)) + engine_expression(load_rules("triage").rules[0])


def _lines(body: bytes) -> list[bytes]:
    return [line for line in body.splitlines() if not line.startswith(b"#")]


def machine() -> dict[str, Any]:
    """Where and when."""
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    binary = shutil.which("prometheus") or str(SERVERS / "prometheus")
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "prometheus": re.search(r"version (\S+)", version.stdout + version.stderr)[1],  # type: ignore[index]
        "load": round(os.getloadavg()[0], 1),
        "command": "make scale",
    }


def main() -> None:
    """Measure every case and write benchmarks/scale.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=int, default=FULL_SECONDS, help="of each case")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through the blocks that end Prometheus
    pack = load_rules("triage")
    found: dict[str, Any] = {"basis": basis(pack), "machine": machine(), "cases": []}
    for layout, runs, quiet in CASES:
        found["cases"].append(measure(layout, runs, quiet, Replayed(pack), options.seconds))
        print(json.dumps(found["cases"][-1]), flush=True)
    found["engine"] = engine(*ENGINE)
    found["machine"]["load_at_end"] = round(os.getloadavg()[0], 1)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


# ---- tables of docs/scale.md: benchmarks/scale_tables.py

if __name__ == "__main__":
    main()
