"""Coverage: which faults the metrics that a run logs can reveal, which not, and which one metric would help most.

Everything follows from the rules: a fault can be named if a rule that suspects it can fire on these metrics under these
config facts. Source: issue 6, item 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import filter as matching
from typing import Literal, NamedTuple

from rltriage.engine.reference import needs_reference
from rltriage.engine.rows import Fact
from rltriage.rules.conditions.base import Condition
from rltriage.rules.conditions.logic import Any, Compound
from rltriage.rules.facts import judge
from rltriage.rules.model import Catalogue, Fault, Rule, RulePack

Level = Literal["named", "hinted", "hidden", "excluded"]
LEVELS: tuple[Level, ...] = ("named", "hinted", "hidden", "excluded")


@dataclass(frozen=True, slots=True)
class FaultCoverage:
    """What is known of one fault.

    `named`: a rule at warning or above that suspects it before all others can fire. `hinted`: only notes, second suspects,
    or rules that wait for a config fact. `hidden`: no rule can fire. `excluded`: the config rules the fault out.

    `rules` are those that can fire, the ones that name it first; `facts` the config facts that would make a hint a name;
    `missing` the fewest metrics with which a rule could name it (invariants only where nothing else would do), once
    `missing_facts` are known too. A fault that is `named` is so only in part where `closed` is not empty: these are metrics
    without which some of its signs can never be seen.
    """

    fault: Fault
    level: Level
    rules: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    missing_facts: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Addition:
    """A metric that is not logged, and the faults that could be named if it were."""

    metric: str
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """All faults of the catalogue, the metric to add, and what running the invariants would add."""

    faults: tuple[FaultCoverage, ...]
    best: Addition | None
    further: tuple[Addition, ...]
    invariants: tuple[str, ...]

    def at(self, level: Level) -> tuple[FaultCoverage, ...]:
        """The faults of one level."""
        return tuple(entry for entry in self.faults if entry.level == level)


class Needs(NamedTuple):
    """What a condition lacks on some metrics.

    `missing` are the fewest without which it can never hold. Where there are none, `closed` are those without which some
    branch of an `any` in it never can.
    """

    missing: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()


def needs(condition: Condition, seen: frozenset[str]) -> Needs:
    """What a condition lacks on the metrics `seen`; a shell pattern is lacking while nothing that matches it is seen."""
    if isinstance(condition, Compound):
        parts = [needs(part, seen) for part in condition.parts()]
        closed = frozenset[str]().union(*(part.closed for part in parts))
        if not isinstance(condition, Any):
            return Needs(frozenset[str]().union(*(part.missing for part in parts)), closed)
        lacked = [part.missing for part in parts if part.missing]
        if len(lacked) == len(parts):
            return Needs(_fewest(lacked), closed)
        return Needs(closed=closed.union(*lacked))
    if condition.every_row and condition.metrics() & seen:
        return Needs()
    return Needs(_fewest([frozenset(n for n in names if not matching(seen, n)) for names in condition.alternatives()]))


def _fewest(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return min(sets, key=lambda names: (len(names), sorted(names)), default=frozenset())


class _Judge:
    """The rules under one run's facts."""

    def __init__(self, pack: RulePack, facts: Mapping[str, Fact], reference: bool) -> None:
        self.facts: Mapping[str, object] = {name: fact.value for name, fact in facts.items()}
        self.rules: dict[str, list[tuple[Rule, tuple[str, ...]]]] = {}
        for rule in pack.rules:
            judgement = judge(rule.requires, self.facts)
            if judgement.holds is False or (not reference and needs_reference(rule.when)):
                continue
            for fault in rule.suspects:
                self.rules.setdefault(fault, []).append((rule, judgement.unknown))

    def cover(self, fault: Fault, seen: frozenset[str]) -> FaultCoverage:
        """One fault on the metrics `seen`."""
        if judge(fault.excluded_when, self.facts).holds and fault.excluded_when:
            return FaultCoverage(fault, "excluded")
        naming, able, facts, closed = [], [], dict[str, None](), set[str]()
        wanted: list[tuple[frozenset[str], tuple[str, ...]]] = []
        for rule, unknown in self.rules.get(fault.id, ()):
            (missing, part), names = needs(rule.when, seen), _names(rule, fault.id)
            if missing:
                wanted += [(missing, unknown)] if names else []
            elif names and not unknown:
                naming.append(rule.id)
                closed |= part
            else:
                able.append(rule.id)
                facts |= dict.fromkeys(unknown if names else ())
        if naming:
            return FaultCoverage(fault, "named", (*naming, *able), closed=tuple(sorted(closed)))
        missing, unknown = min(wanted, key=_effort, default=(frozenset(), ()))
        level: Level = "hinted" if able else "hidden"
        return FaultCoverage(fault, level, tuple(able), tuple(facts), tuple(sorted(missing)), unknown)


def _names(rule: Rule, fault: str) -> bool:
    """Whether a rule's alarm puts this fault first."""
    return rule.severity != "info" and next(iter(rule.suspects)) == fault


def _effort(wanted: tuple[frozenset[str], tuple[str, ...]]) -> tuple[int, bool, int]:
    """A metric is logged in a line, an invariant needs a probe of the trainer, and a fact may turn out against the rule."""
    missing, unknown = wanted
    return len(unknown), any(name.startswith("check_") for name in missing), len(missing)


def coverage(
    pack: RulePack,
    catalogue: Catalogue,
    metrics: Iterable[str],
    facts: Mapping[str, Fact],
    *,
    reference: bool = False,
    never: Sequence[str] = (),
) -> Coverage:
    """What a run that logs `metrics` under `facts` can reveal.

    `reference` says whether a healthy reference fits it; `never` are metrics that its framework cannot log, which are
    advised last.
    """
    judged, seen = _Judge(pack, facts, reference), frozenset(metrics)
    faults = tuple(judged.cover(fault, seen) for fault in catalogue.faults.values())
    open_ = [entry.fault for entry in faults if entry.level in ("hinted", "hidden")]
    lacked = {name for rule in pack.rules for name in needs(rule.when, seen).missing}
    checks = frozenset(name for name in lacked if name.startswith("check_"))

    def gained(more: frozenset[str]) -> tuple[str, ...]:
        return tuple(fault.id for fault in open_ if judged.cover(fault, seen | more).level == "named")

    additions = [Addition(name, gained(frozenset((name,)))) for name in sorted(lacked - checks)]
    order = list(catalogue.metrics)
    helpful = sorted(
        (each for each in additions if each.faults),
        key=lambda each: (
            each.metric in never,
            -len(each.faults),
            order.index(each.metric) if each.metric in order else 999,
        ),
    )
    return Coverage(faults, helpful[0] if helpful else None, tuple(helpful[1:]), gained(checks))
