"""A disk that hangs, fails or takes its time: the training loop goes on, order is kept, and what is lost is counted."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rltriage
from rltriage import journal, watched
from rltriage.engine.report import EMPTY, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.engine.rundir import RunDirectory
from rltriage.exporters.gauges import Gauges
from rltriage.journal import Journal
from rltriage.rules.loader import load_rules
from rltriage.watching import WatchedRun

KL_ON = {"kl_coef": 0.05, "updates_per_batch": 2}
RUN = Run("r")


def same_reference(step: int) -> dict[str, float]:
    """A row of a run whose reference is its policy: a critical alert in a few rows."""
    return {"kl_ref": 0.0, "grad_norm": 0.5 + step / 100, "lr": 1e-6, "reward": step / 10, "clip_frac": 0.01}


def steps(path: Path) -> list[int]:
    """The steps in a run's file, in its order."""
    return [json.loads(line)["step"] for line in (path / "rows.jsonl").read_text().splitlines()]


class Disk:
    """A file system whose writes can be held up: what is written waits until it `answers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers, self.asked = threading.Event(), threading.Event()
        self.answers.set()
        for name in ("write_rows", "write_alerts", "end"):
            monkeypatch.setattr(RunDirectory, name, self._slow(getattr(RunDirectory, name)))

    def _slow(self, real: Any) -> Any:
        def slow(*arguments: Any) -> Any:
            self.asked.set()
            self.answers.wait(60)
            return real(*arguments)

        return slow

    def hang(self) -> None:
        """From now on nothing is written."""
        self.answers.clear()
        self.asked.clear()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A disk that answers, until it is told to hang."""
    found = Disk(monkeypatch)
    yield found
    found.answers.set()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Journal]:
    """A journal in a folder of the test."""
    found = Journal(RunDirectory(tmp_path / "r", "r"), load_rules("triage").catalogue)
    yield found
    found.end("r", "finished", 0.0)


def test_rows_pass_a_disk_that_hangs_and_are_written_when_it_goes_on(disk: Disk, files: Journal, tmp_path: Path) -> None:
    """No row waits for the disk; afterwards all of them are there, in order, and none is lost."""
    files.publish(RUN, Row(0, {"reward": 0.5}), EMPTY)
    disk.hang()
    for step in range(1, 500):
        files.publish(RUN, Row(step, {"reward": 0.5}), EMPTY)
    assert disk.asked.wait(10) and len(steps(tmp_path / "r")) <= 1
    disk.answers.set()
    files.end("r", "finished", 7.0)
    assert steps(tmp_path / "r") == list(range(500)) and files.lost == 0
    assert json.loads((tmp_path / "r" / "run.json").read_text())["ended"]["state"] == "finished"


