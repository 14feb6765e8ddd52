"""A service that follows many runs: what it costs, and how late it is.

    python benchmarks/load.py [--runs 1000] [--seconds 120] [--json]

Every run's log gets a row of METRICS metrics each second: the rows of recorded healthy runs, filled up with names of its
own. `rltriage watch` follows the folder as a process of its own, on CORES cores that it shares with the writer; it is
scraped every SCRAPE_SECONDS. Halfway, every hundredth run gets a fault, and a webhook notes when it hears of it. Processor
time and memory are those of the service's process, from /proc. Exit code 0 if every row was seen, every fault was told and
nothing else was, 1 otherwise.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
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
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rltriage.recorded import read_runs

ROOT = Path(__file__).parents[1]
METRICS = 60
CORES = 2
SLICES = 20
"""Parts of a second in which a share of the runs is written, so that rows do not come all at once."""
SCRAPE_SECONDS = 5.0
FAULT_EVERY = 100
FAULT = {"logp_placeholder_frac": 0.3}
RULE = "logp-placeholder"
PATIENCE = 300.0
_LAST_ROW = re.compile(r"^rltriage_last_row_timestamp_seconds\{.*\} (\S+)$", re.MULTILINE)
_ROWS = re.compile(r"^rltriage_rows_total\{.*\} (\S+)$", re.MULTILINE)


@dataclass
class Result:
    """What was seen from outside. `row_age` is how old the newest visible row of a run is, `lag` that beyond a second.

    `told` are seconds from a faulty row's writing to the receiver. `cores` is processor time a second while rows came.
    """

    runs: int
    seconds: float
    rows_written: int
    rows_seen: int = 0
    rows_behind_at_end: int = 0
    cores: float = 0.0
    peak_mib: float = 0.0
    start_mib: float = 0.0
    row_age: list[float] = field(default_factory=list)
    scrape: list[float] = field(default_factory=list)
    scrape_bytes: int = 0
    told: list[float] = field(default_factory=list)
    untold: int = 0
    other_alerts: int = 0
    writer_late: float = 0.0
    exit_code: int = 0

    @property
    def ok(self) -> bool:
        return self.rows_seen == self.rows_written and not (self.untold or self.other_alerts or self.exit_code)


class Receiver(ThreadingHTTPServer):
    """A webhook that notes when it first heard of each (run, rule) that fires."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heard: dict[tuple[str, str], float] = {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for alert in body["alerts"]:
            if alert["state"] == "firing":
                self.server.heard.setdefault((alert["run"], alert["rule"]), time.time())  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """The notes are the log."""


class Writer:
    """Appends a row a second to each run's log. `faulty` are the times at which the first faulty rows were written."""

    def __init__(self, folder: Path, runs: int, seconds: int) -> None:
        recorded = read_runs(ROOT / "tests" / "data" / "runs", only=["healthy"])
        self.rows = [[row.metrics for row in run.rows] for run in recorded]
        self.files = [folder / f"run{number:04d}.jsonl" for number in range(runs)]
        self.half = seconds // 2
        self.written = 0
        self.faulty: dict[str, float] = {}
        self.late = 0.0
        for number in range(runs):
            self.write(number, 0)

    def write(self, run: int, step: int) -> None:
        """One row. Behind the end of a recorded run its last rows come again."""
        rows = self.rows[run % len(self.rows)]
        row = dict(rows[step] if step < len(rows) else rows[len(rows) - 1 - step % 4])
        row |= {f"own/metric_{number}": float(number + step) for number in range(METRICS - len(row))}
        now = time.time()
        if run % FAULT_EVERY == 0 and step > self.half:
            row |= FAULT
            self.faulty.setdefault(self.files[run].stem, now)
        with open(self.files[run], "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": now, **row}) + "\n")
        self.written += 1

    def run(self, seconds: int) -> None:
        """Write for `seconds`, each run at its own part of the second."""
        begin = time.monotonic()
        for step in range(1, seconds + 1):
            for part in range(SLICES):
                wait = begin + step - 1 + part / SLICES - time.monotonic()
                self.late = max(self.late, -wait)
                time.sleep(max(0.0, wait))
                for number in range(part, len(self.files), SLICES):
                    self.write(number, step)


