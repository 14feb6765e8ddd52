"""What every source offers, and how it counts what it could not read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rltriage.engine.rows import Record

EXAMPLES = 5
MAX_FLAT = 200_000
"""More than a line of MAX_LINE bytes can hold."""
MAX_STEP = (1 << 63) - 1
_CALL = re.compile(r"^[A-Za-z_][\w.]*\(\s*([^\s,()]+)")
_ONLY = re.compile(r"^\[\s*([^\s,\[\]]+)\s*\]$")
_OF = re.compile(r"^\s*(\d{1,18})\s*/\s*\d{1,18}\s*$")
_WINDOWS = {"1.#inf": "inf", "1.#qnan": "nan", "1.#snan": "nan", "1.#ind": "nan"}


class BadLine(NamedTuple):
    """One line (counted from 1) or document that is no row, and why."""

    line: int
    reason: str


@dataclass(slots=True)
class SourceStats:
    """How many records were read, how many were refused, and the first of those."""

    records: int = 0
    bad: int = 0
    examples: list[BadLine] = field(default_factory=list)

    def refuse(self, line: int, reason: str) -> None:
        self.bad += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(BadLine(line, reason))


class Source(Protocol):
    """Where records come from. `config` holds config facts found beside or inside the log under their own names.

    `records` reads everything that is there now, the unfinished end included; `poll` returns what is new since the last
    call and leaves an unfinished end for the next one. Neither waits, and `poll` never raises for a file that went away.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def stats(self) -> SourceStats: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def profile(self) -> str | None: ...
    def records(self) -> Iterator[Record]: ...
    def poll(self) -> list[Record]: ...
    def close(self) -> None: ...


def to_float(value: Any) -> float | None:
    """The number that a logger meant, or None: numbers, booleans, numeric text, `62.5%`, `np.float64(0.1)`, `tensor(0.3)`.

    A percentage becomes a share. Anything with one element and `__float__` (a 0-d tensor) counts as a number.
    """
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        return _safe_float(value)
    if isinstance(value, str):
        return _text_to_float(value)
    if value is None or isinstance(value, (list, tuple, dict, bytes)):
        return None
    return _safe_float(value)


def _safe_float(value: Any) -> float | None:
    try:
        # `item` first: float() of a tensor with a gradient warns, and of a one-element array numpy refuses it.
        item = getattr(value, "item", None)
        return float(item()) if callable(item) else float(value) if hasattr(value, "__float__") else None
    except Exception:  # a foreign __float__ may raise anything; a row must never fail on one value
        return None


def _text_to_float(text: str) -> float | None:
    text = text.strip()
    if len(text) > 100:
        return None
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        pass
    if text.endswith("%"):
        share = _text_to_float(text[:-1])
        return None if share is None else share / 100
    if "#" in text:
        spelled = _WINDOWS.get(text.lower().lstrip("+-").rstrip("0"))
        return None if spelled is None else float(spelled) * (-1 if text.startswith("-") else 1)
    inner = _CALL.match(text) or _ONLY.match(text)
    return _text_to_float(inner.group(1)) if inner else None


def flatten(values: Mapping[str, Any], separator: str = "/", limit: int = 16) -> dict[str, Any]:
    """Nested mappings as one flat mapping with joined names, at most `limit` levels deep.

    Mappings that hold themselves or each other many times over are followed to MAX_FLAT values.
    """
    flat: dict[str, Any] = {}
    stack: list[tuple[str, Mapping[str, Any], int]] = [("", values, 0)]
    seen = 0
    while stack and seen < MAX_FLAT:
        prefix, mapping, depth = stack.pop()
        seen += len(mapping)
        for key, value in mapping.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping):
                if depth < limit:
                    stack.append((name + separator, value, depth + 1))
            else:
                flat[name] = value
    return flat


def to_step(value: Any) -> int | None:
    """A step as an integer, or None where it is no whole number of 64 bits; `12/100` is step 12."""
    if type(value) is str and (of := _OF.match(value)):
        value = int(of.group(1))
    if type(value) is not int:
        number = to_float(value)
        if number is None or not math.isfinite(number) or number != int(number):
            return None
        value = int(number)
    return value if -MAX_STEP <= value <= MAX_STEP else None
