"""What the schema cannot say about a rule: the ids that it refers to exist, its summary reads what the rule reads."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from rltriage.rules import templates
from rltriage.rules.facts import CONFIG_FACTS
from rltriage.rules.model import Catalogue, Problem, Rule, RulePack
from rltriage.rules.validate import NEAR, capped, closest, meant
from rltriage.rules.yamlmarks import Node

_FOREIGN = re.compile(r"[/.:]")  # frameworks' own names (`actor/entropy`); canonical names have none of these
_CHECK, _VALUE = "check_", "_value"  # an invariant's results
_CONDITIONS = ("when", "unless", "clear_when")


def check_rule(rule: Rule, node: Node, catalogue: Catalogue) -> list[Problem]:
    """Errors for a summary that cannot be filled, warnings for metrics and facts that nobody may ever log."""
    facts = rule_facts(rule)
    return [*_metrics(rule, node, catalogue), *_facts(rule, facts, node), *_summary(rule, facts, node)]


def check_ids(node: Node, catalogue: Catalogue) -> list[Problem]:
    """The faults and the first test that a rule refers to must exist. Works on rules that have other mistakes too."""
    return [*_suspects(node, catalogue), *_first_test(node, catalogue)]


def slips(pack: RulePack) -> list[str]:
    """A line for each metric or config fact of a pack that looks misspelt: no error, as a trainer may call something so.

    What is far from every known name is the user's own, and no slip.
    """
    return [f"{each.mark}: {each.message}; {each.hint}" for each in pack.warnings if each.hint.startswith(NEAR)]


def rule_facts(rule: Rule) -> frozenset[str]:
    """The config facts that a rule reads, in `requires` and in its conditions."""
    read = {fact for part in (rule.when, rule.unless, rule.clear_when) for fact in _facts_in(part)}
    return frozenset(read | set(rule.requires))


def _facts_in(value: Any) -> Iterator[str]:
    """The facts in a condition: every operand's `config`."""
    if isinstance(value, tuple):
        for item in value:
            yield from _facts_in(item)
    elif hasattr(value, "__dataclass_fields__"):
        cls: Any = type(value)
        for name in _names(cls):
            below = getattr(value, name)
            if name == "config" and isinstance(below, str):
                yield below.split(".")[0]
            elif not isinstance(below, str | int | float | None):
                yield from _facts_in(below)


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _suspects(node: Node, catalogue: Catalogue) -> Iterator[Problem]:
    suspects = node.get("suspects")
    if suspects is None:
        return
    unknown = [suspects.key(fault) for fault in suspects.entries if fault not in catalogue.faults]
    yield from capped(unknown, lambda key: _unknown_fault(str(key.value), key, catalogue))
    weights = [weight.value for weight in suspects.entries.values() if isinstance(weight.value, int | float)]
    if sum(weights) > 1 + 1e-6 and max(weights) <= 1:
        message = f"the suspects add up to {sum(weights):.4g}"
        yield node.key("suspects").problem("range", message, "they are probabilities of one cause: at most 1 together")


def _unknown_fault(fault: str, key: Node, catalogue: Catalogue) -> Problem:
    hint = closest(fault, catalogue.faults) or "declare your own under `faults:`"
    return key.problem("unknown", f"there is no fault `{fault}`", hint)


def _first_test(node: Node, catalogue: Catalogue) -> Iterator[Problem]:
    test = node.get("first_test")
    if test is not None and isinstance(test.value, str) and test.value not in catalogue.first_tests:
        hint = closest(test.value, catalogue.first_tests) or "declare your own under `first_tests:`"
        yield test.problem("unknown", f"there is no first test `{test.value}`", hint)


def _metrics(rule: Rule, node: Node, catalogue: Catalogue) -> Iterator[Problem]:
    """An unknown name is a warning: a trainer may log it, and the row then has it under exactly this name."""
    for metric in sorted(rule.metrics):
        if is_known_metric(metric, catalogue):
            continue
        near = _near_metric(metric, catalogue)
        if metric.startswith(_CHECK) and not near:  # an invariant of somebody's own
            continue
        hint = f"{near.rstrip('?')}? " if near else ""
        hint += f"if your trainer logs it under this name, add `metrics: {{{metric}: {{}}}}` to the pack"
        yield _place(node, metric).problem("metric", f"the metric `{metric}` is not in the catalogue", hint, "warning")


def is_known_metric(metric: str, catalogue: Catalogue) -> bool:
    """Whether a name is canonical, declared, an invariant's result, or plainly a framework's own."""
    if metric in catalogue.metrics or _FOREIGN.search(metric) is not None:
        return True
    return metric.startswith(_CHECK) and _invariant(metric) in _invariants(catalogue)


def _near_metric(metric: str, catalogue: Catalogue) -> str:
    """The hint for a name that is nearly a known one, or an empty text."""
    if not metric.startswith(_CHECK):
        return closest(metric, catalogue.metrics)
    near = meant(_invariant(metric), _invariants(catalogue))
    value = _VALUE if metric.endswith(_VALUE) else ""
    return f"{NEAR} `{_CHECK}{near}{value}`?" if near else ""


def _invariant(metric: str) -> str:
    """`mask_is_policy_tokens` for `check_mask_is_policy_tokens_value`."""
    return metric.removeprefix(_CHECK).removesuffix(_VALUE)


def _invariants(catalogue: Catalogue) -> frozenset[str]:
    """The invariants that some fault makes fail."""
    return frozenset[str]().union(*(fault.failing_checks | fault.may_fail for fault in catalogue.faults.values()))


def _place(node: Node, name: str) -> Node:
    """Where a rule's conditions name something."""
    for part in _CONDITIONS:
        below = node.get(part)
        for found in below.walk() if below is not None else ():
            if found.kind == "scalar" and found.value == name:
                return found
    return node.at("when")


def _facts(rule: Rule, facts: frozenset[str], node: Node) -> Iterator[Problem]:
    for fact in sorted(facts - set(CONFIG_FACTS)):
        place = node.at("requires").key(fact) if fact in rule.requires else _place(node, fact)
        hint = closest(fact, CONFIG_FACTS) or f"it must then be declared with --config {fact}=..."
        yield place.problem("fact", f"`{fact}` is not one of the known config facts", hint, "warning")


def _summary(rule: Rule, facts: frozenset[str], node: Node) -> Iterator[Problem]:
    """Every field of the summary is a metric that the rule reads, a config fact, `observations` or `step`."""
    place = node.at("summary")
    try:
        names = templates.fields(rule.summary)
    except ValueError as error:
        yield place.problem("summary", f"the summary cannot be filled: {error}")
        return
    dotted = {f"config.{fact}" for fact in facts | set(CONFIG_FACTS)}
    known = {*rule.metrics, *templates.BUILT_IN, *dotted}
    for name in names:
        if name not in known and ".".join(name.split(".")[:2]) not in dotted:
            readable = [*sorted(rule.metrics), *templates.BUILT_IN, "config.<fact>"]
            hint = closest(name, known) or f"the rule reads {', '.join(readable)}"
            yield place.problem("summary", f"the summary uses {{{name}}}, which the rule does not read", hint)
