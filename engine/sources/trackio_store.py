"""Trackio's local store: one SQLite file a project, each record a JSON object.

Read with the standard library, read-only: its own client would load a web framework and look for the file by name.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats, to_step
from rltriage.rules.errors import SourceError

SQLITE = b"SQLite format 3\x00"


def tables_of(path: str) -> frozenset[str]:
    """The tables of an SQLite file; SourceError if it cannot be read."""
    try:
        with closing(_connect(path)) as connection:
            return frozenset(name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
    except sqlite3.Error as error:
        raise SourceError(f"{path}: not readable as SQLite: {error}") from None


class TrackioStore:
    """Every run of a project; a run's configuration comes first, as a record of its own."""

    kind = "trackio"
    profile: str | None = None

    def __init__(self, path: str) -> None:
        self.name = path
        self.stats = SourceStats()
        self.config: Mapping[str, Any] = {}
        self._last = 0
        self._damage = ""
        self._configured: set[Any] = set()
        self._names: dict[Any, str] = {}

    def records(self) -> Iterator[Record]:
        """Everything that is stored now; SourceError if the file cannot be read."""
        try:
            yield from self._all()
        except sqlite3.Error as error:
            raise SourceError(f"{self.name}: not readable as a Trackio store: {error}") from None

    def poll(self) -> list[Record]:
        found: list[Record] = []
        try:
            for record in self._all():
                found.append(record)  # not list(): what was given before an error is not given again
        except sqlite3.OperationalError:
            pass  # busy or gone: the next poll asks again
        except sqlite3.Error as error:
            if str(error) != self._damage:
                self._damage = str(error)
                self.stats.refuse(0, f"not readable as a Trackio store: {error}")
        return found

    def close(self) -> None:
        return None

    def _all(self) -> Iterator[Record]:
        with closing(_connect(self.name)) as connection:
            yield from self._configs(connection)
            yield from self._rows(connection)

    def _configs(self, connection: sqlite3.Connection) -> Iterator[Record]:
        for run_id, name, config in connection.execute("SELECT run_id, run_name, config FROM configs ORDER BY id"):
            if run_id not in self._configured:
                self._configured.add(run_id)
                values = _object(config)
                if values:
                    yield Record({"config": values}, run=self._run(run_id, name))

    def _rows(self, connection: sqlite3.Connection) -> Iterator[Record]:
        query = "SELECT id, run_id, run_name, timestamp, step, metrics FROM metrics WHERE id > ? ORDER BY id"
        for row, run_id, name, timestamp, step, metrics in connection.execute(query, (self._last,)):
            self._last = row
            values = _object(metrics)
            if values:
                self.stats.records += 1
                yield Record(values, step=to_step(step), time=_unix(timestamp), run=self._run(run_id, name))
            else:
                self.stats.refuse(row, "a record that is no JSON object")

    def _run(self, run_id: Any, name: Any) -> str:
        """The run's name, with the start of its id where another run has the same name."""
        if run_id not in self._names:
            taken = str(name) in self._names.values()
            self._names[run_id] = f"{name}-{str(run_id)[:8]}" if taken else str(name)
        return self._names[run_id]


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)


def _object(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _unix(timestamp: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp()
    except ValueError:
        return None
