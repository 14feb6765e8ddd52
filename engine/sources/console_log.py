"""A console log: finds out by its lines which format it holds."""

from __future__ import annotations

from collections.abc import Iterable

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats
from rltriage.engine.sources.console import clean
from rltriage.engine.sources.dict_lines import DictLines
from rltriage.engine.sources.key_value import KeyValueLines
from rltriage.engine.sources.lines import LineFormat
from rltriage.engine.sources.tables import TableLines
from rltriage.engine.sources.verl_console import VerlConsole

MAX_PART = 1 << 16
"""Characters of a line: a row of a thousand metrics has as many, and longer ones are texts."""
FORMATS = (VerlConsole, DictLines, TableLines, KeyValueLines)


class Console:
    """Tries the formats in order; the first that yields a row is kept, and only one before it in the order may replace it.

    The order is from the most specific to the least, so that a chatty line never shadows the rows that follow it.
    """

    def __init__(self, stats: SourceStats) -> None:
        self._stats = stats
        self._formats: list[LineFormat] = [kind(stats) for kind in FORMATS]

    def feed(self, number: int, line: str) -> Iterable[Record] | None:
        if "\x00" in line:
            self._stats.refuse(number, "binary data")
            return ()
        found: list[Record] = []
        for part in (clean(line) or "").split("\r"):
            if len(part) > MAX_PART:
                self._stats.refuse(number, f"a console line longer than {MAX_PART} characters")
            elif part and not part.isspace():
                found += self._feed(number, part)
        return found

    def flush(self, ended: bool) -> Iterable[Record]:
        return [record for format in self._formats for record in format.flush(ended)]

    def reset(self) -> None:
        for format in self._formats:
            format.reset()

    def _feed(self, number: int, part: str) -> list[Record]:
        for index, format in enumerate(self._formats):
            records = format.feed(number, part)
            if records is not None:
                del self._formats[index + 1 :]
                return list(records)
        return []
