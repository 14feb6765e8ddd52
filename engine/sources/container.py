"""Logs as container runtimes keep them: Docker's `json-file` driver wraps each line in `{"log", "stream", "time"}`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rltriage.engine.rows import Record
from rltriage.engine.sources.lines import LineFormat


def unwrapped(line: str) -> str | None:
    """The line inside, without its newline; None if this is none of Docker's."""
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not value.keys() <= {"log", "stream", "time", "attrs"}:
        return None
    text = value.get("log")
    return text.rstrip("\r\n") if isinstance(text, str) else None


class DockerLines:
    """A line format: what is inside goes to another."""

    def __init__(self, inside: LineFormat) -> None:
        self._inside = inside

    def feed(self, number: int, line: str) -> Iterable[Record] | None:
        return self._inside.feed(number, line if (text := unwrapped(line)) is None else text)

    def flush(self, ended: bool) -> Iterable[Record]:
        return self._inside.flush(ended)

    def reset(self) -> None:
        self._inside.reset()
