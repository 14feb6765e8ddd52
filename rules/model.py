"""What a rule pack and the catalogues are once parsed: frozen data, no behaviour beyond reading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rltriage.rules.conditions.base import Condition

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
Group = Literal["outcome", "behavior", "optimizer", "consistency", "liveness"]
Tier = Literal["rows", "dump", "trainer"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file; line and column count from 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with one place of one file. `source` is the text of that line, for the caret."""

    mark: Mark
    code: str
    message: str
    hint: str = ""
    source: str = ""
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        lines = [f"{self.mark}: {self.level}: {self.message}"]
        if self.source:
            lines += [f"    {self.source}", "    " + " " * (self.mark.column - 1) + "^"]
        if self.hint:
            lines.append(f"    hint: {self.hint}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition plus what it means: one edge of the triage map.

    `requires` maps a config fact to its tests (`above`, `below`, `equals`, `not`, `in`, `known`); `hold` is the YAML key
    `for`. `suspects` maps fault ids to P(fault | rule); the first key is the strongest (the loader sorts).
    """

    id: str
    summary: str
    group: Group
    severity: Severity
    when: Condition
    suspects: Mapping[str, float]
    first_test: str
    requires: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unless: Condition | None = None
    hold: int = 1
    keep_firing_for: int = 0
    clear_when: Condition | None = None
    after: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    maturity: Literal["experimental", "stable"] = "stable"
    why: str = ""
    false_positives: str = ""
    references: tuple[str, ...] = ()
    mark: Mark | None = field(default=None, compare=False)
    pack: str = field(default="", compare=False)

    @property
    def metrics(self) -> frozenset[str]:
        """Every metric that the rule reads, in `when`, `unless` and `clear_when`."""
        parts = (self.when, self.unless, self.clear_when)
        return frozenset().union(*(part.metrics() for part in parts if part is not None))


@dataclass(frozen=True, slots=True)
class RulePack:
    """Rules in the order of their files, after `extends`, `override` and `disable` have been applied.

    `catalogue` is the shipped one with what the packs declare themselves; `warnings` are problems that do not stop loading.
    """

    name: str
    rules: tuple[Rule, ...]
    paths: tuple[str, ...] = ()
    catalogue: Catalogue = field(default_factory=lambda: Catalogue({}, {}, {}))
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """An entry of `rules/faults.yaml`. `number` is the chapter's (1 to 10) or None.

    `explains` lists symptoms that the fault causes downstream, as (metric, "up" | "down" | "zero");
    `excluded_when` maps config facts to the tests under which the fault is impossible (same form as `Rule.requires`);
    `failing_checks` are the invariants' ids that the fault makes fail (a row of the check-by-fault matrix), `may_fail`
    those that it makes fail in some set-ups only.
    """

    id: str
    title: str
    summary: str
    number: int | None = None
    prior: float = 0.0
    explains: tuple[tuple[str, str], ...] = ()
    excluded_when: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failing_checks: frozenset[str] = frozenset()
    may_fail: frozenset[str] = frozenset()
    signature: str = ""
    look_alikes: tuple[str, ...] = ()
    fix: str = ""
    action: Literal["continue", "stop", "roll back"] = "continue"
    first_test: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FirstTest:
    """An entry of `rules/first_tests.yaml`: the cheapest test that decides between a rule's suspects.

    `tier` says what it needs: `rows` the metrics alone, `dump` a recorded batch or sampled text, `trainer` a probe.
    `command` is a template with `{run}`; `check` is the number of the invariant that it runs, where it is one.
    """

    id: str
    title: str
    tier: Tier
    how: str
    command: str = ""
    check: int | None = None
    decides: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """An entry of `rules/metrics.yaml`: a canonical metric, what it means and its Prometheus name.

    `labels` are fixed label pairs of its series (outcome="correct" for `length_pass`); `informative` marks metrics whose
    exact value can be judged only once the policy can have moved.
    """

    name: str
    group: str
    unit: str
    help: str
    flags: str
    prometheus: str
    labels: Mapping[str, str] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None

    def within(self, low: float, high: float) -> tuple[float, float]:
        """What of a range the metric can have: a share of -0.2 is not healthy, it is impossible."""
        return low if self.low is None else max(low, self.low), high if self.high is None else min(high, self.high)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything that rules refer to by id."""

    faults: Mapping[str, Fault]
    first_tests: Mapping[str, FirstTest]
    metrics: Mapping[str, MetricInfo]
