"""What a rule is about: its leading metric, the direction of the departure, and its cluster of evidence."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from rltriage.rules.model import Rule


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
    names = sorted(rule.when.metrics())
    return Symptom(names[0], None) if names else None


def _first_leaf(condition: Any) -> Any:
    """The first condition that is no combination of others, in the order of the file."""
    for name in ("all", "any", "of", "conditions", "when", "condition"):
        inner = getattr(condition, name, None) or getattr(condition, f"{name}_", None)
        if isinstance(inner, tuple) and inner and hasattr(inner[0], "metrics"):
            return _first_leaf(inner[0])
        if hasattr(inner, "metrics"):
            return _first_leaf(inner)
    return condition


def _leading_metric(leaf: Any) -> str | None:
    for name in ("metric", "falls", "falling", "grows", "left", "numerator", "metrics_"):
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
    if fields.get("falls") or fields.get("falling"):
        return "down"
    if fields.get("equals") == 0:
        return "zero"
    stated = fields.get("direction")
    if stated in ("up", "down"):
        return str(stated)
    up, down = fields.get("above") is not None, fields.get("below") is not None
    return None if up == down else ("up" if up else "down")
