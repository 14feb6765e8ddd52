"""What exporting costs: handing a row over, and a scrape of many runs beside prometheus_client's own gauges.

    python benchmarks/export.py [--runs 200] [--metrics 60] [--scrapes 20] [--json]

Both sides hold the same series and are measured in the same process, alternating, with every run changed before each
scrape, in processor time. The stock endpoint compresses at gzip's default level, as its handler does.
Bars (DESIGN section 10): a row under 20 us at the median, a scrape 8 times faster than the stock client's Gauge children.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from rltriage.engine.report import EMPTY
from rltriage.engine.rows import Row, Run
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.http import serve_metrics
from rltriage.rules.model import MetricInfo

TIMES = [
    "publish_us",
    "stock_set_us",
    "scrape_ms",
    "scrape_one_run_changed_ms",
    "scrape_cached_ms",
    "openmetrics_after_text_ms",
    "gzip_ms",
    "stock_scrape_ms",
    "stock_gzip_ms",
]
CATALOGUE = Path(__file__).parents[1] / "rules" / "metrics.yaml"


def timed(call: Callable[[], object]) -> float:
    """Seconds of processor time that one call takes: other programs on the machine do not count."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def summary(seconds: list[float], unit: float) -> dict[str, float]:
    """Median and 99th percentile, in units of `unit` seconds."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {"median": round(statistics.median(ordered) / unit, 3), "p99": round(p99 / unit, 3)}


class Sides:
    """The same runs and metrics on both sides, filled with the same rows."""

    def __init__(self, run_count: int, metric_count: int, seed: int) -> None:
        entries = yaml.safe_load(CATALOGUE.read_text())["metrics"]
        catalogue = {name: MetricInfo(name=name, **entry) for name, entry in entries.items() if "<id>" not in name}
        names = list(catalogue)[:metric_count]
        self.names = names + [f"extra/metric_{index}" for index in range(metric_count - len(names))]
        self.runs = [Run(f"run-{index:04}", {"project": "bench"}) for index in range(run_count)]
        self.gauges = Gauges(catalogue)
        self.registry = CollectorRegistry()
        labels = ["run", "project", "outcome"]
        stock = [
            Gauge("stock_" + name.replace("/", "_"), "A metric", labels, registry=self.registry) for name in self.names
        ]
        self.children = [[gauge.labels(run.id, "bench", "") for gauge in stock] for run in self.runs]
        self._draw = random.Random(seed)

    def row(self, step: int) -> Row:
        """A row of full-precision values, the dearest to print."""
        return Row(step, {name: self._draw.random() for name in self.names})


def measure(run_count: int, metric_count: int, scrapes: int, seed: int = 0) -> dict[str, object]:
    """Every number of the benchmark: `*_us` in microseconds, `*_ms` in milliseconds."""
    both = Sides(run_count, metric_count, seed)
    gauges = both.gauges
    times: dict[str, list[float]] = {name: [] for name in TIMES}
    for step in range(scrapes):
        for run, own in zip(both.runs, both.children, strict=True):
            row = both.row(step)
            times["publish_us"].append(timed(lambda run=run, row=row: gauges.publish(run, row, EMPTY)))
            pairs = list(zip(own, row.metrics.values(), strict=True))
            times["stock_set_us"].append(timed(lambda pairs=pairs: [gauge.set(value) for gauge, value in pairs]))
        times["scrape_ms"].append(timed(gauges.render))
        times["stock_scrape_ms"].append(timed(lambda: generate_latest(both.registry)))
        body = generate_latest(both.registry)
        times["gzip_ms"].append(timed(lambda: gauges.render(gzipped=True)))
        times["stock_gzip_ms"].append(timed(lambda body=body: gzip.compress(body)))
        times["openmetrics_after_text_ms"].append(timed(lambda: gauges.render(openmetrics=True)))
        times["scrape_cached_ms"].append(timed(gauges.render))
        gauges.publish(both.runs[step % run_count], both.row(step), EMPTY)
        times["scrape_one_run_changed_ms"].append(timed(gauges.render))
    times["http_gzip_wall_ms"] = over_http(both, scrapes)
    found: dict[str, object] = {"runs": run_count, "metrics": metric_count, "bytes": len(gauges.render())}
    found["gzip_bytes"] = len(gauges.render(gzipped=True))
    found |= {name: summary(values, 1e-6 if name.endswith("_us") else 1e-3) for name, values in times.items()}
    # Pairs of neighbouring measurements: whatever slows the machine down slows both.
    plain = [theirs / ours for theirs, ours in zip(times["stock_scrape_ms"], times["scrape_ms"], strict=True)]
    columns = (times[name] for name in ("stock_scrape_ms", "stock_gzip_ms", "scrape_ms", "gzip_ms"))
    zipped = [(a + b) / (c + d) for a, b, c, d in zip(*columns, strict=True)]
    found["times_faster"] = round(statistics.median(plain), 1)
    found["times_faster_with_gzip"] = round(statistics.median(zipped), 1)
    return found


def over_http(both: Sides, scrapes: int) -> list[float]:
    """Wall seconds of a gzip scrape over a local connection, every run changed before each."""
    found = []
    with serve_metrics(both.gauges) as server:
        request = urllib.request.Request(server.url + "/metrics", headers={"Accept-Encoding": "gzip"})
        for step in range(scrapes):
            for run in both.runs:
                both.gauges.publish(run, both.row(scrapes + step), EMPTY)
            begin = time.perf_counter()
            with urllib.request.urlopen(request) as answer:
                answer.read()
            found.append(time.perf_counter() - begin)
    return found


def main() -> None:
    """Print the numbers, one a line or as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--metrics", type=int, default=60)
    parser.add_argument("--scrapes", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args.runs, args.metrics, args.scrapes)
    if args.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        text = f"{value['median']:>10} median {value['p99']:>10} p99" if isinstance(value, dict) else f"{value:>10}"
        print(f"{name:<26}{text}")


if __name__ == "__main__":
    main()