def test_an_alert_waits_for_a_hanging_disk_once(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first alert waits its moment, later ones do not; people hear of every alert, and that the disk hangs."""
    waits: list[float] = []
    real = threading.Lock

    class Counted:
        def __init__(self) -> None:
            self.lock = real()

        def acquire(self, timeout: float = -1) -> bool:
            waits.extend([timeout] if timeout >= 0 else [])
            return self.lock.acquire(timeout=timeout)

        def release(self) -> None:
            self.lock.release()

        def locked(self) -> bool:
            return self.lock.locked()

        def __enter__(self) -> None:
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    monkeypatch.setattr(journal, "Lock", Counted)
    monkeypatch.setattr(journal, "HANGS_SECONDS", 0.0)
    told: list[str] = []
    run = rltriage.watch("r", directory=tmp_path, config=KL_ON, quiet=True, on_alert=lambda alert: told.append(alert.state))
    disk.hang()
    with caplog.at_level(logging.WARNING):
        for step in range(1, 8):
            run.log(step, same_reference(step))
        for step in range(8, 40):
            run.log(step, {**same_reference(step), "kl_ref": 0.1 + step, "entropy": -float(step % 2)})
    assert waits == [journal.PATIENCE] and told.count("firing") >= 2
    assert caplog.text.count("the disk hangs") == 1
    disk.answers.set()
    run.close()
    assert steps(tmp_path / "r") == list(range(1, 40)) and run.errors == 0


def test_what_waits_is_bounded_and_what_is_lost_is_counted(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beyond the bound rows are lost, which is said once and shown to Prometheus; alerts go on; no line is broken."""
    pack = load_rules("triage")
    monkeypatch.setattr(journal, "MOST_WAITING", 2000)
    files = Journal(RunDirectory(tmp_path / "r", "r"), pack.catalogue)
    gauges = Gauges(pack.catalogue.metrics)
    watched = WatchedRun(RUN, pack, (gauges, files))
    disk.hang()
    with caplog.at_level(logging.WARNING):
        reports = [watched.emit(Row(step, {"reward": float("nan") if step > 150 else 0.5})) for step in range(200)]
    assert files.lost > 100 and watched.failures == files.lost
    assert caplog.text.count("rows are lost") == 1
    assert any(report.alerts for report in reports)
    (shown,) = [v for s, v in gauges.samples_of("r") if s.family.sample_name == "rltriage_journal_lost_total"]
    assert 100 < shown <= files.lost
    disk.answers.set()
    watched.end("finished", 0.0)
    written = steps(tmp_path / "r")
    assert written == list(range(len(written))) and 0 < len(written) < 100


def test_the_end_waits_for_the_disk_no_longer_than_said(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`close` returns though nothing can be written, says so, and what waited is written once the disk goes on."""
    monkeypatch.setattr(journal, "CLOSE_SECONDS", 0.01)
    run = rltriage.watch("r", directory=tmp_path, quiet=True)
    disk.hang()
    for step in range(20):
        run.log(step, {"reward": 0.5, "entropy": 1.0})
    run.close()
    assert "the end of the run could not be written yet" in caplog.text
    assert run.log(99, {"reward": 0.5}) == EMPTY
    assert run._journal is not None
    disk.answers.set()
    assert run._journal._open.acquire(timeout=30)
    assert steps(tmp_path / "r") == list(range(20))
    assert json.loads((tmp_path / "r" / "run.json").read_text())["ended"]["state"] == "finished"


def test_a_disk_that_hangs_from_the_start_leaves_the_run_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder cannot be made in time: the rules work, nothing is written later by surprise, and it is said."""
    goes_on = threading.Event()
    monkeypatch.setattr(watched, "OPEN_SECONDS", 0.01)
    monkeypatch.setattr(watched, "claim", lambda parent, name: goes_on.wait(60) and name)
    alerts: list[Any] = []
    run = rltriage.watch("r", directory=tmp_path, config=KL_ON, quiet=True, on_alert=alerts.append)
    for step in range(1, 8):
        assert run.log(step, same_reference(step)).step == step
    goes_on.set()
    run.close()
    assert alerts and run.errors == 1 and run.path is None and list(tmp_path.iterdir()) == []
    assert "not written to disk" in caplog.text and "has not answered within 0.01 seconds" in caplog.text


def test_a_disk_that_fails_is_said_once_and_every_row_counted(
    files: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of the system (a quota, a file server that is gone) costs rows of the journal and nothing else."""

    def fail(lines: bytes) -> int:
        raise OSError(122, "Disk quota exceeded")

    monkeypatch.setattr(files.directory, "write_rows", fail)
    for step in range(50):
        files.publish(RUN, Row(step, {"reward": 0.5}), EMPTY)
    files.end("r", "finished", 0.0)
    assert files.lost == 50 and caplog.text.count("could not be written") == 1 and "Disk quota exceeded" in caplog.text


def test_without_a_thread_rows_are_written_by_the_caller(
    files: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that starts no more threads, or an interpreter that is ending: rows and the end are written all the same."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for step in range(5):
        files.publish(RUN, Row(step, {"reward": 0.5}), EMPTY)
    assert steps(tmp_path / "r") == list(range(5))
    files.end("r", "crashed", 7.0)
    assert json.loads((tmp_path / "r" / "run.json").read_text())["ended"]["state"] == "crashed"


def test_no_thread_at_all_leaves_a_run_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch` with an endpoint, rows, rules looked at again, the end: all of it works where threads cannot be started."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    run = rltriage.watch("r", directory=tmp_path, listen=0, quiet=True)
    run._next_look = time.monotonic()
    for step in range(5):
        assert run.log(step, {"reward": 0.5, "entropy": 1.0}).step == step
    run.close()
    assert steps(tmp_path / "r") == list(range(5)) and run.url is None and run.errors == 1


KILLED = """
import os, signal, sys
import rltriage
from rltriage import journal
journal.PATIENCE = 60.0  # however busy this machine is
def row(step):
    return {"kl_ref": 0.0, "grad_norm": 0.5 + step / 100, "lr": 1e-6, "reward": step / 10, "clip_frac": 0.01}
run = rltriage.watch("r", directory=sys.argv[1], config={"kl_coef": 0.05, "updates_per_batch": 2}, quiet=True)
step = 0
while not run.log(step, row(step)).alerts:
    step += 1
print(step)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_an_alert_was_logged_with_survives_a_kill(tmp_path: Path) -> None:
    """When `log` returns an alert, it, its row and all rows before are in the file: kill -9 takes nothing away."""
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == -9, ran.stderr
    assert steps(tmp_path / "r") == list(range(int(ran.stdout) + 1))
    assert (tmp_path / "r" / "alerts.jsonl").read_text().endswith("}\n")


def test_a_batch_that_is_written_in_part_is_said_once_and_counted(
    files: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that is nearly full takes some of the rows, and raises nothing: what it did not take is no secret."""
    monkeypatch.setattr(files.directory, "write_rows", lambda lines: lines.count(b"\n") - 1)
    for step in range(20):
        files.publish(RUN, Row(step, {"reward": 0.5}), EMPTY)
        files.publish(RUN, Row(step, {"reward": 0.5}), EMPTY)
    files.end("r", "finished", 0.0)
    assert 0 < files.lost <= 40 and caplog.text.count("the disk took only a part of them") == 1


@pytest.mark.parametrize("began", [False, True])
def test_ctrl_c_while_the_thread_starts_costs_no_row_and_makes_no_second_writer(
    files: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, began: bool
) -> None:
    """Whether a thread was begun by then or not, later rows are written while the run goes on, by one thread at a time."""
    start, write = threading.Thread.start, files.directory.write_rows
    left, writing, most = [True], [0], [0]

    def interrupted(self: threading.Thread) -> None:
        first = left.pop() if left else False
        if began or not first:
            start(self)
        if first:
            raise KeyboardInterrupt

    def watched_write(lines: bytes) -> int:
        writing[0] += 1
        most[0] = max(most[0], writing[0])
        count = write(lines)
        writing[0] -= 1
        if lines.endswith(b'"last": 1.0}\n'):
            written.set()
        return count

    written = threading.Event()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(files.directory, "write_rows", watched_write)
    with pytest.raises(KeyboardInterrupt):
        files.publish(RUN, Row(0, {"reward": 0.5}), EMPTY)
    for step in range(1, 300):
        files.publish(RUN, Row(step, {"reward": 0.5}), EMPTY)
    files.publish(RUN, Row(300, {"last": 1.0}), EMPTY)
    assert written.wait(30), "rows wait in memory until the end"
    files.end("r", "finished", 0.0)
    assert steps(tmp_path / "r") == list(range(301)) and most == [1]
    assert json.loads((tmp_path / "r" / "run.json").read_text())["ended"]["state"] == "finished"


def test_a_signal_while_the_caller_writes_leaves_a_writer(
    files: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread at first: the caller writes. A row of a signal's handler comes in the middle of it, and starts a thread."""
    start, write, asked = threading.Thread.start, files.directory.write_rows, []

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def interrupted(lines: bytes) -> int:
        if not asked:
            asked.append(lines)
            monkeypatch.setattr(threading.Thread, "start", start)
            files.publish(RUN, Row(1, {"reward": 0.5}), EMPTY)
        return write(lines)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(files.directory, "write_rows", interrupted)
    files.publish(RUN, Row(0, {"reward": 0.5}), EMPTY)
    for step in range(2, 10):
        files.publish(RUN, Row(step, {"reward": 0.5}), EMPTY)
    files.end("r", "finished", 0.0)
    assert steps(tmp_path / "r") == list(range(10))


def test_an_end_without_threads_may_be_interrupted_and_done_again(
    files: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the write of the end, where the caller writes itself: the second end writes it, and does not wait."""
    real, left = files.directory.end, [True]

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def interrupted(state: str, now: float) -> None:
        if left:
            left.clear()
            raise KeyboardInterrupt
        real(state, now)

    monkeypatch.setattr(journal, "CLOSE_SECONDS", 0.0)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(files.directory, "end", interrupted)
    files.publish(RUN, Row(0, {"reward": 0.5}), EMPTY)
    with pytest.raises(KeyboardInterrupt):
        files.end("r", "finished", 7.0)
    files.end("r", "crashed", 8.0)
    assert json.loads((tmp_path / "r" / "run.json").read_text())["ended"] == {"state": "crashed", "time": 8.0}
    files.end("r", "crashed", 9.0)
    assert json.loads((tmp_path / "r" / "run.json").read_text())["ended"]["time"] == 8.0


BLOCKED = """
import os, sys
import rltriage
run = rltriage.watch("r", directory=sys.argv[1], quiet=True)
for step in range(6):
    run.log(step, {"reward": 0.5, "entropy": 1.0})
out, into = os.pipe()  # nobody reads: a real write that blocks once the pipe is full
run._journal.directory._rows._file = os.fdopen(into, "wb", buffering=0)
for step in range(6, 3000):
    assert run.log(step, {"reward": 0.5, "entropy": 1.0, "x" * 50: 1.0}).step == step
print("trained")
"""


def test_a_process_ends_though_a_write_is_blocked_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system call that never returns holds up neither the rows nor the end of the script."""
    code = BLOCKED.replace(
        "import rltriage\n", "import rltriage\nfrom rltriage import journal\njournal.CLOSE_SECONDS = 0.1\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "trained\n"), ran.stderr
    assert "could not be written yet" in ran.stderr


def test_one_report_is_one_piece(files: Journal, tmp_path: Path) -> None:
    """A row that cannot be encoded costs itself alone, and is an error of the sink."""
    files.publish(RUN, Row(0, {"reward": 0.5}), EMPTY)
    with pytest.raises(TypeError):
        files.publish(RUN, Row(1, {"reward": object()}), EMPTY)  # type: ignore[dict-item]
    files.publish(RUN, None, StepReport(1))
    files.publish(RUN, Row(2, {"reward": 0.5}), EMPTY)
    files.end("r", "finished", 0.0)
    assert steps(tmp_path / "r") == [0, 2]
