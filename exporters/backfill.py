"""A finished run as OpenMetrics with timestamps, for `promtool tsdb create-blocks-from openmetrics`.

A run longer than a few hours needs promtool's `--max-block-duration`: with its default a 50-hour run took 16 s and made 26
blocks, with 168h 2 s and one block (measured on Prometheus 2.42, which also drops samples out of order without a word).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rltriage.engine.rows import Row, Run
from rltriage.exporters.exposition import openmetrics_header
from rltriage.exporters.naming import Family, Names, Series, number, run_labels
from rltriage.exporters.samples import STEP
from rltriage.rules.errors import SourceError
from rltriage.rules.model import MetricInfo


def backfill(runs: Iterable[tuple[Run, Sequence[Row]]], metrics: Mapping[str, MetricInfo]) -> Iterator[str]:
    """Lines of OpenMetrics 1.0.0, family by family, each series in the order of time, with `# EOF` last.

    Times are the rows' own, in unix seconds; of two rows at one time the later one counts. Raises SourceError for a row
    without a time: a made-up one would put the run where it never was.
    """
    names = Names(metrics)
    families: dict[Family, list[tuple[Series, dict[float, float]]]] = {}
    for run, rows in runs:
        for series, points in _points(run, rows, names):
            families.setdefault(series.family, []).append((series, points))
    for family, found in families.items():
        yield openmetrics_header(family)
        for series, points in found:
            for time in sorted(points):
                yield f"{series.head}{number(points[time])} {time:.3f}\n"
    yield "# EOF\n"


def _points(run: Run, rows: Sequence[Row], names: Names) -> Iterable[tuple[Series, dict[float, float]]]:
    """Every series of a run with its values by time."""
    labels = run_labels(run.id, run.labels.items())
    step = Series(STEP, labels)
    found: dict[str, tuple[Series, dict[float, float]]] = {}
    steps: dict[float, float] = {}
    for row in rows:
        if row.time is None:
            raise SourceError(
                f"run {run.id} has no time at step {row.step}: log `time` (unix seconds) with every row to backfill"
            )
        steps[row.time] = float(row.step)
        for metric, value in row.metrics.items():
            if metric not in found:
                place = names.find(metric)
                if place is None:
                    continue
                found[metric] = (Series(place[0], labels + place[1]), {})
            found[metric][1][row.time] = float(value)
    return [(step, steps), *found.values()]
