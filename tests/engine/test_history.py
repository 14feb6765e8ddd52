"""Window maths against a naive version written from the definitions, and what the history keeps."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltriage.engine.history import History
from rltriage.engine.layout import Layout
from rltriage.engine.monitor import Monitor
from rltriage.engine.plan import finite
from rltriage.engine.rows import Row, Run
from rltriage.rules.conditions.departure import Departure
from rltriage.rules.conditions.spike import Spike
from rltriage.rules.conditions.terms import Term, Window, number
from rltriage.rules.conditions.trend import Trend
from rltriage.rules.model import Catalogue, Rule, RulePack

VALUES = st.one_of(st.sampled_from([0.0, 0.5, 1.0, -1.0]), st.floats(-100, 100, allow_nan=False, width=32))
SERIES = st.lists(st.one_of(st.none(), VALUES), min_size=1, max_size=60)


def naive_noise(values):
    """1.4826 * median|x_i - x_(i-1)| / sqrt(2), from the non-zero differences when most are zero."""
    steps = [abs(b - a) for a, b in pairwise(values)]
    if sum(step == 0 for step in steps) > len(steps) / 2:
        steps = [step for step in steps if step != 0]
    return 1.4826 * median(steps) / math.sqrt(2) if steps else 0.0


def naive_gain_z(values, baseline, window):
    """(now - start) / (1.2533 * s * sqrt(1/baseline + 1/window)), s over the last 30."""
    if len(values) < baseline + window:
        return None
    gain = median(values[-window:]) - median(values[:baseline])
    error = 1.2533 * naive_noise(values[-30:]) * math.sqrt(1 / baseline + 1 / window)
    return gain / error if error else 0.0 if gain == 0 else math.copysign(math.inf, gain)


def naive_best(values, size):
    """The largest median of so many consecutive observations."""
    return max((median(values[i : i + size]) for i in range(len(values) - size + 1)), default=None)


def naive_window(values, size, minimum, skip):
    """The median of the last `size` before the newest `skip`."""
    kept = values[: max(0, len(values) - skip)][-size:]
    return median(kept) if len(kept) >= minimum else None


def close(one, other):
    """Equal up to rounding, infinities and unknown included."""
    return one == other or (one is not None and other is not None and math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9))


@settings(max_examples=60, deadline=None)
@given(SERIES, st.integers(1, 6), st.integers(1, 12), st.integers(0, 4))
def test_readers_agree_with_the_definitions(series, baseline, size, skip) -> None:
    """start, now, windows, noise, gain z, best and extremes equal their naive versions at every row."""
    terms = {
        "start": Term(metric="x", stat="start", baseline=baseline),
        "early": Term(metric="x", stat="start", baseline=baseline, min=1),
        "now": Term(metric="x", stat="now", recent=size),
        "window": Term(metric="x", window=Window(size, min=1, skip=skip)),
        "gain_z": Term(metric="x", stat="gain_z", baseline=baseline, recent=size),
        "noise": Term(metric="x", stat="noise"),
        "best": Term(metric="x", stat="best", recent=size),
        "trough": Term(metric="x", stat="trough"),
    }
    layout = Layout()
    read = {name: term.bind(layout) for name, term in terms.items()}
    history = History(layout, {})
    seen: list[float] = []
    for step, value in enumerate(series):
        feed(history, step, {} if value is None else {"x": value})
        seen += [] if value is None else [value + 0.0]
        expected = {
            "start": median(seen[:baseline]) if len(seen) >= baseline else None,
            "early": median(seen[:baseline]) if seen else None,
            "now": naive_window(seen, size, size, 0),
            "window": naive_window(seen, size, 1, skip),
            "gain_z": naive_gain_z(seen, baseline, size),
            "noise": naive_noise(seen[-30:]) if len(seen) >= 3 else None,
            "best": naive_best(seen, size),
            "trough": naive_trough(seen),
        }
        if len(seen) < 3:
            expected["gain_z"] = None  # there is no noise to speak of yet
        found = {name: reader(history) for name, reader in read.items()}
        assert all(close(found[name], expected[name]) for name in terms), (found, expected)


def naive_trough(values):
    """The lowest since the last occurrence of the highest."""
    if not values:
        return None
    peak = len(values) - 1 - values[::-1].index(max(values))
    return min(values[peak + 1 :], default=None)


def feed(history, step, metrics):
    """One row, as the monitor does it."""
    history.begin(step, None)
    good, bad = finite(metrics)
    known = history.follow(good)
    history.take(metrics, good, known, history.pairs.values(), bad)


def verdicts(condition, series):
    """The check at every row."""
    layout = Layout()
    check = layout.check(condition)
    history = History(layout, {})
    found = []
    for step, value in enumerate(series):
        feed(history, step, {} if value is None else {"x": value})
        found.append(check(history))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=50), st.sampled_from([4, 8, 10]))
def test_trend_agrees_with_its_definition(series, size) -> None:
    """z of the halves over sqrt(4 / w) in every row."""
    found = verdicts(Trend(metric="x", direction="up", window=size), series)
    for row in range(len(series)):
        values = [value + 0.0 for value in series[: row + 1]][-size:]
        if len(values) < size:
            assert found[row] is None
            continue
        gain = median(values[size // 2 :]) - median(values[: size // 2])
        error = 1.2533 * naive_noise(values) * math.sqrt(4 / size)
        z = gain / error if error else 0.0 if gain == 0 else math.copysign(math.inf, gain)
        assert found[row] == (z >= 3) or math.isclose(z, 3, rel_tol=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=60))
def test_spike_agrees_with_its_definition(series) -> None:
    """Median and MAD of the last 20 sizes that reached 2 % of the running maximum."""
    found = verdicts(Spike(metric="x", floor=0.5), series)
    around: list[float] = []
    peak = 0.0
    for row, value in enumerate(series):
        size, kept = abs(value), around[-20:]
        if len(kept) < 10:
            assert found[row] is None
        else:
            middle = median(kept)
            deviation = median([abs(one - middle) for one in kept])
            assert found[row] == (size > 5 * middle and size - middle > 6 * deviation and size >= 0.5)
        peak = max(peak, size)
        around += [size] if size >= 0.02 * peak else []


@settings(max_examples=60, deadline=None)
@given(SERIES, st.sampled_from(["up", "down"]))
def test_departure_agrees_with_its_definition(series, direction) -> None:
    """Factor, amount and level against the start."""
    rule = Departure(metric="x", direction=direction, factor=0.5, by=number(0.25), reach=number(0.5), window=3, baseline=4)
    found = verdicts(rule, series)
    seen: list[float] = []
    for row, value in enumerate(series):
        seen += [] if value is None else [value]
        if len(seen) < 7:
            assert found[row] is None
            continue
        start, now = median(seen[:4]), median(seen[-3:])
        up = now >= 0.5 * start and now >= start + 0.25 and now >= 0.5
        down = now <= 0.5 * start and now <= start - 0.25 and now <= 0.5
        assert found[row] == (up if direction == "up" else down)


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, min_size=12, max_size=30), st.integers(1, 8))
def test_a_rewind_undoes_the_rows_that_it_drops(series, back) -> None:
    """After a step back the windows are those of a run that never had the dropped rows; the baselines stay."""
    terms = [
        Term(metric="x", window=Window(6, min=1)),
        Term(metric="x", stat="start", baseline=3),
        Term(metric="x", stat="noise"),
    ]
    layout = Layout()
    read = [term.bind(layout) for term in terms]
    gone, never = History(layout, {}), History(layout, {})
    for step, value in enumerate(series):
        feed(gone, step, {"x": value})
        if step < len(series) - back:
            feed(never, step, {"x": value})
    gone.rewind(len(series) - back)
    for step in range(3):
        feed(gone, len(series) - back + step, {"x": 7.0 + step})
        feed(never, len(series) - back + step, {"x": 7.0 + step})
        assert [reader(gone) for reader in read] == [reader(never) for reader in read]


def test_only_metrics_that_a_rule_reads_are_kept() -> None:
    """What nobody asked for costs nothing."""
    rule = Rule("r", "", "outcome", "info", Departure(metric="x", factor=2.0), {"mask_shift": 1.0}, "invariants")
    monitor = Monitor(Run("run"), RulePack("p", (rule,)), Catalogue({}, {}, {}))
    for step in range(100):
        monitor.observe(Row(step, {"x": 1.0, "unread": 2.0}))
    series = monitor._history.series
    assert "unread" not in series
    assert len(series["x"].values) < 20


@pytest.mark.parametrize("value", [10**400, -(10**400), True, math.nan, math.inf, -0.0, None, "text"])
def test_odd_values_never_raise(value) -> None:
    """Integers beyond floats, booleans, text and nothing are read as what they can be."""
    rule = Rule("r", "", "outcome", "info", Departure(metric="x", factor=2.0), {"mask_shift": 1.0}, "invariants")
    monitor = Monitor(Run("run"), RulePack("p", (rule,)), Catalogue({}, {}, {}))
    for step in range(12):
        monitor.observe(Row(step, {"x": 1.0 if step % 3 else value, "y": 1.0}))
    assert monitor.counters.errors == 0 and not monitor.rules_skipped
