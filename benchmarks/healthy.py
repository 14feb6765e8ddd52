"""Rows of a made-up run for the benchmarks: metrics wander around plausible levels, perhaps with a fault from halfway."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

LEVELS = {
    "reward": 0.5, "pass_rate": 0.5, "entropy": 0.6, "approx_kl": 0.002, "clip_frac": 0.05, "ratio_max": 1.4,
    "ratio_min": 0.7, "grad_norm": 0.4, "loss": 0.01, "lr": 1e-5, "kl_ref": 0.01, "zero_adv_frac": 0.3,
    "all_pass_frac": 0.15, "length": 400.0, "length_pass": 380.0, "length_fail": 420.0, "truncated_frac": 0.03,
    "turns": 4.0, "reads": 1.2, "tests": 0.9, "edits": 1.4, "malformed": 0.1, "hardcode": 0.02, "submitted": 0.9,
    "logp_gap": 0.015, "logp_gap_p99": 0.08, "logp_gap_max": 0.4, "probs_diff_mean": 0.006, "probs_diff_max": 0.5,
    "reward_std": 0.3, "adv_mean": 0.001, "adv_abs_max": 2.5, "ratio_mean": 1.001, "is_ratio_mean": 1.002,
    "sampler_kl": 0.001, "approx_kl_max": 0.01, "grad_norm_max": 0.9, "length_max": 900.0, "n_episodes": 64.0,
    "n_groups": 8.0,
}  # fmt: skip
"""Where each metric of a healthy run lies."""
FACTS = {"kl_coef": 0.04, "updates_per_batch": 4, "reward_max": 1.0, "has_critic": False, "max_length": 1024, "lr": 1e-5}
"""The configuration that most rules ask for."""
DRIFT = {"length": 1.5, "length_fail": 2.0, "kl_ref": 60.0, "truncated_frac": 8.0, "reward": -0.7, "pass_rate": -0.7}
"""How much more there is of each metric, as a share of its level, at the end of a run that goes wrong halfway."""
NOISE = 0.05


def lines(count: int, metrics: int = len(LEVELS), seed: int = 0, *, drifting: bool = False) -> Iterator[str]:
    """A JSONL file of a run; with `drifting`, failing answers grow and the policy leaves its reference halfway."""
    draw = random.Random(seed)
    names = list(LEVELS)[:metrics] + [f"extra_{index}" for index in range(metrics - len(LEVELS))]
    for step in range(count):
        late = max(0.0, 2.0 * step / count - 1.0) if drifting else 0.0
        row: dict[str, float] = {"step": step, "time": 1.7e9 + step}
        for name in names:
            level = LEVELS.get(name, 1.0) * (1.0 + late * DRIFT.get(name, 0.0))
            row[name] = level * (1.0 + NOISE * draw.gauss(0.0, 1.0))
        yield json.dumps(row)
