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


def accepts_openmetrics(accept: str) -> bool:
    """Whether an Accept header names OpenMetrics 1.0.0 and does not prefer plain text."""
    weights = {"open": 0.0, "text": 0.0}
    for entry in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        weight = _weight(given.get("q", "1"))
        if kind == "application/openmetrics-text" and given.get("version", "").strip('"') == "1.0.0":
            weights["open"] = max(weights["open"], weight)
        elif kind == "text/plain":
            weights["text"] = max(weights["text"], weight)
    return weights["open"] > 0 and weights["open"] >= weights["text"]


def accepts_gzip(accept: str) -> bool:
    """Whether an Accept-Encoding header takes gzip."""
    for entry in accept.split(","):
        coding, _, parameter = entry.strip().lower().partition(";")
        if coding.strip() in ("gzip", "*"):
            return _weight(parameter.strip().removeprefix("q=") or "1") > 0
    return False


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
