"""What a rule is about: its leading metric, the direction of the departure, and its cluster of evidence."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from rltriage.engine.perpack import PerPack
from rltriage.rules.model import Rule, RulePack


class Symptom(NamedTuple):
    """A metric that departs `up`, `down` or to `zero`; None where the condition does not say which way."""

    metric: str
    direction: str | None


_CLUSTERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("invariants", ("check_",)),
    ("exploration", ("entropy", "reads", "zero_adv", "all_fail", "all_pass")),
    ("optimizer", ("grad_norm", "clip_frac", "ratio_", "approx_kl")),
    ("sampler", ("logp_", "probs_diff", "sampler_kl", "is_ratio")),
    ("length", ("length", "truncated", "turns")),
    ("outcome", ("reward", "pass_rate", "eval_pass", "submitted", "hardcode")),
)


def cluster(metric: str) -> str:
    """The cluster of metrics that move together; a metric outside all of them is its own."""
    return next((name for name, heads in _CLUSTERS if metric.startswith(heads)), metric)


def symptom(rule: Rule) -> Symptom | None:
    """What the first part of `when` is about: rule authors write the symptom first and what qualifies it after."""
    leaf = _first_leaf(rule.when)
    metric = _leading_metric(leaf)
    if metric is not None:
        return Symptom(metric, _direction(leaf))
    names = sorted(rule.when.metrics()) or list(leaf.patterns() if hasattr(leaf, "patterns") else ())
    return Symptom(names[0], None) if names else None


def _symptoms(pack: RulePack) -> dict[str, Symptom | None]:
    return {rule.id: symptom(rule) for rule in pack.rules}


symptoms_of = PerPack(_symptoms)
"""The symptom of each rule of a pack, by the rule's id."""


def _first_leaf(condition: Any) -> Any:
    """The first condition that is no combination of others, in the order of the file."""
    if dataclasses.is_dataclass(condition):
        for field in dataclasses.fields(condition):
            inner = getattr(condition, field.name)
            first = inner[0] if isinstance(inner, tuple) and inner else inner
            if hasattr(first, "metrics") and hasattr(first, "bind") and hasattr(first, "kind"):
                return _first_leaf(first)
    return condition


def _leading_metric(leaf: Any) -> str | None:
    for name in ("metric", "falling", "left", "training", "total"):
        value = getattr(leaf, name, None)
        if isinstance(value, str):
            return value
        inner = getattr(value, "metric", None)
        if isinstance(inner, str):
            return inner
    return None


def _direction(leaf: Any) -> str | None:
    """Read from the parameters that are set: a limit `above` is a metric that went up."""
    fields = {field.name: getattr(leaf, field.name) for field in dataclasses.fields(leaf)}
    if "falling" in fields:
        return "down"
    equals = fields.get("equals")
    if equals is not None and getattr(equals, "value", equals) == 0:
        return "zero"
    stated = fields.get("direction") or {"above": "up", "below": "down"}.get(fields.get("side") or "")
    if stated in ("up", "down"):
        return str(stated)
    up = any(fields.get(name) is not None for name in ("above", "at_least", "floor"))
    down = any(fields.get(name) is not None for name in ("below", "at_most"))
    return None if up == down else ("up" if up else "down")
