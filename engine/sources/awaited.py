"""A log that is followed before it exists or before its first row: nothing until then, afterwards the source itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import Source, SourceStats
from rltriage.rules.errors import SourceError


class Awaited:
    """Asks what the log is whenever its size has changed; `reason` is why it is none yet."""

    def __init__(self, path: str, open: Callable[[str], Source]) -> None:
        self.name = path
        self._open = open
        self._source: Source | None = None
        self._size = -1
        self._stats = SourceStats()
        self.reason = ""

    @property
    def kind(self) -> str:
        return "awaited" if self._source is None else self._source.kind

    @property
    def stats(self) -> SourceStats:
        return self._stats if self._source is None else self._source.stats

    @property
    def config(self) -> Mapping[str, Any]:
        return {} if self._source is None else self._source.config

    @property
    def profile(self) -> str | None:
        return None if self._source is None else self._source.profile

    def records(self) -> Iterator[Record]:
        """Everything there is now; SourceError if it is still no log."""
        self._source = self._source or self._open(self.name)
        return self._source.records()

    def poll(self) -> list[Record]:
        if self._source is None:
            size = _size(self.name)
            if size == self._size:
                return []
            self._size = size
            try:
                self._source = self._open(self.name)
            except SourceError as error:
                self.reason = str(error)
                return []
        return self._source.poll()

    def close(self) -> None:
        if self._source is not None:
            self._source.close()


def _size(path: str) -> int:
    """The size of a file, or of the files right inside a directory; 0 if there is nothing."""
    try:
        if os.path.isdir(path):
            return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
        return os.path.getsize(path)
    except OSError:
        return 0
