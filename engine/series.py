"""The shorthand in which rule tests write a metric's values, one token a value or a run of values.

0.5          one value                      0.5x3        0.5 three times
0.4-0.05x6   six values: 0.4 0.35 0.3 ...   0.4+0.1x3    three values: 0.4 0.5 0.6
0.5~0.02x4   four values that alternate: 0.52 0.48 0.52 0.48 (also after a slope: 0.4+0.1~0.02x4)
_ or _x3     absent in one row, in three    NaN Inf -Inf as logged
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

_NUMBER = r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
_TOKEN = re.compile(
    rf"(?P<base>_|-?(?:NaN|Inf|{_NUMBER}))(?P<slope>[-+](?:{_NUMBER}))?(?:~(?P<noise>{_NUMBER}))?(?:x(?P<count>\d{{1,9}}))?"
)
MAX_VALUES = 100_000


def parse_series(text: str) -> list[float | None]:
    """The values of a series; None is a row without the metric. Raises ValueError with a message for users."""
    values: list[float | None] = []
    for match, count in _tokens(text):
        values += _expand(match, count)
    return values


def count_values(text: str) -> int:
    """How many values a series has, without making them. Raises ValueError as `parse_series`."""
    return sum(count for _, count in _tokens(text))


def _tokens(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Each token with how many values it makes."""
    total = 0
    for token in text.split():
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise ValueError(
                f"`{token}` is no value of a series: write for example 0.5, 0.5x3, 0.4-0.05x6, 0.5~0.1x4, _ or NaN"
            )
        count = int(match["count"] or 1)
        total += count
        if count < 1 or total > MAX_VALUES:
            raise ValueError(f"`{token}` makes {count} values: write 1 to {MAX_VALUES} in all")
        if (match["slope"] or match["noise"]) and match["count"] is None:
            raise ValueError(f"`{token}` says no number of values: write {token}x5")
        yield match, count


def _expand(match: re.Match[str], count: int) -> list[float | None]:
    if match["base"] == "_":
        return [None] * count
    base, slope, noise = float(match["base"]), float(match["slope"] or 0), float(match["noise"] or 0)
    if not math.isfinite(base):
        return [base] * count
    # Rounded, so that 0.1 + 2 * 0.1 is the 0.3 that the author meant and exact values stay exact.
    return [round(base + index * slope + (noise if index % 2 == 0 else -noise), 12) for index in range(count)]
