"""A service that follows many runs: what it costs, and how late it is.

    python benchmarks/load.py [--runs 1000] [--seconds 120] [--record] [--json]

Every run's log gets a row of METRICS metrics each second: the rows of recorded healthy runs, filled up with names of its
own. A service like that of `rltriage watch` follows the folder, on CORES cores that it shares with the writer, which is a
process of its own and counted apart; it is scraped every SCRAPE_SECONDS. Halfway, every hundredth run gets a fault, and a
webhook notes when it hears of it. Processor time and memory are those of the service's process, from /proc; a row's lag is
from its writing until it has been judged, offered to the receivers and shown. Exit code 0 if every row was seen, every
fault was told and nothing else was, 1 otherwise.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rltriage.following import raise_file_limit
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
_ROWS = re.compile(r"^rltriage_rows_total\{.*\} (\S+)$", re.MULTILINE)


@dataclass
class Result:
    """What was seen. `lag` is of every row that came while rows were written, in seconds; `told` from a faulty row's
    writing to the receiver. `cores` and `writer_cores` are processor time a second while rows came.
    """

    runs: int
    seconds: float
    rows_written: int = 0
    rows_seen: int = 0
    rows_behind_at_end: int = 0
    start_seconds: float = 0.0
    cores: float = 0.0
    writer_cores: float = 0.0
    peak_mib: float = 0.0
    start_mib: float = 0.0
    lag: list[float] = field(default_factory=list)
    scrape: list[float] = field(default_factory=list)
    scrape_bytes: int = 0
    text_bytes: int = 0
    told: list[float] = field(default_factory=list)
    untold: int = 0
    other_alerts: int = 0
    writer_late: float = 0.0
    exit_code: int = 0

    @property
    def ok(self) -> bool:
        return self.rows_seen == self.rows_written and not (self.untold or self.other_alerts or self.exit_code)

    def short(self) -> dict[str, Any]:
        """Plain data, with median, p99 and maximum of what was measured many times."""
        return {name: _spread(value) if isinstance(value, list) else value for name, value in asdict(self).items()}


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values) or [float("nan")]
    return {"median": statistics.median(ordered), "p99": ordered[math.ceil(0.99 * len(ordered)) - 1], "max": ordered[-1]}


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
        raise_file_limit()
        recorded = read_runs(ROOT / "tests" / "data" / "runs", only=["healthy"])
        self.rows = [[row.metrics for row in run.rows] for run in recorded]
        self.files = [folder / f"run{number:04d}.jsonl" for number in range(runs)]
        self.open = [os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for file in self.files]
        self.half = seconds // 2
        self.written = 0
        self.faulty: dict[str, float] = {}
        self.late = 0.0
        for number in range(runs):
            self.write(number, 0)

    @cache  # noqa: B019 (one writer a process)
    def body(self, source: int, index: int, turn: int) -> str:
        """The metrics of a recorded row and those of its own, as the inside of a JSON object."""
        row = dict(self.rows[source][index])
        row |= {f"own/metric_{number}": float(number + turn) for number in range(METRICS - len(row))}
        return json.dumps(row)[1:-1]

    def write(self, run: int, step: int) -> None:
        """One row. Behind the end of a recorded run its last rows come again."""
        source = run % len(self.rows)
        length = len(self.rows[source])
        body = self.body(source, step if step < length else length - 1 - step % 4, step % 7)
        now = time.time()
        if run % FAULT_EVERY == 0 and step > self.half:
            body += ", " + json.dumps(FAULT)[1:-1]
            self.faulty.setdefault(self.files[run].stem, now)
        os.write(self.open[run], f'{{"step": {step}, "time": {now}, {body}}}\n'.encode())
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


def write(folder: Path, runs: int, seconds: int) -> None:
    """The writer's process: the first rows, then, once a line comes on stdin, those of `seconds`; its notes as JSON."""
    writer = Writer(folder, runs, seconds)
    print("ready", flush=True)
    sys.stdin.readline()
    begin, used = time.monotonic(), time.process_time()
    writer.run(seconds)
    cores = (time.process_time() - used) / (time.monotonic() - begin)
    print(json.dumps({"written": writer.written, "faulty": writer.faulty, "late": writer.late, "cores": cores}))


