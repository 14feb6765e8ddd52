"""The durable outbox: what must be said to whom, kept until it has been said, and remembered so that it is said once.

Memory is the truth of a running process; SQLite is its image on disk, written through in one transaction per change and
read at the next start. So a full disk or a locked file costs durability and nothing else: changes wait in memory, are
written as soon as the disk takes them, and nothing is ever raised into the caller (issue 7).
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rltriage.exporters.delivery.message import Message
from rltriage.rules.model import SEVERITIES

log = logging.getLogger("rltriage.delivery")

FILE = "outbox.sqlite"
LOCK_SECONDS = 0.25
"""How long a write may wait for another process that locked the file: short, because a caller waits with it."""
STEP_ASIDE = 8
"""A message that a receiver refused this often no longer holds up the others of its run; it is still retried."""
FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 300.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS outbox (
  seq INTEGER PRIMARY KEY, receiver TEXT NOT NULL, alert TEXT NOT NULL, state TEXT NOT NULL, body TEXT,
  created REAL NOT NULL, due REAL NOT NULL, refusals INTEGER NOT NULL, delivered REAL,
  UNIQUE (alert, state, receiver))
"""
_SAVE = "INSERT OR REPLACE INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(slots=True)
class Entry:
    """One message for one receiver. `delivered` is None while it waits; times are unix seconds.

    `state` is the message's, with the severity where the receiver tells alerts apart by it. `due` is when it may be sent.
    """

    seq: int
    receiver: str
    state: str
    message: Message
    created: float
    due: float
    refusals: int = 0
    delivered: float | None = None


