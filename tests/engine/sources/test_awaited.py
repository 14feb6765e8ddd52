"""Following a log from before it exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltriage.engine.sources import open_source
from rltriage.rules.errors import SourceError


def test_a_log_that_comes_later(tmp_path: Path) -> None:
    """Missing, empty and rowless files are waited for, and every row comes once it is there."""
    path = tmp_path / "train.jsonl"
    source = open_source(str(path), follow=True)
    assert source.kind == "awaited" and source.poll() == [] and source.stats.records == 0
    path.write_text("starting\n")
    assert source.poll() == [] and source.poll() == []
    path.write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.5}\n')
    assert [record.values["step"] for record in source.poll()] == [1, 2]
    assert source.kind == "jsonl" and source.poll() == []
    source.close()


def test_a_run_directory_that_comes_later(tmp_path: Path) -> None:
    """A directory is looked into again when something was written there."""
    source = open_source(str(tmp_path / "run"), follow=True)
    assert source.poll() == []
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"format": 1, "id": "r", "config": {"kl_coef": 0.5}}')
    assert source.poll() == []
    (tmp_path / "run" / "rows.jsonl").write_text('{"step": 1, "loss": 0.5}\n')
    assert len(source.poll()) == 1 and source.config["kl_coef"] == 0.5


def test_what_never_came_is_an_error_when_read_whole(tmp_path: Path) -> None:
    """Reading to the end says what is missing; a source that is there at once is no awaited one."""
    with pytest.raises(SourceError, match="no such file"):
        list(open_source(str(tmp_path / "x"), follow=True).records())
    (tmp_path / "y").write_text('{"step": 1, "loss": 0.5}\n')
    assert open_source(str(tmp_path / "y"), follow=True).kind == "jsonl"
