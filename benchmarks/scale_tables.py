"""The tables of docs/scale.md, written from benchmarks/scale.json (benchmarks/scale.py) by `make docs`."""

from __future__ import annotations

import json
from typing import Any

from scale import FAULT_EVERY, METRICS, RESULTS, RULE_SECONDS

FLEETS = (10, 1_000, 10_000)
INTERVAL = 15
"""Seconds between scrapes and between evaluations in the projections."""
SCRAPE_SERIES = 5
"""What Prometheus itself writes of each target: `up` and four `scrape_*`."""


def recorded() -> dict[str, Any]:
    """What was measured last."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def table(*rows: tuple[object, ...]) -> str:
    """A Markdown table; numbers stand on the right."""
    numeric = [all(str(row[i])[:1].isdigit() or row[i] == "" for row in rows[1:]) for i in range(len(rows[0]))]
    lines = [rows[0], tuple("---:" if right else "---" for right in numeric), *rows[1:]]
    return "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, int) or (isinstance(value, float) and value >= 100):
        return f"{value:,.0f}"
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def one_run() -> str:
    """The series of one run, counted from its exposition."""
    found = recorded()["basis"]
    run, shown, faulty = (found[f"series_{name}"] for name in ("run", "run_shown", "faulty"))
    return table(
        ("a run of 60 metrics", "series", "bytes of text"),
        ("healthy, `quiet_rules: false`", run, found["bytes_run"]),
        ("the same with a fault: every alert that has ever fired", faulty, found["bytes_faulty"]),
        (f"healthy, each of {found['rules']} rules at 0 (the first 20 runs of an engine)", shown, found["bytes_run_shown"]),
        ("for each engine: of itself, and Prometheus of its scrape", found["series_exporter"] + SCRAPE_SERIES, ""),
    )


def measured() -> str:
    """Every case, as Prometheus tells it of itself."""
    rows: list[tuple[object, ...]] = [
        ("engines", "runs", "series", "scrape of one target", "Prometheus, memory", "cores", "all rules once, wall time")
    ]
    for case in recorded()["cases"]:
        engines = "one" if case["layout"] == "one" else "one a run" + ("" if case["quiet"] else ", `quiet_rules: false`")
        scrape = f"{1000 * case['scrape_seconds']:,.1f} ms, {case['gzip_bytes'] / 1024:,.0f} KiB"
        rules = f"{sum(case['rule_seconds'].values()):.2f} s"
        memory = f"{case['resident_mib']:,.0f} MiB"
        rows.append((engines, case["runs"], case["series"], scrape, memory, f"{case['cores']:.2f}", rules))
    return table(*rows)


def rates(found: dict[str, Any]) -> dict[str, float]:
    """What a series and a run cost, from the cases: the dearest of each.

    A run's share of a core is processor time, which other programs do not lengthen. Rules were evaluated every RULE_SECONDS
    and are every INTERVAL; scrapes get rarer by more than that, so what is left is an upper bound.
    """
    cases = found["cases"]
    rarer = RULE_SECONDS / INTERVAL
    fired, shown = (
        next(case for case in cases if (case["layout"], case["quiet"]) == ("beside", quiet)) for quiet in (False, True)
    )
    return {
        "series": max((case["resident_mib"] - case["base_mib"]) * 1024 / case["series"] for case in cases),
        "base": max(case["base_mib"] for case in cases),
        "cores_run": fired["cores"] * rarer / fired["runs"],
        "cores_run_shown": shown["cores"] * rarer / shown["runs"],
        "gzip_run": float(fired["gzip_bytes"]),
        "gzip_run_shown": float(shown["gzip_bytes"]),
    }


def projected() -> str:
    """Fleets of three sizes at one scrape and one evaluation every INTERVAL seconds."""
    found = recorded()
    cost, one = rates(found), found["basis"]
    rows: list[tuple[object, ...]] = [
        ("runs", "rules shown", "series", "samples/s", "fetched", "Prometheus, memory", "cores, at most")
    ]
    for runs in FLEETS:
        for quiet in ("", "_shown"):
            each = one[f"series_run{quiet}"] + one["series_exporter"] + SCRAPE_SERIES
            series = runs * each + runs / FAULT_EVERY * (one["series_faulty"] - one["series_run"])
            memory = cost["base"] + series * cost["series"] / 1024
            rows.append(
                (
                    f"{runs:,}",
                    "all" if quiet else "fired",
                    round(series, -2 if series > 10_000 else 0),
                    round(series / INTERVAL),
                    f"{runs * cost[f'gzip_run{quiet}'] / INTERVAL / 1024:,.0f} KiB/s",
                    f"{memory / 1024:.1f} GiB" if memory > 1024 else f"{memory:.0f} MiB",
                    f"{runs * cost[f'cores_run{quiet}']:.2g}",
                )
            )
    return table(*rows)


def engines() -> str:
    """What the engine itself takes."""
    found = recorded()["engine"]
    lag = f"{found['row_age_median']} s"
    return table(
        ("runs in one engine", "rows/s", "cores", "memory", "age of the newest row that a scrape shows"),
        (found["runs"], found["rows_a_second"], f"{found['cores']:.2f}", f"{found['peak_mib']} MiB", lag),
    )


def where() -> str:
    """Machine, date, command."""
    found = recorded()
    told = found["machine"]
    return (
        f"Measured on {told['date']} with Prometheus {told['prometheus']} and Python {told['python']} on {told['cores']} "
        f"cores ({told['cpu']}) under a load of {told['load']} to {told['load_at_end']}: `{told['command']}`. "
        f"{found['basis']['rules']} rules, {METRICS} metrics a run, a fault in every hundredth run.\n"
    )


PARTS = {
    "scale-run": one_run,
    "scale-measured": measured,
    "scale-projected": projected,
    "scale-engines": engines,
    "scale-where": where,
}
