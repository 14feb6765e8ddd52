"""The rows of a run that goes on in its folder, as its rules saw them before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rltriage.engine.rows import Row
from rltriage.engine.sources.base import SourceStats, to_float, to_step
from rltriage.engine.sources.jsonl import JsonLines

MOST_RECALLED = 20_000


def recall(file: Path) -> list[Row]:
    """The last MOST_RECALLED rows of a `rows.jsonl`, none where there is no such file; lines that are no rows are left out.

    They hold canonical names and units already. No profile reads them, for it would scale and negate a second time.
    Raises OSError.
    """
    if not file.is_file():
        return []
    format = JsonLines(SourceStats())
    with open(file, encoding="utf-8", errors="replace") as lines:
        last = deque(lines, MOST_RECALLED)
    rows = (_row(record.values) for line in last for record in format.feed(0, line))
    return [row for row in rows if row is not None]


def _row(values: Mapping[str, Any]) -> Row | None:
    """A line of ours (`rundir.row_line`) as the row that it was."""
    step, time = to_step(values.get("step")), to_float(values.get("time"))
    metrics = {name: to_float(value) for name, value in values.items() if name not in ("step", "time")}
    numbers = {name: number for name, number in metrics.items() if number is not None}
    return Row(step, numbers, time) if step is not None and numbers else None
