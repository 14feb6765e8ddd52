"""The measurement of scale: what it rests on is still so, a small one works, and projections follow from it."""

from __future__ import annotations

import load
import pytest
import scale
import scale_tables

from rltriage.rules.loader import load_rules

TOLERANCE = 0.1
"""A tenth more rules or series changes no advice; what is beyond is measured again."""


def test_what_was_measured_is_what_there_is():
    """Rules, series and bytes of a run are those of benchmarks/scale.json, and so is the program that measured."""
    then, now = scale_tables.recorded()["basis"], scale.basis(load_rules("triage"))
    assert then["sources"] == now["sources"], "benchmarks/scale.py has changed: make scale"
    far = {
        name: (then[name], value)
        for name, value in now.items()
        if name != "sources" and abs(value - then[name]) > TOLERANCE * then[name]
    }
    assert not far, f"measured with other numbers (then, now): {far}: make scale"


def test_nothing_was_lost_while_it_was_measured():
    """Every target was up at the end, all rules ran, and every row of the engine was seen."""
    found = scale_tables.recorded()
    assert [(case["layout"], case["runs"], case["quiet"]) for case in found["cases"]] == list(scale.CASES)
    assert all(case["targets_down"] == 0 for case in found["cases"])
    assert found["engine"]["all_seen"]


def test_prometheus_holds_the_series_that_are_counted():
    """A run's count times the runs is what Prometheus says that it holds, within the series of its own and of alerts."""
    found = scale_tables.recorded()
    for case in found["cases"]:
        shown = case["runs"] if case["layout"] == "beside" else min(20, case["runs"])
        shown *= case["quiet"]
        one = found["basis"]
        faults = -(-case["runs"] // scale.FAULT_EVERY)
        targets = case["runs"] if case["layout"] == "beside" else 1
        counted = (
            (case["runs"] - shown) * one["series_run"]
            + shown * one["series_run_shown"]
            + faults * (one["series_faulty"] - one["series_run"])
            + targets * (one["series_exporter"] + scale_tables.SCRAPE_SERIES)
        )
        assert case["series"] == pytest.approx(counted, rel=0.1), case


def test_projections_start_from_what_was_measured():
    """At a measured size memory and processor are not below what was seen there, rules as often as then."""
    found = scale_tables.recorded()
    cost = scale_tables.rates(found)
    rarer = scale.RULE_SECONDS / scale_tables.INTERVAL
    for case in found["cases"]:
        assert cost["base"] + case["series"] * cost["series"] / 1024 >= case["resident_mib"] - 0.1
    fired = next(case for case in found["cases"] if (case["layout"], case["quiet"]) == ("beside", False))
    assert cost["cores_run"] * fired["runs"] == pytest.approx(fired["cores"] * rarer)
    assert cost["cores_run_shown"] > cost["cores_run"] > 0, "zeros of rules that never fired cost"


def test_what_the_engine_costs_is_read_from_the_load(monkeypatch):
    """It is measured last, after twenty minutes, by another program."""
    seen = load.Result(2, 3.0, rows_written=6, rows_seen=6, cores=0.1, peak_mib=80.4, lag=[0.2, 0.4, 0.6], told=[1.5])
    monkeypatch.setattr(load, "run", lambda runs, seconds, folder: seen)
    found = scale.engine(2, 3)
    assert found["all_seen"] and (found["peak_mib"], found["row_age_median"], found["told_median"]) == (80, 0.4, 1.5)


def test_a_small_measurement(server_binary, monkeypatch):
    """Two runs for a few seconds: series, scrapes, memory and the rules' time come from a real Prometheus."""
    server_binary("prometheus")
    monkeypatch.setattr(scale, "SCRAPE_SECONDS", 1)
    monkeypatch.setattr(scale, "RULE_SECONDS", 1)
    found = scale.measure("beside", 2, False, scale.Replayed(load_rules("triage")), seconds=12)
    assert found["targets_down"] == 0 and found["samples_a_scrape"] > 2 * scale.METRICS
    assert found["series"] >= found["samples_a_scrape"] and found["resident_mib"] >= 20
    assert set(found["rule_seconds"]) >= {"rltriage-triage"} and found["gzip_bytes"] < found["bytes"]
