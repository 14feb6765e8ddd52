"""Silences: which alerts nobody is to be told of for now. The command line writes them, the service reads them.

One JSON file in the state folder, replaced as a whole under a lock of the folder. Time comes in as an argument.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rltriage.engine.rundir import write_atomically
from rltriage.rules.errors import DeliveryError

log = logging.getLogger("rltriage.delivery")

FILE = "silences.json"
MAX_BYTES = 4_000_000
"""A larger file is not ours; reading it would hold up deliveries."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Alerts of the runs and rules that these globs fit. Times are unix seconds.

    Without `until` it is an acknowledgement: it lasts until the alerts that it covers have ended.
    """

    run: str
    rule: str
    created: float
    until: float | None = None
    why: str = ""

    def covers(self, run: str, rule: str) -> bool:
        """Whether it speaks of this run's alert of this rule."""
        return fnmatchcase(run, self.run) and fnmatchcase(rule, self.rule)

    def lasts(self, now: float) -> bool:
        """Whether it has not expired."""
        return self.until is None or now < self.until


class Silences:
    """The silences of a state folder; None for a place without any.

    `active`, `over` and `save` are the service's and never raise: what cannot be read or written is logged, and the last
    good state counts. `add` and `end` are the command line's and raise DeliveryError.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE if folder is not None else None
        self._known: tuple[Silence, ...] = ()
        self._version: tuple[int, ...] = ()
        self._over: set[Silence] = set()
        self._lock = threading.Lock()

    def active(self, now: float) -> tuple[Silence, ...]:
        """Those that hold at `now`, in the order in which they were made."""
        with self._lock:
            self._refresh()
            return tuple(each for each in self._known if each.lasts(now) and each not in self._over)

    def over(self, silence: Silence) -> None:
        """An acknowledgement has done its work; `save` takes it out of the file."""
        with self._lock:
            self._over.add(silence)

    def save(self, now: float) -> None:
        """Take out of the file what is over. A command that holds the file just now is not waited for."""
        with self._lock:
            if not self._over or self._path is None:
                return
            # Also a full disk only means another attempt: in memory it is over already.
            with suppress(OSError, DeliveryError), _locked(self._path.parent, wait=False):
                self._write([each for each in _read(self._path) if each not in self._over], now)
                self._over.clear()

    def add(self, silence: Silence, now: float) -> None:
        """Write a silence; it takes the place of an earlier one of the same globs."""
        with self._edited() as known:
            self._write([*(each for each in known if (each.run, each.rule) != (silence.run, silence.rule)), silence], now)

    def end(self, run: str, rule: str, now: float) -> bool:
        """End the silence of exactly these globs; False if there is none."""
        with self._edited() as known:
            rest = [each for each in known if (each.run, each.rule) != (run, rule)]
            self._write(rest, now)
            return any(each.lasts(now) for each in known if each not in rest)

    @contextmanager
    def _edited(self) -> Iterator[list[Silence]]:
        """What the file holds, while nobody else may change it."""
        assert self._path is not None
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock, _locked(self._path.parent, wait=True):
                yield _read(self._path)
        except OSError as error:
            raise DeliveryError(f"{self._path} cannot be changed: {error.strerror}; run as the service's user") from error

    def _write(self, silences: list[Silence], now: float) -> None:
        assert self._path is not None
        kept = [asdict(each) for each in silences if each.lasts(now)]
        write_atomically(self._path, json.dumps({"version": 1, "silences": kept}, indent=1) + "\n")

    def _refresh(self) -> None:
        """Read the file if it is another one than last time."""
        if self._path is None:
            return
        try:
            stat = os.stat(self._path)
            version: tuple[int, ...] = stat.st_mtime_ns, stat.st_ino, stat.st_size
        except OSError:
            version = ()
        if version == self._version:
            return
        self._version = version
        try:
            self._known = tuple(_read(self._path)) if version else ()
        except (OSError, DeliveryError) as error:
            log.error("the silences stay as they were: %s", error)


def _read(path: Path) -> list[Silence]:
    """The silences in a file; none where it is missing. Raises DeliveryError for a file that is not ours."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ValueError(f"over {MAX_BYTES} bytes")
        found = [Silence(**item) for item in json.loads(text)["silences"]]
        if not all(_typed(each) for each in found):
            raise ValueError("a field of the wrong type")
        return found
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DeliveryError(f"{path} is not a file of silences ({error}): delete it and make them anew") from error


def _typed(silence: Silence) -> bool:
    texts = all(isinstance(text, str) for text in (silence.run, silence.rule, silence.why))
    until = silence.created if silence.until is None else silence.until
    return texts and isinstance(silence.created, int | float) and isinstance(until, int | float)


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[None]:
    """Hold the folder's lock. On the folder itself: a lock file made by root would shut the service out."""
    try:
        import fcntl
    except ImportError:  # no locks on this system; the file is still replaced as a whole
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
