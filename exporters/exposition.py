"""Samples as text: Prometheus text 0.0.4 and OpenMetrics 1.0.0, which differ in headers and the end only."""

from __future__ import annotations

from collections.abc import Mapping

from rltriage.exporters.naming import Family, number
from rltriage.exporters.samples import Columns, Lines

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def lines(columns: Columns) -> Lines:
    """Families and lines of samples. The same in both formats, so that a run is formatted once per row."""
    series, values = columns
    families = tuple([one.family for one in series])
    total = sum(values)
    if total - total == 0.0:  # All are finite, and none needs a special spelling.
        return families, [f"{one.head}{value!r}\n" for one, value in zip(series, values, strict=True)]
    return families, [f"{one.head}{number(value)}\n" for one, value in zip(series, values, strict=True)]


def document(blocks: Mapping[Family, list[str]], openmetrics: bool) -> bytes:
    """All families, each with its header, in the order of the mapping."""
    header = openmetrics_header if openmetrics else _text_header
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


def openmetrics_header(family: Family) -> str:
    """HELP and TYPE of a family as OpenMetrics writes them."""
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind}\n"
