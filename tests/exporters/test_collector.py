"""Our families in somebody's own registry are those of our endpoint."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rltriage.engine.report import StepReport
from rltriage.engine.rows import Fact, Row, Run
from rltriage.exporters.collector import GaugesCollector
from rltriage.exporters.state import Health


def families(text, parse):
    """Name -> type, help and samples of an exposition, free of order."""
    return {
        family.name: (
            family.type,
            family.documentation,
            {(s.name, frozenset(s.labels.items()), repr(s.value)) for s in family.samples},
        )
        for family in parse(text.decode())
    }


def test_the_collector_and_the_renderer_are_equal_in_both_formats(gauges, alert):
    """Same families, types, help and samples, whichever way they are read."""
    for name in ("a", 'b"\\\n'):
        run = Run(name, {"team": name}, {"lr": Fact(1e-3, "declared")})
        row = Row(3, {"reward": 0.1, "length_pass": 3.0, "check_x": 1.0, "Odd/name": float("nan"), "loss": float("-inf")})
        gauges.publish(run, row, StepReport(3, (alert,)))
        gauges.measured(run, Health(0.001, 1, 2.5))
    registry = CollectorRegistry()
    registry.register(GaugesCollector(gauges))
    text = families(gauges.render(), parse_text)
    assert text == families(generate_latest(registry), parse_text)
    openmetrics = families(gauges.render(openmetrics=True), parse_openmetrics)
    assert openmetrics == families(generate_openmetrics(registry), parse_openmetrics)
    assert len(text) == len(openmetrics) > 15
