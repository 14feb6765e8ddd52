"""The run's directory, written from a thread of its own: a disk that hangs, or takes its time, holds nobody up.

A quiet row is handed over in a microsecond and is in the file milliseconds later; for a row with an alert the caller waits
until it is there, or PATIENCE seconds. Only where the system starts no more threads does the caller write itself, and
wait for the disk however long that takes. In the file means in the operating system's cache: a killed process loses
nothing of it, a machine without power may. Source: issue 5, DESIGN section 10.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import NamedTuple, TypeVar

from rltriage.engine.report import StepReport
from rltriage.engine.rows import Row, Run
from rltriage.engine.rundir import RunDirectory, alert_line, row_line
from rltriage.exporters.jsonlines import alert_json, incident_json
from rltriage.exporters.state import RunState
from rltriage.rules.model import Catalogue, RulePack
from rltriage.saying import Once, reason, warn

PATIENCE = 0.05
"""Seconds that a row with an alert waits for the disk; then it is written later."""
HANGS_SECONDS = 5.0
"""A write that takes longer is said."""
CLOSE_SECONDS = 5.0
"""How long the end of a run waits for the disk."""
SETTLE_SECONDS = 0.1
"""How long new files wait once the run's were removed: whoever removes a folder fails where it fills meanwhile."""
MOST_WAITING = 16 << 20
"""Bytes of lines that wait for a disk that hangs; rows beyond it are lost, and counted."""
T = TypeVar("T")


class Lines(NamedTuple):
    """What one report adds to the files. With alerts somebody waits for it: the lock is released once it is written."""

    rows: bytes
    alerts: bytes
    written: Lock | None


class _End(NamedTuple):
    state: RunState
    now: float