@contextmanager
def service(folder: Path, hook: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`rltriage watch` on the folder's logs; the process and its address, once it has read what is there."""
    file = folder / "rltriage.yaml"
    file.write_text(
        "version: 1\nstate_dir: state\nlisten: 127.0.0.1:0\nsources: [{path: logs}]\n"
        f"receivers: [{{name: hook, webhook: '{hook}', group_window: 0}}]\n"
    )
    log = folder / "service.log"
    with open(log, "wb") as errors:
        command = [sys.executable, "-m", "rltriage", "watch", "--file", str(file)]
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
    try:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            found = re.search(r"metrics at (\S+)/metrics", log.read_text())
            if found and _answers(f"{found[1]}/-/ready"):
                yield process, found[1]
                return
            time.sleep(0.1)
        raise RuntimeError(f"the service did not start: {log.read_text()[-2000:]}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _scrape(url: str) -> tuple[float, int, str]:
    """Seconds, bytes over the wire and text of one scrape, compressed as Prometheus asks for it."""
    request = urllib.request.Request(f"{url}/metrics", headers={"Accept-Encoding": "gzip"})
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        body = answer.read()
    return time.monotonic() - begin, len(body), gzip.decompress(body).decode()


def _rows_seen(text: str) -> int:
    return int(sum(float(value) for value in _ROWS.findall(text)))


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _mib(pid: int, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def run(runs: int, seconds: int, folder: Path, scrape_seconds: float = SCRAPE_SECONDS) -> Result:
    """One measurement in `folder`."""
    (folder / "logs").mkdir()
    writer, receiver = Writer(folder / "logs", runs, seconds), Receiver()
    threading.Thread(target=receiver.serve_forever, args=(0.05,), daemon=True).start()
    over = threading.Event()
    result = Result(runs, seconds, 0)
    with service(folder, f"http://127.0.0.1:{receiver.server_address[1]}") as (process, url):

        def scrape() -> None:
            while not over.wait(scrape_seconds):
                now = time.time()
                taken, result.scrape_bytes, text = _scrape(url)
                result.scrape.append(taken)
                result.row_age += [now + taken - float(value) for value in _LAST_ROW.findall(text)]

        scraper = threading.Thread(target=scrape)
        result.start_mib = _mib(process.pid, "VmRSS")
        begin, used = time.monotonic(), _processor_seconds(process.pid)
        scraper.start()
        writer.run(seconds)
        result.cores = (_processor_seconds(process.pid) - used) / (time.monotonic() - begin)
        over.set()
        scraper.join()
        result.rows_behind_at_end = writer.written - _rows_seen(_scrape(url)[2])
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            result.rows_seen = _rows_seen(_scrape(url)[2])
            if result.rows_seen == writer.written and {(run, RULE) for run in writer.faulty} <= receiver.heard.keys():
                break
            time.sleep(0.5)
        result.peak_mib = _mib(process.pid, "VmHWM")
        process.send_signal(signal.SIGTERM)
        result.exit_code = process.wait(60)
    receiver.shutdown()
    receiver.server_close()
    return _judged(result, writer, receiver)


def _judged(result: Result, writer: Writer, receiver: Receiver) -> Result:
    heard = {run: at for (run, rule), at in receiver.heard.items() if rule == RULE}
    result.rows_written, result.writer_late = writer.written, writer.late
    result.told = [heard[run] - at for run, at in writer.faulty.items() if run in heard]
    result.untold = len(writer.faulty.keys() - heard.keys())
    result.other_alerts = sum(run not in writer.faulty for run, _ in receiver.heard)
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # inherited by the service
    with tempfile.TemporaryDirectory() as folder:
        result = run(options.runs, options.seconds, Path(folder))
    if options.json:
        print(json.dumps(asdict(result) | {"ok": result.ok}))
    else:
        print(words(result))
    sys.exit(0 if result.ok else 1)


def words(result: Result) -> str:
    """The result for people."""

    def spread(values: list[float]) -> str:
        if not values:
            return "not measured"
        p99 = sorted(values)[int(0.99 * (len(values) - 1))]
        return f"{statistics.median(values):.2f} s median, {p99:.2f} s p99, {max(values):.2f} s max"

    return (
        f"{result.runs} runs x {METRICS} metrics, a row a second each, {result.seconds:.0f} s: "
        f"{result.rows_seen} of {result.rows_written} rows seen, "
        f"{result.rows_behind_at_end} behind when the last was written\n"
        f"processor {result.cores:.2f} cores, memory {result.start_mib:.0f} MiB before, {result.peak_mib:.0f} MiB at most\n"
        f"age of the newest visible row: {spread(result.row_age)} (a row a second: 0 to 1 s without any lag)\n"
        f"faulty row to the receiver: {spread(result.told)}; {result.untold} untold, {result.other_alerts} other alerts\n"
        f"scrape, gzip, {result.scrape_bytes / 2**20:.2f} MiB: {spread(result.scrape)}\n"
        f"the writer was at most {result.writer_late:.2f} s late"
    )


if __name__ == "__main__":
    main()