class Outbox:
    """Keyed by (alert id, state, receiver): each key is accepted once, for as long as it is remembered.

    `folder` is created with mode 0700; None keeps everything in memory. Bounded: at most `max_waiting` undelivered
    messages a receiver (the oldest of the lowest severity goes first, counted in `dropped`) and `max_keys` remembered keys.
    Thread-safe. No method raises for the disk; `degraded` holds the reason while changes are only in memory.
    """

    def __init__(self, folder: Path | None, *, max_waiting: int = 10_000, max_keys: int = 200_000) -> None:
        self.degraded = ""
        self.dropped = 0
        self.disk_errors = 0
        self._path = folder / FILE if folder is not None else None
        self._max_waiting = max_waiting
        self._max_keys = max_keys
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._waiting: dict[str, dict[int, Entry]] = {}
        self._live: dict[str, dict[str, Entry]] = {}
        self._keys: dict[int, int] = {}  # digest of the key -> seq, oldest first
        self._dirty: dict[int, Entry] = {}
        self._gone: set[int] = set()
        self._seq = 0
        self._batches = 0
        self._loaded = False
        with self._lock:
            self._save()

    def put(
        self, receiver: str, message: Message, now: float, due: float | None = None, *, state: str | None = None
    ) -> bool:
        """Accept a message, on disk before this returns. False if this (alert, state, receiver) was accepted before."""
        state = state or message.state
        key = _key(message.alert, state, receiver)
        with self._lock:
            if key in self._keys:
                return False
            self._seq += 1
            entry = Entry(self._seq, receiver, state, message, now, now if due is None else due)
            self._keys[key] = entry.seq
            self._waiting.setdefault(receiver, {})[entry.seq] = entry
            self._dirty[entry.seq] = entry
            self._bound(receiver)
            self._save()
            return True

    def settle(self, receiver: str, message: Message, now: float, state: str) -> None:
        """Remember a transition as told without telling it, unless it was accepted before."""
        key = _key(message.alert, state, receiver)
        with self._lock:
            if key not in self._keys:
                self._seq += 1
                self._keys[key] = self._seq
                self._dirty[self._seq] = Entry(self._seq, receiver, state, message, now, now, delivered=now)
                self._save()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Changes made inside are written together at its end: one wait for the disk instead of one for each."""
        with self._lock:
            self._batches += 1
            try:
                yield
            finally:
                self._batches -= 1
                self._save()

    def knows(self, alert: str, state: str, receiver: str) -> bool:
        """Whether this transition was ever accepted for the receiver."""
        with self._lock:
            return _key(alert, state, receiver) in self._keys

    def due(self, receiver: str, now: float, window: float = math.inf) -> Iterator[Entry]:
        """What may be sent now, in the order of acceptance. A message waits for the earlier ones of its run.

        Nothing waits longer than it was meant to: a due time further off than the backoff of a refused message, or than
        the `window` (seconds) that collects the others, means that the clock was set back, here or over a restart.
        """
        with self._lock:
            entries = list(self._waiting.get(receiver, {}).values())
        blocked: set[str] = set()
        for entry in entries:
            message = entry.message
            if message.run in blocked or message.alert in blocked:
                continue
            longest = backoff(entry.refusals - 1) if entry.refusals else window
            if now < entry.due <= now + longest:
                blocked.add(message.alert if entry.refusals >= STEP_ASIDE else message.run)
            else:
                yield entry

    def waiting(self, receiver: str) -> list[Entry]:
        """Everything accepted and not delivered, oldest first."""
        with self._lock:
            return list(self._waiting.get(receiver, {}).values())

    def live(self, receiver: str) -> list[Entry]:
        """Delivered messages that the receiver must be reminded of: the newest of each series that was kept."""
        with self._lock:
            return list(self._live.get(receiver, {}).values())

    def delivered(self, entries: Iterable[Entry], now: float, *, keep: bool = False) -> None:
        """Record a delivery. With `keep` the newest message of each series stays, to be re-sent; else only its key does."""
        with self._lock:
            for entry in entries:
                if self._waiting.get(entry.receiver, {}).pop(entry.seq, None) is None:
                    continue
                entry.delivered = now
                self._dirty[entry.seq] = entry
                if keep:
                    self._keep(entry)
            self._save()

    def refused(self, entry: Entry, due: float) -> None:
        """Record that the receiver will not have this one message as it is; it is tried again at `due`."""
        with self._lock:
            entry.refusals += 1
            entry.due = due
            self._dirty[entry.seq] = entry
            self._save()

    def hasten(self, receiver: str, now: float) -> None:
        """Let what only waits for its window be due now: the service stops and may not come back."""
        with self._lock:
            for entry in self._waiting.get(receiver, {}).values():
                if not entry.refusals and entry.due > now:
                    entry.due = now
                    self._dirty[entry.seq] = entry
            self._save()

    def forget(self, entries: Iterable[Entry]) -> None:
        """Stop re-sending these; their keys stay known."""
        with self._lock:
            for entry in entries:
                live = self._live.get(entry.receiver, {})
                if live.get(entry.message.series) is entry:
                    del live[entry.message.series]
                    self._dirty[entry.seq] = entry
            self._save()

    def prune(self) -> int:
        """Forget the oldest keys beyond the bound and give their room back; how many were forgotten.

        By number, not by age: a source that is replayed after a restart yields old alerts again, and a key that time had
        removed would send them twice.
        """
        with self._lock:
            held = {seq for box in self._waiting.values() for seq in box}
            held |= {entry.seq for live in self._live.values() for entry in live.values()}
            surplus = len(self._keys) - self._max_keys
            old = [key for key, seq in self._keys.items() if seq not in held][: max(surplus, 0)]
            self._gone |= {self._keys.pop(key) for key in old}
            self._save()
            return len(old)

    def retry_disk(self) -> None:
        """Write what a full or locked disk has refused so far, if anything."""
        with self._lock:
            if self.degraded:
                self._save(retry=True)

    def close(self) -> None:
        """Write what can be written and let go of the file."""
        with self._lock:
            self._save(retry=True)
            if self._db is not None:
                self._db.close()
                self._db = None
            self._path = None

    def _keep(self, entry: Entry) -> None:
        live = self._live.setdefault(entry.receiver, {})
        older = live.get(entry.message.series)
        if older is not None and older.seq > entry.seq:
            return
        live[entry.message.series] = entry
        if older is not None:
            self._dirty[older.seq] = older

    def _bound(self, receiver: str) -> None:
        box = self._waiting[receiver]
        if len(box) <= self._max_waiting:
            return
        victim = min(box.values(), key=lambda entry: (SEVERITIES.index(entry.message.severity), entry.seq))
        del box[victim.seq]
        victim.delivered = victim.created
        self._dirty[victim.seq] = victim
        self.dropped += 1
        if self.dropped == 1:
            log.error("receiver %s: over %d messages wait, the oldest are dropped", receiver, self._max_waiting)

    def _save(self, retry: bool = False) -> None:
        """Bring the disk up to memory in one transaction; on failure say so once and keep the changes for later.

        After a failure only `retry` tries again: a caller must not wait for a locked file at every alert.
        """
        if self._path is None:
            self._dirty.clear()
            self._gone.clear()
        if self._path is None or self._batches or (self.degraded and not retry):
            return
        try:
            db = self._db or self._open(self._path)
            if self._dirty or self._gone:
                with db:
                    db.executemany(_SAVE, [self._record(entry) for entry in self._dirty.values()])
                    db.executemany("DELETE FROM outbox WHERE seq = ?", [(seq,) for seq in self._gone])
                self._dirty.clear()
                self._gone.clear()
        except (sqlite3.Error, OSError) as error:
            self.disk_errors += 1
            if not self.degraded:
                log.error("the outbox is in memory only, a crash now would lose alerts: %s: %s", self._path, error)
            self.degraded = str(error) or type(error).__name__
            self._shed()
        else:
            if self.degraded:
                log.warning("the outbox is on disk again: %s", self._path)
            self.degraded = ""

    def _shed(self) -> None:
        """While the disk is away, keep the changes that wait for it bounded: delivered messages only need their keys."""
        surplus = len(self._dirty) - 2 * self._max_waiting
        if surplus > 0:
            said = [seq for seq, entry in self._dirty.items() if entry.delivered is not None]
            for seq in said[:surplus]:
                del self._dirty[seq]

    def _record(self, entry: Entry) -> tuple[object, ...]:
        message = entry.message
        kept = self._live.get(entry.receiver, {}).get(message.series) is entry
        body = message.to_json() if entry.delivered is None or kept else None
        columns = (entry.seq, entry.receiver, message.alert, entry.state, body, entry.created, entry.due)
        return (*columns, entry.refusals, entry.delivered)

    def _open(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Alert text can quote anything that a run logs; the folder is nobody else's to read.
        os.chmod(path.parent, 0o700)
        db = sqlite3.connect(path, timeout=LOCK_SECONDS, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute(_SCHEMA)
            self._load(db)
        except sqlite3.Error as error:
            db.close()
            if isinstance(error, sqlite3.OperationalError):
                self._read_alone(path)
                raise
            aside = path.with_suffix(".damaged")
            os.replace(path, aside)
            log.error("%s is damaged (%s): moved to %s, starting empty", path, error, aside.name)
            return self._open(path)
        self._db = db
        return db

    def _read_alone(self, path: Path) -> None:
        """Read a file that cannot be opened for writing: a start on a full disk must not say everything again.

        Alone with it, SQLite needs no shared index beside the file, for which the disk has no room.
        """
        if self._loaded or not path.exists():
            return
        with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=LOCK_SECONDS)) as db:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._load(db)

    def _load(self, db: sqlite3.Connection) -> None:
        """Read, once, what the last process left, below whatever this one has accepted while it could not be read."""
        if self._loaded:
            return
        rows = db.execute("SELECT * FROM outbox ORDER BY seq").fetchall()
        stored = {_key(alert, state, receiver): int(seq) for seq, receiver, alert, state, *_ in rows}
        self._renumber(stored)
        self._keys = {**stored, **self._keys}
        for seq, receiver, _, state, body, created, due, refusals, delivered in rows:
            if body is None:
                continue
            try:
                message = Message.from_json(body)
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                log.error("the outbox holds a message that cannot be read (%s): skipped", error)
                continue
            entry = Entry(seq, receiver, state, message, created, due, refusals, delivered)
            if seq in self._dirty:
                continue  # delivered while the disk could not be read
            if delivered is None:
                self._waiting.setdefault(receiver, {})[seq] = entry
            else:
                self._keep(entry)
        self._waiting = {receiver: dict(sorted(box.items())) for receiver, box in self._waiting.items()}
        self._loaded = True

    def _renumber(self, stored: dict[int, int]) -> None:
        """Give what memory accepted numbers above the disk's, or the disk's own where it knows the message.

        Of the latter only what was delivered meanwhile is news to the disk; the rest is there already.
        """
        top = max(stored.values(), default=0)
        fresh = {key: seq for key, seq in self._keys.items() if key not in stored}
        moved = {seq: top + number for number, seq in enumerate(fresh.values(), start=1)}
        boxes = {name: [e for e in box.values() if e.seq in moved] for name, box in self._waiting.items()}
        entries = []
        for entry in self._dirty.values():
            fresh_seq = moved.get(entry.seq)
            if fresh_seq is None:
                entry.seq = stored[_key(entry.message.alert, entry.state, entry.receiver)]
            else:
                entry.seq = fresh_seq
            if fresh_seq is not None or entry.delivered is not None:
                entries.append(entry)
        self._dirty = {entry.seq: entry for entry in entries}
        self._waiting = {name: {entry.seq: entry for entry in box} for name, box in boxes.items()}
        self._keys = {key: moved[seq] for key, seq in fresh.items()}
        self._seq = top + len(fresh)


def backoff(failures: int) -> float:
    """Seconds until an attempt that follows `failures` earlier ones in a row: doubled each time, up to a bound."""
    return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures, 30), LONGEST_RETRY_SECONDS)


def _key(alert: str, state: str, receiver: str) -> int:
    """64 bits of the key: a Python integer is a fifth of the three strings' size."""
    text = "\0".join((alert, state, receiver)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
