"""A run that goes on after a checkpoint: its rules see the rows of before as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rltriage
from rltriage import watched
from rltriage.engine.monitor import Monitor
from rltriage.engine.rows import Row
from rltriage.recalling import recall

MINE = """
profile: mine
title: mine
metrics:
  reward: {from: points, scale: 0.01}
  entropy: {from: entropy, negate: true}
"""


def steps(path: Path) -> list[int]:
    """The steps in a run's file, in its order."""
    return [json.loads(line)["step"] for line in (path / "rows.jsonl").read_text().splitlines()]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Every row that rules see."""
    found: list[Row] = []
    observe = Monitor.observe

    def noting(self: Monitor, row: Row) -> Any:
        found.append(row)
        return observe(self, row)

    monkeypatch.setattr(Monitor, "observe", noting)
    return found


def test_a_run_with_a_profile_of_the_users_own_goes_on(
    tmp_path: Path, seen: list[Row], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is written on, and rows that the profile scaled and negated are not scaled and negated again."""
    (tmp_path / "mine.yaml").write_text(MINE)
    (tmp_path / "elsewhere").mkdir()
    for first, config in ((0, {}), (3, {"resumed_at": 2})):
        monkeypatch.chdir(tmp_path)
        run = rltriage.watch("r", directory=tmp_path / "runs", profile="mine.yaml", config=config, quiet=True)
        monkeypatch.chdir(tmp_path / "elsewhere")
        with run:
            for step in range(first, first + 3):
                run.log(step, {"points": 50.0 + step, "entropy": -1.0, "own": 2.0}, time=1e9 + step)
        assert run.errors == 0 and run.path is not None and not caplog.records
    assert steps(tmp_path / "runs" / "r") == list(range(6))
    assert seen[3:6] == seen[:3] and [row.step for row in seen] == [0, 1, 2, 0, 1, 2, 3, 4, 5]
    assert seen[0] == Row(0, {"reward": 0.5, "entropy": 1.0, "own": 2.0}, 1e9)


def test_rows_that_cannot_be_read_cost_the_rules_their_history_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said in its own words, and the rows to come are written behind those of before."""

    def fail(file: Path) -> list[Row]:
        raise OSError(5, "Input/output error")

    with rltriage.watch("r", directory=tmp_path, quiet=True) as run:
        run.log(0, {"reward": 0.5, "entropy": 1.0})
    monkeypatch.setattr(watched, "recall", fail)
    with rltriage.watch("r", directory=tmp_path, quiet=True, config={"resumed_at": 0}) as again:
        again.log(1, {"reward": 0.5, "entropy": 1.0})
    assert steps(tmp_path / "r") == [0, 1] and again.path == tmp_path / "r" and again.errors == 1
    assert "the rows of before could not be read" in caplog.text and "Input/output error" in caplog.text
    assert "not written to disk" not in caplog.text


def test_lines_that_are_no_rows_are_left_out(tmp_path: Path) -> None:
    """Half lines, other values, no step, nothing that is a number; NaN and infinities are rows like others."""
    assert recall(tmp_path / "rows.jsonl") == []
    (tmp_path / "rows.jsonl").write_bytes(
        b'{"step": 1, "rew\n[1]\n{"reward": 1.0}\n{"step": 2, "note": "x"}\n\xff\n'
        b'{"step": 3, "time": null, "loss": -Infinity}\n'
        b'{"step": 4, "reward": 0.5, "note": ["x"]}\n' + b"[" * 100_000 + b"\n"
    )
    assert recall(tmp_path / "rows.jsonl") == [Row(3, {"loss": float("-inf")}), Row(4, {"reward": 0.5})]
