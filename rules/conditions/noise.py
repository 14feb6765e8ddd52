"""The scale of a series' own noise, and differences in units of it (DESIGN section 3, Definitions)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

NORMAL = 1.4826 / math.sqrt(2.0)
"""From a median absolute difference to a standard deviation of normal noise."""
MEDIAN_EFFICIENCY = 1.2533
"""The standard error of a median over that of a mean (sqrt(pi / 2))."""


def noise(values: Sequence[float]) -> float:
    """1.4826 * median |x_i - x_(i-1)| / sqrt(2); from the non-zero differences when most are zero. 0 below 2 values."""
    return scale_of(sorted([abs(new - old) for old, new in pairwise(values)]))


def scale_of(steps: Sequence[float]) -> float:
    """The noise of sorted differences."""
    if not steps:
        return 0.0
    if steps[len(steps) // 2] == 0.0:
        steps = steps[bisect_right(steps, 0.0) :]
        if not steps:
            return 0.0
    return NORMAL * sorted_median(steps)


def sorted_median(ordered: Sequence[float]) -> float:
    """The median of a sorted, non-empty sequence."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def median(values: Sequence[float]) -> float:
    """The median of a non-empty sequence."""
    return sorted_median(sorted(values))


def standard_error(scale: float, parts: float) -> float:
    """The standard error of a difference of two medians: `parts` is the sum of 1 / size of both."""
    return MEDIAN_EFFICIENCY * scale * math.sqrt(parts)


def z_score(difference: float, error: float) -> float:
    """difference / error; without noise 0 for no difference, else an infinity of its sign."""
    if error > 0.0:
        return difference / error
    return 0.0 if difference == 0.0 else math.copysign(math.inf, difference)
