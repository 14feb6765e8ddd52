"""Speed and size of the engine: rows per second, tail latency, ratio to json.loads, bytes per run.

    python benchmarks/engine.py [--pack triage] [--rows 20000] [--metrics 40] [--runs 1000]

Rows are healthy: values wander around plausible levels. Engine and json.loads take turns over the same ten rows, and the
quantiles of those turns are compared, because a busy machine slows both. Without a busy machine the medians are the truth;
the tenth percentile is what an undisturbed turn takes. The bars are in DESIGN section 10.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from healthy import FACTS, lines

from rltriage.engine.feed import Feed
from rltriage.engine.monitor import Monitor
from rltriage.engine.rows import Fact, Row, Run
from rltriage.engine.sources import open_source
from rltriage.engine.triage import Triage
from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.loader import load_rules
from rltriage.rules.model import Catalogue, RulePack

TURN = 10
"""Rows that the engine and json.loads take in turns."""
WARM = 300
"""Rows before the first that is timed."""


def read(lines: Sequence[str]) -> list[Row]:
    """The same rows as the engine takes them: the names are those of the profile's plan, one object each for all rows."""
    rows = []
    for line in lines:
        values = {sys.intern(name): value for name, value in json.loads(line).items()}
        rows.append(Row(values.pop("step"), values, values.pop("time")))
    return rows


def monitor(pack: RulePack, run: str = "bench") -> Monitor:
    """A monitor with the facts that most rules ask for."""
    facts = {name: Fact(value, "declared") for name, value in FACTS.items()}
    return Monitor(Run(run, facts=facts), pack, Catalogue({}, {}, {}))


def speed(pack: RulePack, text: Sequence[str]) -> dict[str, float]:
    """The monitor alone: microseconds a row, their ratio to json.loads, quantiles of single rows."""
    rows, watched = read(text), monitor(pack)
    for row in rows[:WARM]:
        watched.observe(row)
    gc.collect()
    observed, parsed, single = [], [], []
    for begin in range(WARM, len(rows) - TURN, TURN):
        parsed.append(_parse(text[begin : begin + TURN]))
        start = time.thread_time()
        for row in rows[begin : begin + TURN]:
            watched.observe(row)
        observed.append((time.thread_time() - start) / TURN)
    for row in read(text):  # the same rows once more, one by one, in a run of their own
        single.append(_one(watched if single else (watched := monitor(pack)), row))
    ordered = sorted(single)
    return _compared("monitor", observed, parsed) | {
        "rows_per_s": 1 / _quantile(observed, 0.5),
        "rows_per_s_undisturbed": 1 / _quantile(observed, 0.1),
        "p99_us": 1e6 * ordered[int(0.99 * len(ordered))],
        "max_us": 1e6 * ordered[-1],
    }


def replay(pack: RulePack, catalogue: Catalogue, text: Sequence[str]) -> dict[str, float]:
    """The whole pipeline of a replay, from the file to the alerts, against json.loads over its lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("\n".join(text) + "\n")
        reports = _replayed(path, pack, catalogue)
        taken, parsed = [], []
        for begin in range(0, len(text) - TURN, TURN):
            start = time.thread_time()
            for _ in islice(reports, TURN):
                pass
            taken.append((time.thread_time() - start) / TURN)
            parsed.append(_parse(text[begin : begin + TURN]))
    return _compared("replay", taken, parsed)


def _replayed(path: Path, pack: RulePack, catalogue: Catalogue) -> Iterator[object]:
    watched: Monitor | None = None
    for intake, row in Feed(open_source(str(path)), "bench", config=FACTS).rows():
        if watched is None:
            watched = Monitor(intake.run, pack, catalogue, triage=Triage(catalogue, pack))
        yield watched.observe(row)


def _one(watched: Monitor, row: Row) -> float:
    start = time.thread_time()
    watched.observe(row)
    return time.thread_time() - start


def _parse(text: Sequence[str]) -> float:
    start = time.thread_time()
    for line in text:
        json.loads(line)
    return (time.thread_time() - start) / len(text)


def _compared(name: str, taken: Sequence[float], parsed: Sequence[float]) -> dict[str, float]:
    """Medians and tenth percentiles in microseconds, and their ratios."""
    found = {}
    for share, word in ((0.5, "median"), (0.1, "undisturbed")):
        one, other = _quantile(taken, share), _quantile(parsed, share)
        found |= {f"{name}_us_{word}": 1e6 * one, f"{name}_json_us_{word}": 1e6 * other}
        found[f"{name}_times_json_{word}"] = one / other
    return found


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * len(values))]


def size(pack: RulePack, text: Sequence[str], runs: int) -> float:
    """Bytes per run with full windows, beyond the rules themselves."""
    rows = read(text[:200])
    monitor(pack).observe(rows[0])
    gc.collect()
    tracemalloc.start()
    kept = []
    for index in range(runs):
        watched = monitor(pack, f"run-{index}")
        for row in rows:
            watched.observe(row)
        kept.append(watched)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / len(kept)


def start(pack: RulePack, text: Sequence[str], runs: int = 40) -> float:
    """Milliseconds of processor time that a further run of a pack costs before its second row."""
    row, taken = read(text[:1])[0], []
    monitor(pack).observe(row)
    for index in range(runs):
        begin = time.thread_time()
        monitor(pack, f"run-{index}").observe(row)
        taken.append(1e3 * (time.thread_time() - begin))
    return _quantile(taken, 0.5)


def fleet(pack: RulePack, text: Sequence[str], runs: int) -> None:
    """So many runs in this process: how much it grows by them (MiB resident), and the seconds that their starts take."""
    rows = read(text[:64])
    monitor(pack).observe(rows[0])
    before, begin = _resident(), time.thread_time()
    kept = [monitor(pack, f"run-{index}") for index in range(runs)]
    for watched in kept:
        watched.observe(rows[0])
    started = time.thread_time() - begin
    for row in rows[1:]:
        for watched in kept:
            watched.observe(row)
    print(f"{'fleet_start_s':32} {started:12.2f}\n{'fleet_mib':32} {_resident() - before:12.1f}")


def _resident() -> float:
    """MiB of this process in memory now; its peak would begin with that of the process which started it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def main() -> None:
    """Print one line a measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pack", default="triage", help="a shipped rule pack or a file")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--metrics", type=int, default=40)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--fleet", action="store_true", help="only start so many runs (what the last lines come from)")
    options = parser.parse_args()
    catalogue = load_catalogue()
    pack = load_rules(options.pack, catalogue=catalogue)
    text = list(lines(options.rows, options.metrics))
    if options.fleet:
        return fleet(pack, text, options.runs)
    print(f"{len(pack.rules)} rules, {options.rows} rows of {options.metrics} metrics")
    for name, value in (speed(pack, text) | replay(pack, catalogue, text)).items():
        print(f"{name:32} {value:12.2f}")
    print(f"{'start_ms_a_run':32} {start(pack, text):12.2f}")
    print(f"{'bytes_a_run':32} {size(pack, text, min(options.runs, 200)):12.0f}", flush=True)
    others = ["--pack", options.pack, "--rows", "64", "--metrics", str(options.metrics), "--runs", str(options.runs)]
    subprocess.run(
        [sys.executable, __file__, "--fleet", *others], check=True
    )  # in a process of its own: memory that was freed is used again


if __name__ == "__main__":
    main()
