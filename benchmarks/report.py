"""How long a report of a long run takes and how large it is: 100,000 rows of 40 metrics (bar: 10 s, 3 MB).

    python benchmarks/report.py [ROWS]

Prints one JSON object: seconds of the whole command's work, of collecting and of rendering alone, and the page's size.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from rltriage.engine.report import EMPTY
from rltriage.engine.rows import Row, Run
from rltriage.engine.sources import open_source
from rltriage.exporters.report.build import build
from rltriage.exporters.report.collect import Collectors
from rltriage.exporters.report.html import report_html
from rltriage.replaying import replay
from rltriage.rules.loader import load_rules

METRICS = 40


def main() -> None:
    """Write a log, report on it, measure."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    pack = load_rules("triage")
    names = [name for name in pack.catalogue.metrics if not name.startswith("check_")][:METRICS]
    rng = random.Random(0)
    rows = [{name: round(rng.gauss(0.5, 0.05), 6) for name in names} for _ in range(1000)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "long.jsonl")
        with log.open("w") as file:
            for step in range(count):
                file.write(json.dumps({"step": step, **rows[step % len(rows)]}) + "\n")
        started = time.process_time()
        collectors = Collectors()
        replayed = next(replay(open_source(str(log)), pack, run_id="long", sinks=(collectors,)))
        evaluated = time.process_time()
        page = report_html([build(collectors.of(replayed.watched.run), pack)])
        rendered = time.process_time()
    alone, run = Collectors(), Run("alone")
    made = [Row(step, rows[step % len(rows)]) for step in range(count)]
    collecting = time.process_time()
    for row in made:
        alone.publish(run, row, EMPTY)
    len(alone.of(run).curves)
    print(
        json.dumps(
            {
                "rows": count,
                "cpu_seconds": round(rendered - started, 2),
                "of_which_rendering": round(rendered - evaluated, 2),
                "of_which_collecting": round(time.process_time() - collecting, 2),
                "page_kib": round(len(page.encode()) / 1024),
            }
        )
    )


if __name__ == "__main__":
    main()
