"""CSV and TSV: SB3's `progress.csv`, RLlib's, exported TensorBoard or W&B tables."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from itertools import islice
from typing import Any

from rltriage.engine.rows import Record
from rltriage.engine.sources.base import SourceStats, to_float

DELIMITERS = ",\t;"
MAX_RUNS = 1000
"""Runs of a chart's export; W&B draws at most a tenth of them."""


class CsvLines:
    """A line format. The first line names the columns; empty cells are absent.

    A file that is written anew with more columns (as SB3 does when a metric first appears) goes on where it was. In a
    W&B chart's export, columns `run - metric` with `__MIN` and `__MAX` beside them become one record per run.
    """

    def __init__(self, stats: SourceStats, delimiter: str) -> None:
        self._stats = stats
        self._delimiter = delimiter
        self._header: list[str] = []
        self._runs: dict[str, dict[int, str]] = {}
        self._rows = 0
        self._skip = 0
        self._before: tuple[list[str], int] = ([], 0)

    def feed(self, number: int, line: str) -> Iterable[Record] | None:
        if not line.strip():
            return ()
        try:
            cells = next(csv.reader([line.rstrip("\r")], delimiter=self._delimiter))
        except (csv.Error, StopIteration):
            self._stats.refuse(number, "a line that is no CSV")
            return ()
        if not self._header:
            self._start(number, [cell.strip() for cell in cells])
            return ()
        if len(cells) != len(self._header):
            if cells != self._header:
                self._stats.refuse(
                    number, f"{len(cells)} cell{'' if len(cells) == 1 else 's'} where the header has {len(self._header)}"
                )
            return ()
        self._rows += 1
        if self._skip:
            self._skip -= 1
            return ()
        return self._records(cells)

    def flush(self, ended: bool) -> Iterable[Record]:
        return ()

    def reset(self) -> None:
        self._before = (self._header, self._rows)
        self._header, self._rows, self._skip = [], 0, 0

    def _start(self, number: int, header: list[str]) -> None:
        self._header = header
        old, rows = self._before
        self._skip = rows if old and set(old) < set(header) else 0
        self._runs = _chart_runs(header)
        if len(self._runs) > MAX_RUNS:
            self._stats.refuse(
                number, f"columns of {len(self._runs)} runs: the first {MAX_RUNS} are read, export the others on their own"
            )
            self._runs = dict(islice(self._runs.items(), MAX_RUNS))

    def _records(self, cells: list[str]) -> Iterable[Record]:
        if self._runs:
            shared = {name: cell for name, cell in zip(self._header, cells, strict=True) if cell and " - " not in name}
            rows = {run: {name: cells[i] for i, name in names.items() if cells[i]} for run, names in self._runs.items()}
            return (Record({**shared, **values}, run=run) for run, values in rows.items() if values)
        values: dict[str, Any] = {name: cell for name, cell in zip(self._header, cells, strict=True) if cell and name}
        return [Record(values)] if values else []


def _chart_runs(header: list[str]) -> dict[str, dict[int, str]]:
    runs: dict[str, dict[int, str]] = {}
    names = frozenset(header)
    for index, name in enumerate(header):
        if " - " in name and f"{name}__MIN" in names:
            run, _, metric = name.rpartition(" - ")
            runs.setdefault(run, {})[index] = metric
    return runs


def delimiter_of(lines: list[str]) -> str | None:
    """The delimiter of a table that starts with these lines, or None: names first, then as many cells with numbers."""
    if len(lines) < 2:
        return None
    for delimiter in DELIMITERS:
        try:
            header, *rows = csv.reader([line.rstrip("\r") for line in lines[:5]], delimiter=delimiter)
        except (csv.Error, ValueError):
            continue
        same = [row for row in rows if len(row) == len(header)]
        named = sum(bool(name.strip()) and to_float(name) is None and "=" not in name for name in header)
        numbers = any(to_float(cell) is not None for row in same for cell in row)
        if len(header) > 1 and named >= len(header) - 1 and 2 * len(same) >= len(rows) and numbers:
            return delimiter
    return None
