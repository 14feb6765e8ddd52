"""How long a report of a long run takes and how large it is (bar: 100,000 rows of 40 metrics in 10 s, 3 MB).

    python benchmarks/report.py [ROWS] [--runs healthy,drifting,noise] [--parts]

A healthy run; one in which failing answers grow and the policy leaves its reference from the middle on; and (asked for by
--runs) noise around one half for every metric, which no run logs and at which half of the rules hold now and then. Prints
one JSON object a run: seconds of `rltriage report run.jsonl -o report.html` as one waits for it and of processor time, how
many times as long that is as the standard library's `json.loads` of the lines takes just before and after (which a slow
machine slows as well), the page's size, and with --parts what of the processor time is reading the rows, collecting the
curves and rendering; the rest are the rules.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from healthy import LEVELS, lines

from rltriage.engine.feed import Feed
from rltriage.engine.report import EMPTY
from rltriage.engine.rows import Run
from rltriage.engine.sources import open_source
from rltriage.exporters.report.build import build
from rltriage.exporters.report.collect import Collectors
from rltriage.exporters.report.html import report_html
from rltriage.rules.loader import load_rules

LIMIT_SECONDS = 10.0
LIMIT_KIB = 3 * 1024


def noise(count: int) -> Iterator[str]:
    """Rows whose every metric lies around one half."""
    draw = random.Random(0)
    for step in range(count):
        yield json.dumps({"step": step} | {name: round(draw.gauss(0.5, 0.05), 6) for name in LEVELS})


RUNS: dict[str, Callable[[int], Iterator[str]]] = {
    "healthy": lines,
    "drifting": lambda count: lines(count, drifting=True),
    "noise": noise,
}


def loads(log: Path) -> float:
    """Processor time of `json.loads` of all lines."""
    spent = 0.0
    with log.open() as file:
        for line in file:
            begin = time.process_time()
            json.loads(line)
            spent += time.process_time() - begin
    return spent


def command(log: Path) -> dict[str, float]:
    """The whole command on a log."""
    page, plain = log.with_suffix(".html"), loads(log)
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "rltriage", "report", log, "-o", page], check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    times = used / ((plain + loads(log)) / 2)
    return {"seconds": wall, "cpu_seconds": used, "times_json": times, "page_kib": page.stat().st_size / 1024}


def parts(log: Path) -> dict[str, float]:
    """Processor time of what is not the rules."""
    begin = time.process_time()
    rows = [row for _, row in Feed(open_source(str(log)), "alone").rows()]
    read = time.process_time()
    collectors, run = Collectors(), Run("alone")
    for row in rows:
        collectors.publish(run, row, EMPTY)
    len(collectors.of(run).curves)
    collected = time.process_time()
    report_html([build(collectors.of(run), load_rules("triage"))])
    return {"reading": read - begin, "collecting": collected - read, "rendering": time.process_time() - collected}


def main() -> int:
    """Write each log, report on it, measure; 1 where a bar is missed by a run that could be one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("rows", nargs="?", type=int, default=100_000)
    parser.add_argument("--runs", default="healthy,drifting")
    parser.add_argument("--parts", action="store_true")
    options = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        for name in options.runs.split(","):
            log = Path(folder, f"{name}.jsonl")
            with log.open("w") as file:
                file.writelines(f"{line}\n" for line in RUNS[name](options.rows))
            found = command(log) | (parts(log) if options.parts else {})
            missed |= name != "noise" and (found["seconds"] > LIMIT_SECONDS or found["page_kib"] > LIMIT_KIB)
            print(json.dumps({"run": name, "rows": options.rows} | {key: round(value, 2) for key, value in found.items()}))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
