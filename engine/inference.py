"""Config facts that the rows themselves give away (DESIGN section 3: declared > logged > inferred > unknown)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isfinite

from rltriage.engine.rows import Fact
from rltriage.rules.facts import CONFIG_FACTS

STATED = frozenset(CONFIG_FACTS) - {"lr", "steps"}
"""Facts that count as logged where a row has a metric of that name; `lr` is a metric of its own."""
INFERABLE = frozenset({"kl_term", "updates_per_batch"})
"""Facts that `inferred` can find in the values of rows."""
OFF_ONE = 1e-3
"""A ratio further from 1 than rounding comes from an update between sampling and loss."""


def stated(names: tuple[str, ...], metrics: Mapping[str, float], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """The facts that this row states and that nobody declared, where they are new or have changed."""
    found = {}
    for name in names:
        fact = facts.get(name)
        if fact is None or (fact.provenance != "declared" and fact.value != metrics[name]):
            found[name] = Fact(metrics[name], "logged", "in the rows")
    return found


def inferred_by_name(names: Iterable[str]) -> dict[str, Fact]:
    """What the names of a run's metrics prove: a logged explained variance or value loss means that there is a critic."""
    seen = [name for name in ("explained_variance", "value_loss") if name in names]
    return {"has_critic": Fact(True, "inferred", f"{seen[0]} is logged")} if seen else {}


def inferred(metrics: Mapping[str, float], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """What this row proves about facts that are still unknown."""
    found = {}
    if "kl_term" not in facts and isfinite(kl := metrics.get("kl_ref", 0.0)) and kl != 0.0:
        found["kl_term"] = Fact(True, "inferred", "kl_ref is not 0")
    if "updates_per_batch" not in facts and not _off_policy(facts):
        ratio = metrics.get("ratio_max", 1.0)
        if OFF_ONE < abs(ratio - 1.0) < inf:
            found["updates_per_batch"] = Fact(2, "inferred", f"ratio_max is {ratio:.4g}: at least 2")
    return found


def _off_policy(facts: Mapping[str, Fact]) -> bool:
    """Whether the ratio leaves 1 without a second update: stale samples, or the sampler's own log-probabilities."""
    lag, source = facts.get("async_lag"), facts.get("old_logp_source")
    return (lag is not None and lag.value not in (0, None)) or (source is not None and source.value == "sampler")
