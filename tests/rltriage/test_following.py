"""Many logs at once: how soon a row is seen."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rltriage.following import Fleet, RunNames
from rltriage.rules.config import SourceConfig
from rltriage.rules.loader import load_rules


def test_a_log_that_was_quiet_for_hours_is_looked_at_in_every_round(tmp_path: Path) -> None:
    """A row is seen within a round of half a second, however long the run was silent: one look at a file costs little."""
    path = tmp_path / "run.jsonl"
    source = SourceConfig("path", str(path))
    fleet = Fleet(
        [source],
        load_rules("triage"),
        (),
        names=RunNames(None),
        retention=1e6,
        owners={},
        open_alerts=lambda run, alerts, known: None,
    )

    def write(step: int) -> None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "reward": 0.5, "loss": 0.5}) + "\n")

    write(0)
    fleet.discover(0.0, os.path.getmtime(path))
    assert fleet.poll(0.0) and fleet.rows == 1
    assert fleet.poll(7200.0) and fleet.rows == 1
    write(1)
    assert fleet.poll(7200.5) and fleet.rows == 2
    fleet.close()
