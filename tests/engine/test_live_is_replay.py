"""The law that live and replay say the same, through the sources: bytes that trickle in, and a watcher that is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltriage.engine.feed import Feed
from rltriage.engine.monitor import Monitor
from rltriage.engine.sources import open_source
from rltriage.engine.triage import Triage
from rltriage.rules.loader import load_rules
from rltriage.rules.model import RulePack

Said = tuple[str, str, int, str]


@pytest.fixture(scope="module")
def pack() -> RulePack:
    """The shipped rules."""
    return load_rules("triage")


class Watcher:
    """What one process knows: it reads a log from its beginning and remembers nothing beyond its own life."""

    def __init__(self, log: Path, pack: RulePack, follow: bool) -> None:
        self.feed = Feed(open_source(str(log), follow=follow), "r", "generic", {"kl_coef": 0.1, "updates_per_batch": 4})
        self.pack = pack
        self.monitor: Monitor | None = None

    def take(self, pairs) -> list[Said]:
        """The transitions of new rows."""
        said: list[Said] = []
        for intake, row in pairs:
            if self.monitor is None:
                triage = Triage(self.pack.catalogue, self.pack)
                self.monitor = Monitor(intake.run, self.pack, self.pack.catalogue, triage=triage)
            report = self.monitor.observe(row)
            said += [(a.id, a.state, a.step, a.summary) for a in report.alerts if a.state != "pending"]
        return said


number = st.sampled_from([0.0, 0.1, 0.5, 0.9, 5.0, float("nan")])
row = st.fixed_dictionaries(
    {"reward": number, "kl_ref": st.sampled_from([0.0, 0.0, 2.0]), "grad_norm": number, "lr": st.just(1e-3)},
    optional={"entropy": number, "logp_gap": number, "clip_frac": st.just(0.0)},
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(row, min_size=3, max_size=30), st.data())
def test_live_is_replay_for_any_split_of_the_bytes_and_any_kill(pack: RulePack, tmp_path: Path, rows, data) -> None:
    """However a log arrives, and wherever its watcher dies and another reads on, the transitions are those of a replay."""
    text = "".join(json.dumps({"step": step, **row}) + "\n" for step, row in enumerate(rows)).encode()
    whole, log = tmp_path / "whole.jsonl", tmp_path / "live.jsonl"
    whole.write_bytes(text)
    replay = Watcher(whole, pack, follow=False)
    expected = replay.take(replay.feed.rows())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    kills = data.draw(st.sets(st.integers(0, len(cuts)), max_size=3))
    log.write_bytes(b"")
    watcher, told = Watcher(log, pack, follow=True), dict.fromkeys(())
    for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(text)], strict=True)):
        with log.open("ab") as stream:
            stream.write(text[start:end])
        told |= dict.fromkeys(watcher.take(watcher.feed.poll()))
        if number in kills:
            watcher.feed.source.close()
            watcher = Watcher(log, pack, follow=True)
    told |= dict.fromkeys([*watcher.take(watcher.feed.poll()), *watcher.take(watcher.feed.finish())])
    watcher.feed.source.close()
    assert list(told) == list(dict.fromkeys(expected))
