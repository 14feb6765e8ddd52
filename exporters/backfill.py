"""A finished run as OpenMetrics with timestamps, for `promtool tsdb create-blocks-from openmetrics`.

A run longer than a few hours needs promtool's `--max-block-duration`: with its default a 50-hour run took 16 s and made 26
blocks, with 168h 2 s and one block (measured on Prometheus 2.42, which also drops samples out of order without a word).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rltriage.engine.rows import Row, Run
from rltriage.exporters.exposition import openmetrics_header
from rltriage.exporters.naming import Family, Series, number
from rltriage.exporters.samples import Sample
from rltriage.rules.errors import SourceError


class Recording:
    """Samples with their times, as a scrape right after each row reads them; of two at one time the later counts."""

    def __init__(self) -> None:
        self._families: dict[Family, dict[str, tuple[Series, dict[float, float]]]] = {}

    def take(self, run: Run, row: Row, samples: Iterable[Sample]) -> None:
        """The samples of a run after a row. Raises SourceError for a row without a time: a made-up one would put the run
        where it never was."""
        if row.time is None:
            raise SourceError(
                f"run {run.id} has no time at step {row.step}: log `time` (unix seconds) with every row to backfill"
            )
        for series, value in samples:
            found = self._families.setdefault(series.family, {})
            found.setdefault(series.head, (series, {}))[1][row.time] = float(value)

    def lines(self) -> Iterator[str]:
        """Lines of OpenMetrics 1.0.0, family by family, each series in the order of time, with `# EOF` last."""
        for family, found in self._families.items():
            yield openmetrics_header(family)
            for series, points in found.values():
                for time in sorted(points):
                    yield f"{series.head}{number(points[time])} {time:.3f}\n"
        yield "# EOF\n"
