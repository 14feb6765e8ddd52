"""Families of samples as text: Prometheus text 0.0.4 and OpenMetrics 1.0.0, which differ in headers and the end only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rltriage.exporters.naming import Family, Series, number

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Sample = tuple[Series, float]


def lines(samples: Iterable[Sample]) -> list[tuple[Family, str]]:
    """Samples as their lines. The same in both formats, so that a run is formatted once per row."""
    return [(series.family, f"{series.head}{number(value)}\n") for series, value in samples]


def document(blocks: Mapping[Family, list[str]], openmetrics: bool) -> bytes:
    """All families, each with its header, in the order of the mapping."""
    header = _openmetrics_header if openmetrics else _text_header
    parts: list[str] = []
    for family, block in blocks.items():
        parts.append(header(family))
        parts += block
    if openmetrics:
        parts.append("# EOF\n")
    return "".join(parts).encode()


def _text_header(family: Family) -> str:
    kind = "counter" if family.kind == "counter" else "gauge"
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {family.sample_name} {text}\n# TYPE {family.sample_name} {kind}\n"


def _openmetrics_header(family: Family) -> str:
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind}\n"
