"""verl's console backend: `step:12 - actor/entropy:0.3 - critic/score/mean:np.float64(0.1) - ...`, possibly folded."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats, to_step

_START = re.compile(r"(?:^|\s)step:(\d+)\s+-\s+(?=\S)")
_NAME = re.compile(r"[A-Za-z_]")
_GOES_ON = re.compile(r"^\s*-\s+\S+:|^\S*\s+-\s+[A-Za-z_][\w/.@-]*:\S|^(?=[\w.@-]*/)[A-Za-z_][\w/.@-]*:\S+$")
_WHOLE = re.compile(r":(?:[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|nan|inf)|np\.\w+\([^()]*\))\s*$")
_LONGEST_VALUE = 200
MAX_TEXT = 1 << 17
"""Characters of a folded row, about two thousand metrics: what goes on longer is no row."""


class VerlConsole:
    """A line format. A row waits for the next line, because a folded terminal may have cut it anywhere."""

    def __init__(self, stats: SourceStats) -> None:
        self._stats = stats
        self._pending = ""
        self._number = 0

    def feed(self, number: int, line: str) -> Iterable[Record] | None:
        start = _START.search(line)
        if start is not None:
            done = list(self.flush(True))
            self._pending = line[start.start() :].strip("\n")
            self._number = number
            return done
        fits = len(line) < 10_000 and len(self._pending) + len(line) < MAX_TEXT
        if self._pending and fits and (_GOES_ON.match(line) or not _WHOLE.search(self._pending[-_LONGEST_VALUE:])):
            self._pending = _join(self._pending, line)
            return ()
        return self.flush(True) or None

    def flush(self, ended: bool) -> Iterable[Record]:
        text, self._pending = self._pending, ""
        if not text:
            return ()
        values: dict[str, str] = {}
        step, broken = 0, 0
        for part in text.strip().split(" - "):
            name, _, value = part.strip().partition(":")
            if not _NAME.match(name) or name[-1].isspace() or value.split() != [value]:
                broken += 1
            elif name == "step":
                step = to_step(value) or 0
            else:
                values[name] = value
        if broken:
            self._stats.refuse(self._number, f"{broken} parts of a verl row are no name:number")
        return (Record(values, step=step),) if values else ()

    def reset(self) -> None:
        self._pending = ""


def _join(left: str, right: str) -> str:
    """Two pieces of a folded row; the fold may have eaten one space beside a dash."""
    if right.startswith("- ") and not left.endswith(" "):
        return f"{left} {right}"
    if left.endswith(" -"):
        return f"{left} {right.lstrip()}"
    return left + right
