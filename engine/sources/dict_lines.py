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
_LONGEST_VALUE = 1000
_BEFORE = 200
"""Characters before a dict in which its step or its name is looked for."""
_GOES_ON = (",", "{", "[")
_AXIS = re.compile(
    r"\b(?:step|rollout|perf|iteration|iter|eval)\s*[:#]?\s*(\d+)\s*:?\s*$|\bglobal_step\W{1,3}(\d+)\b[^{}\d]*$",
    re.IGNORECASE,
)
_PAIR = re.compile(r"[A-Za-z]\w{0,60}\s{0,4}[:=]\s{0,4}[+-]?\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,4})?[\s,;|]")
_NAMED = re.compile(r"[A-Za-z]\w{0,60}\s{0,4}[:=]\s*$")
_CALL = re.compile(r"(?<=[:\s,\[(])(?:[A-Za-z_][\w.]*)\(([^(),\[\]{}'\"]*)(?:,[^()]*)?\)")
_MARK = re.compile(r"[\\'\"{}]")
_BARE = re.compile(r"(?<=[:\s,\[(])([+-]?)(nan|inf|NaN|Infinity)\b(?!['\"])")


class DictLines:
    """A line format: every `{'name': number, ...}` is one record, pretty-printed over several lines too (SkyRL)."""

    def __init__(self, stats: SourceStats) -> None:
        self._stats = stats
        self._open = ""
        self._title = ""
        self._braces = _Braces()

    def feed(self, number: int, line: str) -> Iterable[Record] | None:
        if self._open:
            return self._go_on(number, line)
        start = _OPEN.search(line)
        if start is None:
            self._title = line[-80:]
            return None
        braces = _Braces()
        if line.rstrip().endswith(_GOES_ON) and not braces.close(line[start.start() :] + "\n"):
            self._braces = braces
            self._open = (self._title + " " if not line[: start.start()].strip() else "") + line
            return ()
        return self._record(number, line, start)

    def _go_on(self, number: int, line: str) -> Iterable[Record]:
        text, self._open = f"{self._open}\n{line}", ""
        if self._braces.close(line + "\n"):
            start = _OPEN.search(text)
            return (self._record(number, text, start) or ()) if start is not None else ()
        if len(text) > MAX_TEXT or not _goes_on(line):
            self._stats.refuse(number, "a dict over several lines that never closes")
        else:
            self._open = text
        return ()

    def _record(self, number: int, line: str, start: re.Match[str]) -> Iterable[Record] | None:
        begun = start.start()
        before = line[max(0, begun - _BEFORE) : begun]
        named = _NAMED.search(before)
        if named is not None and _PAIR.search(line, 0, begun - len(before) + named.start()):
            return None
        text = line[begun:]
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
        axis = _AXIS.search(before)
        return (Record(values, step=to_step(axis.group(1) or axis.group(2)) if axis else None),)

    def flush(self, ended: bool) -> Iterable[Record]:
        return ()

    def reset(self) -> None:
        self._open, self._title = "", ""


def _goes_on(line: str) -> bool:
    """Whether a pretty-printed dict may have another line: this one ends in a comma or bracket, or is its last value."""
    text = line.rstrip()
    return (
        text.endswith(_GOES_ON)
        or text.lstrip() in ("}", "]")
        or (len(text) <= _LONGEST_VALUE and _VALUE.match(text) is not None)
    )


def parse_dict(text: str) -> dict[str, Any] | None:
    """The dict at the start of a text, with bare nan/inf and calls such as `np.float64(0.1)`; None if broken."""
    end = closing(text)
    if end < 0:
        return None
    text = text[:end]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        text = _CALL.sub(lambda call: repr(call.group(1).strip()), text)
        text = _BARE.sub(r"'\1\2'", text)
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else None


def closing(text: str) -> int:
    """The end of the braces that open at the start, quotes respected; -1 if they never close."""
    braces = _Braces()
    return braces.end if braces.close(text) else -1


class _Braces:
    """Braces over text that comes in parts, each looked at once. `end` is where they closed, in the last part."""

    __slots__ = ("_depth", "_quote", "_skip", "end")

    def __init__(self) -> None:
        self._depth, self._quote, self._skip, self.end = 0, "", 0, -1

    def close(self, text: str) -> bool:
        """Whether the braces that were opened first close in this part."""
        at, self._skip = self._skip, 0
        while (mark := _MARK.search(text, at)) is not None:
            char, at = mark.group(), mark.end()
            if self._quote:
                if char == "\\":
                    at += 1  # what follows is no mark
                elif char == self._quote:
                    self._quote = ""
            elif char in "'\"":
                self._quote = char
            elif char == "{":
                self._depth += 1
            elif char == "}":
                self._depth -= 1
                if self._depth == 0:
                    self.end = at
                    return True
        self._skip = max(0, at - len(text))
        return False


def _is_row(values: dict[str, Any]) -> bool:
    """Something that training measures is a number in it, and most of its values are numbers or null."""
    flat = flatten(values)
    numbers = [name for name, value in flat.items() if to_float(value) is not None]
    words = sum(isinstance(value, str) and to_float(value) is None for value in flat.values())
    return len(numbers) > words and any(map(is_metric_name, numbers))
