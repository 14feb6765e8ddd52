"""The rhythm of a run: how far apart its steps and its rows are, and where it resumed from a checkpoint."""

from __future__ import annotations

from array import array

from rltriage.rules.conditions.noise import sorted_median

MEMORY = 15
"""Gaps whose median is the stride."""
SETTLED = 3
"""Gaps needed before a larger one means something."""
RESUME_GAP = 3.0
RESUME_FIRST = 2.0


class Strides:
    """Takes the step and time of every row of a segment (DESIGN section 3, resume)."""

    __slots__ = ("alike", "first", "gaps", "intervals", "last", "resumed_row", "stride", "time")

    def __init__(self) -> None:
        self.alike = 0
        self.first: int | None = None
        self.last = 0
        self.time: float | None = None
        self.gaps = array("d")
        self.stride = 0.0
        self.intervals = array("d")
        self.resumed_row: int | None = None

    def take(self, step: int, time: float | None, row: int, resumed_at: float | None) -> None:
        """Open a row. `resumed_at` is the config fact, None while unknown."""
        if self.first is None:
            self.first = step
            if resumed_at is not None and 0 < resumed_at <= step:
                self.resumed_row = row
        else:
            gap = step - self.last
            if self._resumed(step, gap, resumed_at):
                self.resumed_row = row
            elif not self.gaps and self.first > RESUME_FIRST * gap > 0:
                self.resumed_row = 0
            self.alike = self.alike + 1 if gap == self.stride else 0
            if gap > 0 and self.alike <= MEMORY:  # beyond it every gap that is remembered is the stride
                _remember(self.gaps, gap)
                if gap != self.stride or self.gaps[0] != gap:
                    self.stride = sorted_median(sorted(self.gaps))
        self.last = step
        if time is not None:
            if self.time is not None and time > self.time:
                _remember(self.intervals, time - self.time)
            self.time = time

    def rewind(self, step: int, row: int) -> None:
        """The run went back to `step`, which only a restart from a checkpoint does: the next row is `row`."""
        self.last = step
        self.resumed_row = row

    def _resumed(self, step: int, gap: int, resumed_at: float | None) -> bool:
        if resumed_at is not None and self.last < resumed_at <= step:
            return True
        return len(self.gaps) >= SETTLED and gap > RESUME_GAP * self.stride

    @property
    def interval(self) -> float | None:
        """The median seconds between rows; None before there are enough."""
        return self.pace if len(self.intervals) >= SETTLED else None

    @property
    def pace(self) -> float | None:
        """The same of as few rows as there are; None before the second."""
        return sorted_median(sorted(self.intervals)) if self.intervals else None


def _remember(ring: array[float], value: float) -> None:
    ring.append(float(value))
    if len(ring) > MEMORY:
        del ring[0]
