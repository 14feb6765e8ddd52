"""The load measurement works at a small size: `make load` does a thousand runs for two minutes."""

from __future__ import annotations

from pathlib import Path

import load
import pytest


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processor time is read from /proc, which is Linux's")
def test_every_row_is_seen_and_only_faults_are_told(tmp_path: Path) -> None:
    """Ten runs for four seconds: nothing is lost, the run with the fault is told, and the healthy ones are silent."""
    result = load.run(10, 4, tmp_path, scrape_seconds=0.5)
    assert result.ok, (result, (tmp_path / "service.log").read_text()[-2000:])
    assert result.rows_seen == 10 * 5 and len(result.told) == 1
    assert len(result.lag) == 10 * 4 and all(0 <= lag < 60 for lag in result.lag) and result.writer_cores > 0
    assert result.scrape and result.scrape_bytes > 10_000 and result.peak_mib > 10 and result.cores > 0
