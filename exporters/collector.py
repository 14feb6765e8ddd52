"""Our gauges inside somebody's own prometheus_client registry: `REGISTRY.register(GaugesCollector(gauges))`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from rltriage.exporters.gauges import Gauges


class GaugesCollector(Collector):
    """Yields the families that `Gauges.render` writes, equal sample for sample."""

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """One `Metric` a family, at the moment of the call."""
        families: dict[str, Metric] = {}
        for series, value in self._gauges.samples():
            family = series.family
            metric = families.setdefault(family.name, Metric(family.name, family.help, family.kind))
            metric.add_sample(family.sample_name, dict(series.labels), value)
        yield from families.values()

    def describe(self) -> list[Metric]:
        """Nothing in advance: the families depend on the runs."""
        return []
