"""ASCII tables of two columns, as Stable-Baselines3 prints them; also with the lines that rich draws."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats, to_float

_RULE = re.compile(r"^\s*[|+]?[-=+|─━┄╌]{5,}[|+]?\s*$")
_BARS = str.maketrans({bar: "|" for bar in "│┃║┆┊"} | {bar: "-" for bar in "┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛┡┩┠┨╞╡╪"})


class TableLines:
    """A line format: a table is a record. `time/` in a row of its own is put before the names under it."""

    def __init__(self, stats: SourceStats) -> None:
        self._values: dict[str, str] = {}
        self._section = ""

    def feed(self, number: int, line: str) -> Iterable[Record] | None:
        text = line.translate(_BARS)
        cells = text.strip().split("|")
        if len(cells) == 4 and not cells[0] and not cells[3] and not _RULE.match(text):
            return self._row(cells[1].strip(), cells[2].strip())
        if self._values and (_RULE.match(text) or text.strip()):
            found = self.flush(True)
            return found if found else None
        return None

    def flush(self, ended: bool) -> Iterable[Record]:
        if not ended:
            return ()  # a table ends with a rule, so one without it is still being written
        values, self._values, self._section = self._values, {}, ""
        return (Record(dict(values)),) if len(values) > 1 else ()

    def reset(self) -> None:
        self._values, self._section = {}, ""

    def _row(self, name: str, value: str) -> Iterable[Record] | None:
        if name.endswith("/") and not value:
            self._section = name
            return () if self._values else None
        if not name or to_float(value) is None:
            return None
        self._values[self._section + name] = value
        return ()
