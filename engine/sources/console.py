"""A console log: finds out which line format it holds, and cleans what terminals and launchers add to lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats
from rltriage.engine.sources.lines import LineFormat

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_WORKER = re.compile(r"^\s*(?:\x1b\[[0-9;]*m)*(?:\([A-Za-z_][^()]*?\b(?:pid|ip|rank)=[^()]*\)|\[rank\d+\]:?)\s?")
_METRIC = re.compile(
    r"loss|reward|grad|learning_rate|\blr\b|(?:^|[^a-z])kl|entropy|acc(?:uracy)?\b|return|score|advantage|adv\b|pass|clip"
    r"|logp|ratio|runtime|l2_norm",
    re.IGNORECASE,
)


def clean(line: str) -> str:
    """The line without ANSI codes and without Ray's or torchrun's worker prefix."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if line[:1] in "([ " and (prefix := _WORKER.match(line)):
        line = line[prefix.end() :]
    return line


def is_metric_name(name: str) -> bool:
    """Whether a console key looks like something that a training loop measures (not a pid, a port, a shape)."""
    return _METRIC.search(name) is not None


def numeric(value: Any) -> bool:
    return isinstance(value, (int, float)) or value is None or (isinstance(value, str) and value[:1] in "+-.0123456789nNiI")


class Console:
    """Tries the formats in order; the first that yields a row is kept, and only one before it in the order may replace it.

    The order is from the most specific to the least, so that a chatty line never shadows the rows that follow it.
    """

    def __init__(self, stats: SourceStats, formats: Iterable[tuple[str, LineFormat]]) -> None:
        self._stats = stats
        self._formats = list(formats)
        self.format: str | None = None

    def feed(self, number: int, line: str) -> Iterable[Record] | None:
        if "\x00" in line:
            self._stats.refuse(number, "binary data")
            return ()
        found: list[Record] = []
        for part in clean(line).split("\r"):
            if part and not part.isspace():
                found += self._feed(number, part)
        return found

    def flush(self) -> Iterable[Record]:
        return [record for _, format in self._formats for record in format.flush()]

    def reset(self) -> None:
        for _, format in self._formats:
            format.reset()

    def _feed(self, number: int, part: str) -> list[Record]:
        for index, (name, format) in enumerate(self._formats):
            records = format.feed(number, part)
            if records is not None:
                self.format = name
                del self._formats[index + 1 :]
                return list(records)
        return []
