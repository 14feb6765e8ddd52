"""A feed: what is new in a log, each row with what was known of its run by then."""

from __future__ import annotations

import json
from pathlib import Path

from rltriage.engine.feed import Feed
from rltriage.engine.sources import open_source


def test_each_row_comes_with_the_facts_known_by_then(tmp_path: Path) -> None:
    """Rows that were read together are judged as if they had come one by one: live is replay."""
    file = tmp_path / "r.jsonl"
    rows = [{"step": step, "reward": step / 10, "kl_coef": 0.0 if step < 2 else 0.04} for step in range(4)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    feed = Feed(open_source(str(file), follow=True), "r")
    assert [intake.run.facts["kl_coef"].value for intake, _ in feed.news()] == [0.0, 0.0, 0.04, 0.04]
    assert feed.poll() == []
