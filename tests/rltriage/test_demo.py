"""The tour that `make demo` gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner


def test_the_tour_names_the_fault_runs_its_test_and_shows_gauges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 1 at the first row, check 1 fails, a gauge and the alert's state are shown, and the healthy run is silent."""
    pytest.importorskip("torch")
    from rltriage.cli import demo

    monkeypatch.setattr(demo, "STEPS", 1)
    monkeypatch.setattr(demo, "HEALTHY_STEPS", 1)
    result = CliRunner().invoke(demo.command, ["--runs", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    faulty, healthy = result.output.split("Now without the fault")
    assert "mask_shift (fault 1)" in " ".join(faulty.split()) and re.search(r"mask = policy tokens +\d+ +FAIL", faulty)
    assert "rltriage_reward_mean{" in faulty and 'first_test="mask_equals_policy_tokens"' in faulty
    assert "CRITICAL" not in healthy and "alerts   none" in healthy
