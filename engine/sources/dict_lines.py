"""Python dict lines, as the Hugging Face Trainer prints them among progress bars; also `step 12: {...}` of slime and
`metrics_tag: {json}` of ROLL."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats, flatten, to_float, to_step
from rltriage.engine.sources.console import is_metric_name

MAX_TEXT = 1 << 16
_OPEN = re.compile(r"\{\s*(?:['\"]|$)")
_VALUE = re.compile(r"\s+['\"].*['\"]\s*:\s*\S+$|\s+\S+$")
_GOES_ON = (",", "{", "[")
_AXIS = re.compile(
    r"\b(?:step|rollout|perf|iteration|iter|eval)\s*[:#]?\s*(\d+)\s*:?\s*$|\bglobal_step\W{1,3}(\d+)\b[^{}\d]*$",
    re.IGNORECASE,
)
_PAIRED = re.compile(r"[A-Za-z]\w*\s*[:=]\s*[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[\s,;|].*[A-Za-z]\w*\s*[:=]\s*$")
_CALL = re.compile(r"(?<=[:\s,\[(])(?:[A-Za-z_][\w.]*)\(([^()\[\]{}'\"]*)(?:,[^()]*)?\)")
_BARE = re.compile(r"(?<=[:\s,\[(])([+-]?)(nan|inf|NaN|Infinity)\b(?!['\"])")


class DictLines:
    """A line format: every `{'name': number, ...}` is one record, pretty-printed over several lines too (SkyRL)."""

    def __init__(self, stats: SourceStats) -> None:
        self._stats = stats
        self._open = ""
        self._title = ""

    def feed(self, number: int, line: str) -> Iterable[Record] | None:
        if self._open:
            return self._go_on(number, line)
        start = _OPEN.search(line)
        if start is None:
            self._title = line[-80:]
            return None
        if line.rstrip().endswith(_GOES_ON) and closing(line[start.start() :]) < 0:
            self._open = (self._title + " " if not line[: start.start()].strip() else "") + line
            return ()
        return self._record(number, line, start)

    def _go_on(self, number: int, line: str) -> Iterable[Record]:
        text, self._open = f"{self._open}\n{line}", ""
        start = _OPEN.search(text)
        if start is not None and closing(text[start.start() :]) > 0:
            return self._record(number, text, start) or ()
        if len(text) > MAX_TEXT or not _goes_on(line):
            self._stats.refuse(number, "a dict over several lines that never closes")
        else:
            self._open = text
        return ()

    def _record(self, number: int, line: str, start: re.Match[str]) -> Iterable[Record] | None:
        if _PAIRED.search(line[: start.start()]):
            return None
        text = line[start.start() :]
        values = parse_dict(text)
        if values is None:
            if is_metric_name(text[:200]):
                self._stats.refuse(number, "half a dict, or one that is no plain data")
            return None
        inner = values.get("metrics")
        if isinstance(inner, dict):
            values = {**inner, **({"step": values["step"]} if "step" in values else {})}
        if not _is_row(values):
            return None
        axis = _AXIS.search(line[: start.start()])
        return (Record(values, step=to_step(axis.group(1) or axis.group(2)) if axis else None),)

    def flush(self, ended: bool) -> Iterable[Record]:
        return ()

    def reset(self) -> None:
        self._open, self._title = "", ""


def _goes_on(line: str) -> bool:
    """Whether a pretty-printed dict may have another line: this one ends in a comma or bracket, or is its last value."""
    text = line.rstrip()
    return text.endswith(_GOES_ON) or text.lstrip() in ("}", "]") or _VALUE.match(text) is not None


def parse_dict(text: str) -> dict[str, Any] | None:
    """The dict at the start of a text, with bare nan/inf and calls such as `np.float64(0.1)`; None if broken."""
    end = closing(text)
    if end < 0:
        return None
    text = text[:end]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        text = _CALL.sub(lambda call: repr(call.group(1).split(",")[0].strip()), text)
        text = _BARE.sub(r"'\1\2'", text)
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else None


def closing(text: str) -> int:
    """The end of the braces that open at the start, quotes respected; -1 if they never close."""
    depth, quote, escaped = 0, "", False
    for index, char in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return index + 1
    return -1


def _is_row(values: dict[str, Any]) -> bool:
    """Something that training measures is a number in it, and most of its values are numbers or null."""
    flat = flatten(values)
    numbers = [name for name, value in flat.items() if to_float(value) is not None]
    words = sum(isinstance(value, str) and to_float(value) is None for value in flat.values())
    return len(numbers) > words and any(map(is_metric_name, numbers))
