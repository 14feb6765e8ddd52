"""verl's console backend: `step:12 - actor/entropy:0.3 - critic/score/mean:np.float64(0.1) - ...`, possibly folded."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats

_START = re.compile(r"(?:^|\s)step:(\d+)\s+-\s+(?=\S)")
_PAIR = re.compile(r"^([A-Za-z_][^\s:]*(?:[^:]*[^\s:])?):(\S+)$")
_GOES_ON = re.compile(r"^\s*-\s+\S+:|^\S*\s+-\s+[A-Za-z_][\w/.@-]*:\S|^[A-Za-z_][\w/.@-]*/[\w/.@-]*:\S+$")
_WHOLE = re.compile(r":(?:[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|nan|inf)|np\.\w+\([^()]*\))\s*$")


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
        if self._pending and (_GOES_ON.match(line) or not _WHOLE.search(self._pending)) and len(line) < 10_000:
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
            pair = _PAIR.match(part.strip())
            if pair is None:
                broken += 1
            elif pair.group(1) == "step":
                step = int(pair.group(2))
            else:
                values[pair.group(1)] = pair.group(2)
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
