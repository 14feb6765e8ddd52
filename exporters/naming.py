"""Names and labels as Prometheus wants them: families for metrics, bounded and escaped label values.

Source: DESIGN section 8. A name that the catalogue does not know becomes `rltriage_extra_<name>`; two names that would
share one family are a collision, and the later one is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from rltriage.rules.model import MetricInfo

Kind = Literal["gauge", "counter", "info"]
Labels = tuple[tuple[str, str], ...]

MAX_VALUE = 128
"""Characters of a label value; a longer one is cut and ends in a hash of the whole, so that two long ids stay apart."""
MAX_LABELS = 16
"""Labels of its own that a run may carry; the rest is dropped."""
OWN_LABELS = frozenset(
    {
        "run",
        "rule",
        "severity",
        "fault",
        "first_test",
        "outcome",
        "check",
        "group",
        "alertname",
        "state",
        "to",
        "reason",
        "le",
        "bound",
        "best_test",
        "action",
    }
)
_TAKEN_SUFFIX = re.compile(r"_(total|info|sum|count|bucket|created|gsum|gcount)$")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_FIXED_LABELS = OWN_LABELS - {"outcome", "check"}
"""What no metric may have as a label of its own: `run` would make two runs one series."""
_OUR_FAMILIES = re.compile(
    r"rltriage_((alerts?|build|evaluation|exporter|extra|healthy|heldout_evaluation|incident|journal|last_row|notifications?"
    r"|outbox|receiver|rows?|rules?|run|sources?|training)_.*|rows)"
)
"""Families that say how a run or rltriage itself fares. A metric of that name would make the scrape unreadable."""
_HELP_LENGTH = 200


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A metric family, compared by identity, because a scrape looks up thousands.

    `name` is without the suffix that its type adds to samples (`_total`, `_info`).
    """

    name: str
    kind: Kind
    help: str

    @property
    def sample_name(self) -> str:
        """The name that its samples carry in both formats."""
        return self.name + {"gauge": "", "counter": "_total", "info": "_info"}[self.kind]


class Series:
    """One time series: its family, its labels, and `head`, the text of its line up to the value."""

    __slots__ = ("family", "head", "labels")

    def __init__(self, family: Family, labels: Labels) -> None:
        self.family = family
        self.labels = labels
        body = ",".join(f"{name}={quoted(value)}" for name, value in labels)
        self.head = f"{family.sample_name}{{{body}}} " if body else f"{family.sample_name} "


class Names:
    """Finds the family of a metric. Not thread-safe: the exporter asks only while it renders, under its lock."""

    def __init__(self, metrics: Mapping[str, MetricInfo], max_extra: int = 500) -> None:
        self._exact: dict[str, tuple[Family, Labels]] = {}
        self._patterns: list[tuple[re.Pattern[str], Family, tuple[str, ...]]] = []
        self._healthy: dict[Family, Family] = {}
        self._extra: dict[str, str] = {}
        self._max_extra = max_extra
        self.collisions: set[str] = set()
        self.over_limit = 0
        self.not_numbers = 0
        families: dict[str, Family] = {}
        taken: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        for info in metrics.values():
            series = info.prometheus, frozenset(info.labels.items())
            if not _is_usable(info) or series in taken:
                continue  # a pack declares it without a name, or with one that will not do: exported as an unknown one is
            taken.add(series)
            family = families.setdefault(info.prometheus, Family(info.prometheus, "gauge", info.help))
            if "<id>" in info.name:
                pattern = re.compile(re.escape(info.name).replace("<id>", "([a-z0-9_]+?)"))
                self._patterns.append((pattern, family, tuple(info.labels)))
            else:
                self._exact[info.name] = (family, tuple(info.labels.items()))
        # `check_<id>_value` before `check_<id>`, which would match it too.
        self._patterns.sort(key=lambda entry: -len(entry[0].pattern))

    def find(self, metric: str) -> tuple[Family, Labels] | None:
        """The family and fixed labels of a metric; None for a collision or beyond the limit, both of which are counted."""
        found = self._exact.get(metric)
        if found is not None:
            return found
        for pattern, family, labels in self._patterns:
            match = pattern.fullmatch(metric)
            if match:
                return family, tuple((label, match[1]) for label in labels)
        return self._unmapped(metric)

    def healthy(self, metric: str) -> tuple[Family, Labels] | None:
        """The family of a canonical metric's healthy range, and the metric's fixed labels."""
        found = self._exact.get(metric)
        if found is None or found[0].name.startswith("rltriage_extra_"):
            return None
        family = self._healthy.get(found[0])
        if family is None:
            name = found[0].name.replace("rltriage_", "rltriage_healthy_", 1)
            family = self._healthy[found[0]] = Family(name, "gauge", f"Healthy range at this step: {found[0].help}")
        return family, found[1]

    def _unmapped(self, metric: str) -> tuple[Family, Labels] | None:
        name = "rltriage_extra_" + metric_name(metric)
        owner = self._extra.get(name)
        if owner is None:
            if len(self._extra) >= self._max_extra:
                self.over_limit += 1
                return None
            self._extra[name] = owner = metric
        if owner != metric:
            if len(self.collisions) < self._max_extra:
                self.collisions.add(metric)
            return None
        found = Family(name, "gauge", f"Metric {metric[:_HELP_LENGTH]!r} as logged"), ()
        self._exact[metric] = found
        return found


def _is_usable(info: MetricInfo) -> bool:
    """Whether Prometheus can take the metric under the name and labels that it declares, beside what is ours."""
    free = not any(label in _FIXED_LABELS or label.startswith("__") for label in info.labels)
    return (
        free and all(map(_NAME.fullmatch, (info.prometheus, *info.labels))) and not _OUR_FAMILIES.fullmatch(info.prometheus)
    )


def metric_name(name: str) -> str:
    """A logged name as the rest of a Prometheus name: lower case, other characters as one `_`, no suffix of a type."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:MAX_VALUE] or "unnamed"
    return plain + "_value" if _TAKEN_SUFFIX.search("_" + plain) else plain


def label_value(value: object) -> str:
    """A label value of at most MAX_VALUE characters that UTF-8 can carry; a changed one ends in a hash of the original."""
    original = str(value)
    text = original.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= MAX_VALUE and text == original:
        return text
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: MAX_VALUE - 9]}~{digest[:8]}"


def run_labels(run: str, labels: Iterable[tuple[str, object]], limit: int = MAX_LABELS) -> Labels:
    """`run` and the run's own labels, as `free_labels` has them."""
    return (("run", label_value(run)), *free_labels(labels, limit))


def free_labels(labels: Iterable[tuple[str, object]], limit: int = MAX_LABELS) -> Labels:
    """The labels of a run or a rule: names made valid, empty values left out, at most `limit`.

    A name that is one of ours gets `label_` before it, in gauges, notifications and compiled rules alike.
    """
    found: dict[str, str] = {}
    for name, value in labels:
        plain = re.sub(r"[^a-zA-Z0-9_]+", "_", str(name)).strip("_")[:MAX_VALUE]
        if not plain or str(value) == "":
            continue
        if plain in OWN_LABELS or plain[0].isdigit():
            plain = "label_" + plain
        if len(found) < limit:
            found.setdefault(plain, label_value(value))
    return tuple(found.items())


def number(value: float) -> str:
    """A sample value as both formats write it."""
    if value - value == 0.0:
        return repr(float(value))
    return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"


def quoted(value: str) -> str:
    """A label value as the expositions and PromQL write it."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'"{escaped}"'