class Journal:
    """The run's directory as a sink: rows, alerts and incidents as they come.

    Never raises for what the disk does: `lost` counts rows, alerts and incidents that are in no file, and the first time is
    said. To be called by one thread at a time.
    """

    def __init__(self, directory: RunDirectory, catalogue: Catalogue) -> None:
        self.directory = directory
        self._catalogue = catalogue
        self._queue: queue.SimpleQueue[Lines | _End] = queue.SimpleQueue()
        self._said = Once()
        # Set by the caller alone:
        self._started = self._ended = False
        self._given = self._dropped = 0
        self._late: Lock | None = None
        # Set by who holds `_writing` alone, and that is who writes the files. The thread holds it until the end: where
        # Ctrl-C leaves open whether one was started another can be, and the two never write at once.
        self._writing = Lock()
        self._taken = self._failed = 0
        self._since: float | None = None
        self._over = False
        self._open = Lock()
        self._open.acquire()

    def use(self, pack: RulePack) -> None:
        """Take the titles of other faults and tests."""
        self._catalogue = pack.catalogue

    @property
    def lost(self) -> int:
        """Rows, alerts and incidents that could not be written."""
        return self._dropped + self._failed

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Append the row, then every transition but `pending`, then the incident if it changed."""
        lines = self._lines(row, report)
        size = len(lines.rows) + len(lines.alerts)
        if not size or self._ended:
            return
        waiting = self._given - self._taken
        if waiting and waiting + size > MOST_WAITING:
            self._dropped += _count(lines)
            self._say(run.id, "rows are lost: too many wait for the disk already")
            return
        self._given += size
        self._queue.put(lines)
        self._start()
        if lines.written is not None and (self._late is None or not self._late.locked()):
            self._late = None if lines.written.acquire(timeout=PATIENCE) else lines.written
        since = self._since
        if since is not None and time.monotonic() - since > HANGS_SECONDS:
            self._say(run.id, "the disk hangs: rows wait in memory until it goes on")

    def end(self, run_id: str, state: RunState, now: float) -> None:
        """Close the files, and say in `run.json` how the run ended; waits CLOSE_SECONDS at most.

        Without a thread (the module says when) it writes itself, and a disk that hangs is waited for.
        """
        if self._over:
            return
        self._ended = True
        self._queue.put(_End(state, now))  # once more where Ctrl-C interrupted the end: the first that is read holds
        self._start()
        if not self._open.acquire(timeout=CLOSE_SECONDS) and not self._over:
            self._say(run_id, "the end of the run could not be written yet: the disk hangs")

    def release(self) -> None:
        """In a forked child: let go of the parent's files, and of nothing else."""
        self._ended = True
        with suppress(OSError):
            self.directory.close()

    def _lines(self, row: Row | None, report: StepReport) -> Lines:
        alerts = [alert_json(alert, self._catalogue) for alert in report.alerts if alert.state != "pending"]
        if report.incident is not None:
            alerts.append(incident_json(report.incident, self._catalogue))
        written = Lock() if alerts else None
        if written is not None:
            written.acquire()
        return Lines(b"" if row is None else row_line(row), b"".join(map(alert_line, alerts)), written)

    def _start(self) -> None:
        if self._started:
            return
        try:
            Thread(target=self._work, name="rltriage-journal", daemon=True).start()
        except RuntimeError:  # no more threads, or the interpreter is ending: in the caller's own, then
            self._work_here()
        else:
            self._started = True

    def _work(self) -> None:
        with self._writing:
            while not self._over:
                self._pass()

    def _work_here(self) -> None:
        if self._writing.acquire(blocking=False):
            try:
                while not self._queue.empty():
                    self._pass(settle=0.0)
            finally:
                self._writing.release()

    def _pass(self, settle: float = SETTLE_SECONDS) -> None:
        """Write all that waits, in order, once there is something; `settle` seconds after files turn out to be removed."""
        batch = [self._queue.get()]
        with suppress(queue.Empty):
            while True:
                batch.append(self._queue.get_nowait())
        self._since = time.monotonic()
        lines = [each for each in batch if isinstance(each, Lines)]
        if lines and self._has_files(settle):
            self._write(self.directory.write_rows, [each.rows for each in lines])
            self._write(self.directory.write_alerts, [each.alerts for each in lines])
        else:
            self._failed += sum(map(_count, lines))
        for each in lines:
            self._taken += len(each.rows) + len(each.alerts)
            if each.written is not None:
                each.written.release()
        self._since = None
        ends = [each for each in batch if isinstance(each, _End)]
        for end in ends[:1]:
            try:
                self.directory.end(*end)
            except Exception as error:
                self._failed += 1
                self._say(self.directory.run_id, "the end of the run could not be written", error)
        if ends and not self._over:
            self._over = True
            self._open.release()

    def _has_files(self, settle: float) -> bool:
        """Whether there are files to write into: new ones, where somebody removed those of the run while it goes on."""
        removed = "the run's files were removed, with what they held: new ones are begun"
        try:
            if self.directory.removed():
                time.sleep(settle)
                self._failed += self.directory.renew()
                self._say(self.directory.run_id, removed)
            else:
                self._said.forget(removed)  # the next time is another loss
        except Exception as error:
            self._say(self.directory.run_id, "the run's files were removed: rows are lost", error)
            return False
        return True

    def _write(self, append: Callable[[bytes], int], lines: list[bytes]) -> None:
        count = sum(each.count(b"\n") for each in lines)
        if not count:
            return
        try:
            count -= append(b"".join(lines))
        except Exception as error:
            self._say(self.directory.run_id, "rows or alerts could not be written", error)
        else:
            if count:
                self._say(self.directory.run_id, "rows or alerts are lost: the disk took only a part of them")
        self._failed += count

    def _say(self, run_id: str, what: str, error: Exception | None = None) -> None:
        if self._said.first(what):
            why = reason(error)
            warn("run=%s: %s%s (%s, said once)", run_id, what, why, self.directory.path, exc_info=bool(error and not why))


def _count(lines: Lines) -> int:
    return lines.rows.count(b"\n") + lines.alerts.count(b"\n")


def in_time(job: Callable[[], T], seconds: float) -> T:
    """What a call gives that may hang, as a disk's may. TimeoutError after `seconds`; the call then goes on by itself.

    Where the system starts no more threads it is simply called.
    """
    result: Future[T] = Future()

    def work() -> None:
        try:
            result.set_result(job())
        except BaseException as error:
            result.set_exception(error)

    try:
        Thread(target=work, name="rltriage-disk", daemon=True).start()
    except RuntimeError:  # no more threads
        return job()
    try:
        return result.result(seconds)
    except TimeoutError:
        if result.done():
            raise
        raise TimeoutError(f"the disk has not answered within {seconds} seconds") from None