@contextmanager
def writing(folder: Path, runs: int, seconds: int) -> Iterator[Callable[[], dict[str, Any]]]:
    """A process that has written the first rows; what is given lets it write the others and returns its notes."""
    command = [sys.executable, __file__, "--write", str(folder), "--runs", str(runs), "--seconds", str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the writer did not start")

        def go_on() -> dict[str, Any]:
            notes: dict[str, Any] = json.loads(process.communicate("\n")[0])
            return notes

        yield go_on


SERVICE = """
import json, sys, time
from pathlib import Path
from rltriage.rules.config import load_config
from rltriage.service import Service

class Lags:
    def __init__(self):
        self.found = []
    def publish(self, run, row, report):
        if row is not None:
            self.found.append((row.time, time.time() - row.time))
    def end(self, run_id, state, now):
        pass

lags = Lags()
service = Service(load_config(Path(sys.argv[1])), sinks=lambda pack: [lags])
service.start()
print(service.url, flush=True)
sys.stdin.readline()
service.stop()
Path(sys.argv[2]).write_text(json.dumps(lags.found))
"""


@contextmanager
def service(folder: Path, hook: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The service on the folder's logs; the process and its address, once it has read what is there."""
    file = folder / "rltriage.yaml"
    file.write_text(
        "version: 1\nstate_dir: state\nlisten: 127.0.0.1:0\nsources: [{path: logs}]\n"
        f"receivers: [{{name: hook, webhook: '{hook}', group_window: 0}}]\n"
    )
    command = [sys.executable, "-c", SERVICE, str(file), str(folder / "lags.json")]
    log = folder / "service.log"
    with open(log, "wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            if _answers(f"{url}/-/ready"):
                yield process, url
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
    receiver = Receiver()
    threading.Thread(target=receiver.serve_forever, args=(0.05,), daemon=True).start()
    result = Result(runs, seconds)
    with writing(folder / "logs", runs, seconds) as go_on:
        begin = time.monotonic()
        with service(folder, f"http://127.0.0.1:{receiver.server_address[1]}") as (process, url):
            result.start_seconds = time.monotonic() - begin
            notes, since = _watch(result, go_on, process, url, scrape_seconds)
            faulty: dict[str, float] = notes["faulty"]
            _wait(result, url, {(run, RULE) for run in faulty}, receiver)
            result.peak_mib = _mib(process.pid, "VmHWM")
            process.communicate("\n", timeout=60)
            result.exit_code = process.returncode
    receiver.shutdown()
    receiver.server_close()
    result.lag = [lag for written, lag in json.loads((folder / "lags.json").read_text()) if written >= since]
    return _judged(result, faulty, receiver)


def _watch(
    result: Result, go_on: Callable[[], dict[str, Any]], process: subprocess.Popen[str], url: str, scrape_seconds: float
) -> tuple[dict[str, Any], float]:
    """Let the rows come while the service is scraped; the writer's notes, and when the first of these rows was written."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(scrape_seconds):
            taken, result.scrape_bytes, text = _scrape(url)
            result.text_bytes = len(text)
            result.scrape.append(taken)

    scraper = threading.Thread(target=scrape)
    result.start_mib = _mib(process.pid, "VmRSS")
    since, begin, used = time.time(), time.monotonic(), _processor_seconds(process.pid)
    scraper.start()
    notes = go_on()
    result.cores = (_processor_seconds(process.pid) - used) / (time.monotonic() - begin)
    over.set()
    scraper.join()
    result.rows_written, result.writer_late, result.writer_cores = notes["written"], notes["late"], notes["cores"]
    result.rows_behind_at_end = result.rows_written - _rows_seen(_scrape(url)[2])
    return notes, since


def _wait(result: Result, url: str, expected: set[tuple[str, str]], receiver: Receiver) -> None:
    """Until every row was seen and every fault told, for PATIENCE seconds at most."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        result.rows_seen = _rows_seen(_scrape(url)[2])
        if result.rows_seen == result.rows_written and expected <= receiver.heard.keys():
            return
        time.sleep(0.5)


def _judged(result: Result, faulty: dict[str, float], receiver: Receiver) -> Result:
    heard = {run: at for (run, rule), at in receiver.heard.items() if rule == RULE}
    result.told = [heard[run] - at for run, at in faulty.items() if run in heard]
    result.untold = len(faulty.keys() - heard.keys())
    result.other_alerts = sum(run not in faulty for run, _ in receiver.heard)
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", action="store_true", help="keep the result, and write it into docs/delivery.md")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write, options.runs, options.seconds)
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])  # inherited by the service and the writer
    with tempfile.TemporaryDirectory() as folder:
        result = run(options.runs, options.seconds, Path(folder))
    print(json.dumps(result.short() | {"ok": result.ok}) if options.json else words(result))
    if options.record:
        from record import record

        record("load", f"python benchmarks/load.py --runs {options.runs} --seconds {options.seconds}", [result.short()])
    sys.exit(0 if result.ok else 1)


def words(result: Result) -> str:
    """The result for people."""

    def spread(values: list[float]) -> str:
        found = _spread(values)
        return f"{found['median']:.2f} s median, {found['p99']:.2f} s p99, {found['max']:.2f} s max"

    return (
        f"{result.runs} runs x {METRICS} metrics, a row a second each, {result.seconds:.0f} s: "
        f"{result.rows_seen} of {result.rows_written} rows seen, "
        f"{result.rows_behind_at_end} behind when the last was written\n"
        f"ready {result.start_seconds:.1f} s after its start with a row of each run\n"
        f"processor {result.cores:.2f} cores (and {result.writer_cores:.2f} for the writer, "
        f"which was at most {result.writer_late:.2f} s late)\n"
        f"memory {result.start_mib:.0f} MiB before, {result.peak_mib:.0f} MiB at most\n"
        f"row written to row judged: {spread(result.lag)}\n"
        f"faulty row to the receiver: {spread(result.told)}; {result.untold} untold, {result.other_alerts} other alerts\n"
        f"scrape: {spread(result.scrape)}; {result.scrape_bytes / 2**20:.2f} MiB gzipped, "
        f"{result.text_bytes / 2**20:.2f} MiB of text"
    )


if __name__ == "__main__":
    main()
