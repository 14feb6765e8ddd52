"""What a panel over many runs costs a Prometheus, with and without its recording rule: processor seconds for three hours.

`python benchmarks/fleet_queries.py [--runs 1000]`. Every run has ten rules that have fired at some time, two of which fire.
Processor time is the server's own, so a busy machine does not change it much. Needs prometheus and promtool.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

from dashboards import END, blocks, prometheus

from rltriage.exporters.recording import ALERTS

RULES, FIRING, MINUTES = 10, 2, 180
START = END - 60 * (MINUTES - 1)


def exposition(runs: int) -> Iterator[str]:
    """Three hours of alert state, a sample a minute, and of what the rule would have recorded."""

    def family(name: str, series: Iterable[tuple[str, int]]) -> Iterator[str]:
        yield f"# TYPE {name} gauge\n"
        for labels, value in series:
            yield "".join(f"{name}{{{labels}}} {value} {START + 60 * minute}\n" for minute in range(MINUTES))

    pairs = [(run, rule) for run in range(runs) for rule in range(RULES)]
    yield from family(
        "rltriage_alert_firing",
        ((f'run="r{run}",rule="k{rule}",severity="critical",fault="f{rule}"', int(rule < FIRING)) for run, rule in pairs),
    )
    yield from family("rltriage_alert_explained", ((f'run="r{run}",rule="k{rule}"', 0) for run, rule in pairs))
    yield from family(ALERTS.record, ((f'severity="critical",fault="f{rule}"', runs) for rule in range(FIRING)))
    yield "# EOF\n"


def processor(address: str) -> float:
    """Processor seconds that the server has used."""
    with urllib.request.urlopen(f"http://{address}/metrics") as body:
        return float(re.search(r"^process_cpu_seconds_total (\S+)", body.read().decode(), re.MULTILINE)[1])  # type: ignore[index]


def cost(address: str, expression: str) -> float:
    """Processor seconds of a panel's query over the three hours; it must have an answer."""
    given = urllib.parse.urlencode({"query": expression, "start": START, "end": END, "step": 60})
    before = processor(address)
    with urllib.request.urlopen(f"http://{address}/api/v1/query_range?{given}") as body:
        assert len(json.load(body)["data"]["result"]) == FIRING
    return processor(address) - before


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        blocks(exposition(options.runs), data)
        with prometheus(data) as address:
            cost(address, ALERTS.expression)  # the blocks are read from disk once
            found = {"runs": options.runs, "query_s": round(cost(address, ALERTS.expression), 3)}
            print(json.dumps(found | {"recorded_s": round(cost(address, ALERTS.record), 3)}))


if __name__ == "__main__":
    main()
