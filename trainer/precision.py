"""Limits of the checks per precision, and the statistic of check 2 that separates numerics from a fault (exercise 5).

Source: `benchmarks/precision_gap.py` (reference policy, tables in `docs/probes.md`), a tiny TRL trainer under autocast for
the rest, and chapter 18.8 for what larger engines do (.03 nats per token in bf16). Nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rltriage.trainer.invariants import Measured, sampler_gap


def p99_gap(m: Measured) -> float:
    """99th percentile of |trainer - sampler| on trained tokens, or the largest gap at a record of exactly 0 if larger.

    In nats. A record of exactly 0 is the placeholder of a token that nobody sampled: one such token in a long completion
    escapes every percentile, and numerics do not produce it.
    """
    on = m.prepared.mask > 0
    recorded = m.batch.sample_logp[on]
    gap = (m.probe.logp(m.batch)[on] - recorded).abs().float()
    if not len(gap):
        return math.nan
    return max(float(gap.quantile(0.99)), float(gap[recorded == 0].amax()) if bool((recorded == 0).any()) else 0.0)


@dataclass(frozen=True, slots=True)
class Precision:
    """What check 2 measures and its limit in nats, and other limits by the number of the check."""

    gap: Callable[[Measured], float]
    gap_limit: float
    title: str
    limits: Mapping[int, float] = field(default_factory=dict)


COARSE_TITLE = "sampler = trainer log-prob (p99)"
PRECISIONS: Mapping[str, Precision] = {
    "fp32": Precision(sampler_gap, 1e-4, "sampler = trainer log-prob"),
    "fp16": Precision(p99_gap, 0.03, COARSE_TITLE, {6: 0.02, 12: 0.03, 13: 0.03, 14: 0.03}),
    "bf16": Precision(p99_gap, 0.3, COARSE_TITLE, {6: 0.02, 12: 0.3, 13: 0.3, 14: 0.3}),
}
