"""Compiled rules that several runs share: in threads, over a reload, and in logs whose names never end."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

import pytest

from rltriage.engine.history import MOST_MATCHED, MOST_NAMES
from rltriage.engine.layout import Layout
from rltriage.engine.monitor import Monitor
from rltriage.engine.rows import Row, Run
from rltriage.rules.conditions.held_out import HeldOut
from rltriage.rules.conditions.terms import Term
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.conditions.trade import Trade
from rltriage.rules.loader import load_rules
from rltriage.rules.model import RulePack

TRADE = Trade(components=("reward/*",))


def test_runs_in_threads_share_a_pack() -> None:
    """Each thread watches its own run with the same pack, names new components at every row and asks for explanations."""
    pack, failures = load_rules("triage"), []

    def watch(number: int) -> None:
        try:
            monitor = Monitor(Run(f"run{number}"), pack, pack.catalogue)
            for step in range(40):
                monitor.observe(Row(step, {"reward": 0.5, f"reward/{number}-{step}": 0.1, f"reward/{step}": 0.2}))
                for rule in pack.rules[number + step % 7 :: 17]:
                    monitor.explain(rule.id)
            failures.extend(monitor.failed_rules)
        except Exception as error:
            failures.append(repr(error))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=watch, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []


def test_explanations_add_nothing_to_what_is_compiled() -> None:
    """Whoever asks again and again does not make the process grow."""
    pack = load_rules("triage")
    monitor = Monitor(Run("run"), pack, pack.catalogue)
    monitor.observe(Row(0, {"reward": 0.5, "reward/a": 0.1}))

    def size() -> tuple[object, ...]:
        layout = monitor._layout
        return len(layout._cache), len(layout.needs), layout._asked, layout.version

    sizes = []
    for _ in range(3):
        for rule in pack.rules:
            monitor.explain(rule.id)
        sizes.append(size())
    assert sizes[1] == sizes[2]
    assert monitor._layout._asked is None


def test_levels_at_firing_are_noted_once(rule) -> None:
    """A reader that is asked for twice remembers one level."""
    layout = Layout((rule("r", clear_when=Threshold("x", below=Term(metric="x", stat="at_firing"))),))
    before = layout.levels_of("r")
    layout._private = "r"
    layout.at_firing("x")
    assert layout.levels_of("r") == before == [("r", "x", 5)]


def components(count: int) -> dict[str, list[float]]:
    """A component that falls, one that rises and a total that does not fall, in so many rows."""
    wave = [0.001 * (i % 3) for i in range(count)]
    return {
        "reward": [1.0 + one for one in wave],
        "reward/a": [1.0 - 0.04 * i + one for i, one in enumerate(wave)],
        "reward/b": [0.1 + 0.04 * i + one for i, one in enumerate(wave)],
    }


def test_reload_keeps_what_patterns_stand_for(watch, rule, rows) -> None:
    """A rule about components goes on over a reload of the same rules as if there had been none."""
    series = components(30)
    kept, told = watch(rule("t", TRADE)), watch(rule("t", TRADE))
    expected = rows(kept, **series)
    assert [alert.state for alert in expected] == ["firing"]
    step = expected[0].step - 1
    found = rows(told, **{name: values[:step] for name, values in series.items()})
    told.reload(RulePack("p", (replace(told.pack.rules[0]),)))
    found += rows(told, start=step, **{name: values[step:] for name, values in series.items()})
    assert [(alert.step, alert.values) for alert in found] == [(alert.step, alert.values) for alert in expected]


def test_reload_keeps_the_usual_number_of_episodes(watch, rule, rows) -> None:
    """What the engine reads by itself is not forgotten either: a partial batch stays unjudged."""
    series = {"n_episodes": [64.0] * 3 + [16.0] * 40 + [24.0], "x": [0.0] * 43 + [1.0]}
    kept, told = watch(rule()), watch(rule())
    expected = rows(kept, **series)
    found = rows(told, **{name: values[:43] for name, values in series.items()})
    told.reload(RulePack("p", (replace(told.pack.rules[0]),)))
    found += rows(told, start=43, **{name: values[43:] for name, values in series.items()})
    assert told._most_episodes(told._history) == kept._most_episodes(kept._history) == 64.0
    assert [alert.step for alert in found] == [alert.step for alert in expected]


@pytest.mark.parametrize("prefix", ["reward/task", "other"])
def test_names_without_end_are_bounded(watch, rule, prefix) -> None:
    """A log that names a metric per task or prompt: a bounded number is kept, and rules go on."""
    monitor = watch(rule("t", TRADE), rule("high"))
    for step in range(60):
        monitor.observe(Row(step, {"reward": 0.5, **{f"{prefix}{step}-{i}": 1.0 for i in range(100)}}))
    history, layout = monitor._history, monitor._layout
    assert len(history.names) < MOST_NAMES + 200
    assert all(len(found) <= MOST_MATCHED for found in history.matched.values())
    assert len(layout.needs) < MOST_MATCHED + 50 and len(layout.shapes) < 50
    monitor.observe(Row(60, {"x": 1.0}))
    assert [alert.rule for alert in monitor.open_alerts] == ["high"]


@pytest.mark.parametrize("scale", [0.0, -2.0, float("nan")])
def test_a_scale_that_is_no_range_is_unknown(watch, rule, rows, scale) -> None:
    """Held-out is not judged by a range of 0 or less, which would turn every comparison around."""
    when = HeldOut(training="reward", held_out="eval_pass", scale=Term(config="reward_max"))
    series = {"reward": [0.1 * i for i in range(20)], "eval_pass": [0.5] * 20}
    assert [alert.state for alert in rows(watch(rule("h", when), config={"reward_max": 1.0}), **series)] == ["firing"]
    monitor = watch(rule("h", when), config={"reward_max": scale})
    assert rows(monitor, **series) == []
    assert monitor.explain("h").holds is None
