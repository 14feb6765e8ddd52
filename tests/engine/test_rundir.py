"""A run's directory: rows survive the way to disk and back, a crash's half line costs one row at most."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path

import pytest

from rltriage.engine.feed import Feed
from rltriage.engine.rows import Row
from rltriage.engine.rundir import (
    RUN,
    RunDirectory,
    alert_line,
    read_run_json,
    row_line,
    safe_name,
    strict,
    write_atomically,
)
from rltriage.engine.sources import open_source
from rltriage.rules.errors import RltriageError, SourceError

ROWS = [Row(0, {"reward": 0.1, "check_mask": 1.0, "kl_ref": math.inf}, time=1.7e9), Row(1, {"reward": 0.2, "my/own": -0.0})]


def written(path: Path) -> RunDirectory:
    run = RunDirectory(path, "run-1", config={"kl_coef": 0.1, "beta": 9}, labels={"team": "a"}, version="0.1.0")
    for row in ROWS:
        run.write_rows(row_line(row))
    return run


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Steps, times, infinities and own metric names survive; id, labels and facts come from run.json."""
    written(tmp_path / "r").close()
    feed = Feed(open_source(str(tmp_path / "r")), "other", config={"kl_coef": 0.5}, labels={"team": "b", "x": "y"})
    found = list(feed.rows())
    assert [row for _, row in found] == ROWS
    run = found[0][0].run
    assert (run.id, run.labels, run.profile) == ("run-1", {"team": "b", "x": "y"}, "generic")
    assert (run.facts["kl_coef"].value, run.facts["kl_coef"].provenance) == (0.5, "declared")


def test_a_followed_directory_gives_each_row_once(tmp_path: Path) -> None:
    """Rows are visible to a follower as soon as they are written."""
    run = written(tmp_path / "r")
    feed = Feed(open_source(str(tmp_path / "r")), "r")
    assert [row.step for _, row in feed.poll()] == [0, 1]
    run.write_rows(row_line(Row(2, {"reward": 0.3})))
    assert [row.step for _, row in feed.poll()] == [2] and feed.poll() == []


def test_resume_appends_after_a_half_line(tmp_path: Path) -> None:
    """A half line left by a crash is ended before the next row, so that only the half line is lost."""
    written(tmp_path / "r").close()
    with open(tmp_path / "r" / "rows.jsonl", "a") as file:
        file.write('{"step": 2, "rew')
    with pytest.raises(RltriageError, match="already holds rows"):
        RunDirectory(tmp_path / "r", "run-1")
    run = RunDirectory(tmp_path / "r", "run-1", resume=True)
    run.write_rows(row_line(Row(3, {"reward": 0.3})))
    run.close()
    feed = Feed(open_source(str(tmp_path / "r")), "r")
    assert [row.step for _, row in feed.rows()] == [0, 1, 3] and feed.source.stats.bad == 1


def test_alerts_are_strict_json(tmp_path: Path) -> None:
    """The alert journal takes plain data only; what is not finite must be text by then."""
    run = written(tmp_path / "r")
    run.write_alerts(
        alert_line({"id": "x", "values": {"kl_ref": strict(math.nan), "a": strict(-math.inf), "b": strict(0.5)}})
    )
    with pytest.raises(ValueError, match="JSON compliant"):
        run.write_alerts(alert_line({"x": math.nan}))
    run.close()
    line = json.loads((tmp_path / "r" / "alerts.jsonl").read_text())
    assert line["values"] == {"kl_ref": "NaN", "a": "-Infinity", "b": 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "one JSON object"),
        ("{", "not readable"),
        ('{"format": 9}', "update"),
        ('{"config": 1}', "'config'"),
    ],
)
def test_a_broken_run_json_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    """What is wrong with run.json is said with its path."""
    (tmp_path / RUN).write_text(text)
    with pytest.raises(SourceError, match=message) as caught:
        read_run_json(tmp_path)
    assert RUN in str(caught.value)


def test_atomic_writing_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    """A failed write keeps the old content and leaves no temporary file."""
    target = tmp_path / "x.json"
    write_atomically(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(target, "\ud800")
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_run_ids_make_safe_folder_names() -> None:
    """No separators, no hidden or parent folders, never empty."""
    assert [safe_name(name) for name in ("a/b", "../x", "", "grün 1")] == ["a_b", "_x", "run", "grün_1"]


def test_a_metric_called_time_does_not_replace_the_rows_own() -> None:
    """Some loops log the seconds that a step took under that name."""
    assert json.loads(row_line(Row(3, {"time": 2.5, "step": 7.0, "reward": 0.5}, 1e9))) == {
        "step": 3,
        "time": 1e9,
        "reward": 0.5,
    }
    assert json.loads(row_line(Row(3, {"time": 2.5}))) == {"step": 3, "time": 2.5}


def test_writing_through_a_link_replaces_what_it_points_at(tmp_path: Path) -> None:
    """Links, one behind another and dangling ones, too, stay links; one that leads to itself is an error and stays."""
    (tmp_path / "real").mkdir()
    (tmp_path / "second").symlink_to("real/file")
    (tmp_path / "first").symlink_to("second")
    for text in ("made", "replaced"):
        write_atomically(tmp_path / "first", text)
        assert (tmp_path / "real" / "file").read_text() == text
    assert (tmp_path / "first").is_symlink() and (tmp_path / "second").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError):
        write_atomically(tmp_path / "loop", "x")
    assert (tmp_path / "loop").is_symlink()
    assert os.listdir(tmp_path / "real") == ["file"]


def test_a_pipe_or_device_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    """Who reads a pipe gets the text, and it still is a pipe; so is a link to one."""
    pipe, link, got = tmp_path / "pipe", tmp_path / "link", []
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
        reader.start()
        write_atomically(path, "hello")
        reader.join(10)
    assert got == ["hello", "hello"]
    assert pipe.is_fifo() and link.is_symlink()


def test_a_file_keeps_its_permissions_and_its_long_name(tmp_path: Path) -> None:
    """What others may not read stays so; a name as long as file systems take is none too long."""
    secret = tmp_path / ("x" * 255)
    write_atomically(secret, "old")
    secret.chmod(0o600)
    write_atomically(secret, "new")
    assert secret.read_text() == "new" and secret.stat().st_mode & 0o777 == 0o600
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, "x")
