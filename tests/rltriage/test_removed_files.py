"""Somebody removes or renames a run's folder while it goes on: it is said and counted, and later rows are kept."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

import rltriage
from rltriage import journal


def steps(path: Path) -> list[int]:
    """The steps in a run's file, in its order."""
    return [json.loads(line)["step"] for line in (path / "rows.jsonl").read_text().splitlines()]


def settle(run: rltriage.Watch) -> None:
    """Return once the run's thread has written everything: it works in order."""
    done = threading.Lock()
    done.acquire()
    assert run._journal is not None
    run._journal._queue.put(journal.Lines(b"", b"", done))
    assert done.acquire(timeout=30)


@pytest.fixture
def removable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> rltriage.Watch:
    """A run that has written 10 rows."""
    monkeypatch.setattr(journal, "SETTLE_SECONDS", 0.0)
    run = rltriage.watch("r", directory=tmp_path, quiet=True)
    log(run, range(10))
    settle(run)
    return run


def log(run: rltriage.Watch, numbers: range) -> None:
    """Rows without an alert."""
    for step in numbers:
        run.log(step, {"reward": 0.5, "entropy": 1.0})


def test_a_folder_that_is_removed_is_made_again_and_said(
    removable: rltriage.Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows go on in new files with a `run.json` of their own; those of before are gone, which is counted and said once."""
    created = json.loads((tmp_path / "r" / "run.json").read_text())["created"]
    shutil.rmtree(tmp_path / "r")
    log(removable, range(10, 50))
    removable.close()
    assert steps(tmp_path / "r") == list(range(10, 50))
    about = json.loads((tmp_path / "r" / "run.json").read_text())
    assert (about["created"], about["ended"]["state"]) == (created, "finished")
    assert removable.errors == 10
    assert caplog.text.count("the run's files were removed") == 1 and "Traceback" not in caplog.text


def test_rows_are_never_written_among_those_of_another_run(
    removable: rltriage.Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where another run has taken the name since, the rows to come are lost and counted, and so is the end."""
    shutil.rmtree(tmp_path / "r")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "rows.jsonl").write_text('{"step": 7}\n')
    log(removable, range(10, 50))
    removable.close()
    assert steps(tmp_path / "r") == [7] and [path.name for path in (tmp_path / "r").iterdir()] == ["rows.jsonl"]
    assert removable.errors == 40 + 1
    assert caplog.text.count("rows are lost") == 1 and "Traceback" not in caplog.text


def test_a_folder_that_is_removed_before_the_end_is_counted_and_not_made_again(
    removable: rltriage.Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever removes a run after its last row wants it gone; that its end is in no file is one sentence."""
    shutil.rmtree(tmp_path / "r")
    removable.close()
    assert removable.errors == 1 and not (tmp_path / "r").exists()
    assert caplog.text.count("the end of the run could not be written") == 1 and "Traceback" not in caplog.text


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux tells where an open file is by now")
def test_a_folder_that_is_renamed_is_written_on(removable: rltriage.Watch, tmp_path: Path) -> None:
    """Rows, alerts that come only then, and the end: all of them in the folder under its new name, and nowhere else."""
    (tmp_path / "r").rename(tmp_path / "moved")
    for step in range(10, 20):
        removable.log(step, {"reward": float("nan"), "entropy": 1.0})
    removable.close()
    assert [path.name for path in tmp_path.iterdir()] == ["moved"] and removable.errors == 0
    assert steps(tmp_path / "moved") == list(range(20))
    assert "firing" in (tmp_path / "moved" / "alerts.jsonl").read_text()
    assert json.loads((tmp_path / "moved" / "run.json").read_text())["ended"]["state"] == "finished"
