"""Curves keep extremes, stay bounded and forget what a rewind undoes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltriage.exporters.report.curves import MAX_METRICS, Curve, Curves

finite = st.floats(-1e6, 1e6)


@given(st.lists(finite, min_size=1, max_size=300), st.integers(1, 20))
def test_extremes_and_mean_survive_decimation(values: list[float], buckets: int) -> None:
    """However much is merged: the lowest, the highest and the mean of all values are those of the course."""
    curve = Curve(buckets)
    for step, value in enumerate(values):
        curve.add(step, value)
    found = curve.buckets()
    assert len(found) <= 2 * buckets
    assert min(b.low for b in found) == min(values)
    assert max(b.high for b in found) == max(values)
    weights = [curve.width] * (len(values) // curve.width) + [len(values) % curve.width]
    total = math.fsum(b.mean * n for b, n in zip(found, [w for w in weights if w], strict=True))
    assert total == pytest.approx(math.fsum(values), abs=1e-6 * len(values))


@given(st.lists(finite | st.just(math.nan), min_size=1, max_size=200), st.integers(1, 9))
def test_columns_equal_single_observations(values: list[float], buckets: int) -> None:
    """Rows taken by chunks give the curve that the same values give one by one."""
    one, many = Curve(buckets), Curves(buckets)
    for step, value in enumerate(values):
        one.add(step, value)
        many.add(step, {"x": value})
    assert many["x"].buckets() == one.buckets()
    assert (many["x"].width, many["x"].count, many["x"].gaps) == (one.width, one.count, one.gaps)


def test_short_runs_keep_every_value() -> None:
    """Up to the number of buckets nothing is merged."""
    curves = Curves(50)
    for step in range(50):
        curves.add(step, {"reward": step / 7})
    assert [(b.step, b.mean) for b in curves["reward"].buckets()] == [(s, s / 7) for s in range(50)]


def test_a_rewind_forgets_and_a_restart_begins_anew() -> None:
    """Steps that are run again replace what they were; a step back to the start leaves nothing of before."""
    curves = Curves()
    for step in [0, 1, 2, 3, 2, 3]:
        curves.add(step, {"x": float(len(curves) + step)})
    assert [b.step for b in curves["x"].buckets()] == [0, 1, 2, 3]
    curves.add(0, {"x": 9.0})
    assert [b.mean for b in curves["x"].buckets()] == [9.0]
    assert curves.restarts == 1


def test_a_second_record_of_a_step_only_adds_metrics() -> None:
    """Of one step the first value of a metric counts, as in the monitor."""
    curves = Curves()
    curves.add(4, {"a": 1.0})
    curves.add(4, {"a": 2.0, "b": 3.0})
    assert [b.mean for b in curves["a"].buckets()] == [1.0]
    assert [b.mean for b in curves["b"].buckets()] == [3.0]


def test_names_without_end_are_bounded() -> None:
    """A log that invents a metric per row fills no memory, and it is counted."""
    curves = Curves()
    for step in range(MAX_METRICS + 5):
        curves.add(step, {f"m{step}": 1.0})
    assert len(curves) == MAX_METRICS
    assert curves.dropped == 5
