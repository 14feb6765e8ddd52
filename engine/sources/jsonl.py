"""JSON Lines: one object a line. Covers our `rows.jsonl`, tinker's and prime-rl's `metrics.jsonl`, RLlib's `result.json`,
SB3's `progress.json` and verl's file logger, whose lines are `{"step": 1, "data": {...}}`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec.json import decode

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats, to_step

_WRAPPERS = ("data", "metrics")
_NOTHING: tuple[Record, ...] = ()


class JsonLines:
    """A line format: NaN and Infinity literals are read; a line that is no object is refused and counted."""

    def __init__(self, stats: SourceStats) -> None:
        self._stats = stats

    def feed(self, number: int, line: str) -> Iterable[Record]:
        try:
            value = parsed(line)
        except (ValueError, RecursionError):
            if line and not line.isspace():
                self._stats.refuse(number, _why(line))
            return _NOTHING
        if type(value) is not dict:
            self._stats.refuse(number, f"a row must be a JSON object, this is {_article(value)}")
            return _NOTHING
        return (unwrap(value),) if value else _NOTHING

    def flush(self, ended: bool) -> Iterable[Record]:
        return _NOTHING

    def reset(self) -> None:
        return None


def parsed(line: str) -> Any:
    """A line's value. Raises ValueError or RecursionError where it is no JSON.

    msgspec takes a third of the time, and gives all lines the same key objects. What it is too strict for (NaN, Infinity,
    half a surrogate pair) the standard library reads.
    """
    try:
        return decode(line)
    except ValueError:
        return json.loads(line)


def unwrap(value: dict[str, Any]) -> Record:
    """A record of an object, opening `{"step": n, "data": {...}}` as verl and ROLL write it."""
    if len(value) <= 4:
        for key in _WRAPPERS:
            inner = value.get(key)
            if type(inner) is dict and "step" in value:
                return Record(inner, step=to_step(value["step"]))
    run = value.get("run")
    return Record(value, run=run) if type(run) is str else Record(value)


def _why(line: str) -> str:
    if "\x00" in line:
        return "binary data"
    return "half a JSON object" if line.lstrip()[:1] == "{" else "not JSON"


def _article(value: Any) -> str:
    names = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}
    return names.get(type(value), "null")
