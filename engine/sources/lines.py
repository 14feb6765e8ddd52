"""A log made of lines: one reader for every line format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats
from rltriage.engine.sources.tail import Tail

MOST_AT_ONCE = 1000
"""Records of one poll: a log of a hundred thousand rows must not be in memory as a whole."""


class LineFormat(Protocol):
    """Turns lines into records. `feed` gives None for a line that is none of its own, and may hold one back.

    `flush` gives what is held and may be whole, and with `ended` also what can no longer become whole; `reset` forgets it.
    """

    def feed(self, number: int, line: str) -> Iterable[Record] | None: ...
    def flush(self, ended: bool) -> Iterable[Record]: ...
    def reset(self) -> None: ...


class LineSource:
    """Reads or follows one file through a line format."""

    def __init__(
        self,
        path: str,
        kind: str,
        format: LineFormat,
        stats: SourceStats,
        config: Mapping[str, Any] | None = None,
        profile: str | None = None,
    ) -> None:
        self.name = path
        self.kind = kind
        self.stats = stats
        self.config: Mapping[str, Any] = config or {}
        self.profile = profile
        self._format = format
        self._tail = Tail(path, stats)
        self._generation = 0
        self._reading: Iterator[Record] | None = None

    def records(self) -> Iterator[Record]:
        """Everything there is now, the unfinished last line included."""
        yield from self._new()
        for number, line in self._tail.unfinished():
            yield from self._count(self._format.feed(number, line) or ())
        yield from self._count(self._format.flush(True))

    def poll(self) -> list[Record]:
        """What is new, MOST_AT_ONCE records of it; a row that a format held back comes once nothing follows it."""
        new: list[Record] = []
        if self._reading is not None or not self._tail.is_quiet():
            self._reading = self._reading or self._new()
            new = list(islice(self._reading, MOST_AT_ONCE))
            if len(new) < MOST_AT_ONCE:
                self._reading = None
        return new or list(self._count(self._format.flush(False)))

    def close(self) -> None:
        self._tail.close()

    def _new(self) -> Iterator[Record]:
        feed = self._format.feed
        stats = self.stats
        for number, line in self._tail.lines():
            if self._tail.generation != self._generation:
                self._generation = self._tail.generation
                yield from self._count(self._format.flush(True))
                self._format.reset()
            for record in feed(number, line) or ():
                stats.records += 1
                yield record

    def _count(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            self.stats.records += 1
            yield record
