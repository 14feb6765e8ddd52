"""What watching costs a training loop: time per `run.log`, with the shipped rules, the run's directory and the endpoint on.

`wall` is what the loop waits; on a machine that others use it holds their time slices too, `cpu` does not.

    python benchmarks/hooks.py [--rows 20000] [--metrics 40] [--limit-ms 0.5]

Prints one JSON object; exits 1 where the 99th percentile is over the limit (DESIGN section 10: 0.5 ms a step).
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import tempfile
import time
from typing import Any

import rltriage

CANONICAL = [
    "reward",
    "pass_rate",
    "entropy",
    "approx_kl",
    "clip_frac",
    "ratio_max",
    "ratio_min",
    "ratio_mean",
    "grad_norm",
    "loss",
    "lr",
    "kl_ref",
    "zero_adv_frac",
    "all_pass_frac",
    "all_fail_frac",
    "length",
    "length_pass",
    "length_fail",
    "length_max",
    "truncated_frac",
    "turns",
    "reads",
    "malformed",
    "submitted",
    "logp_gap",
    "logp_gap_max",
    "probs_diff_mean",
    "adv_mean",
    "adv_min",
    "adv_max",
    "reward_std",
    "is_ratio_mean",
    "sampler_kl",
    "n_episodes",
]


def row(step: int, names: list[str], noise: random.Random) -> dict[str, float]:
    """One row of a healthy run: every metric varies by a tenth around a level of its own."""
    levels = {"entropy": 1.5, "length": 400.0, "length_max": 900.0, "ratio_max": 1.3, "ratio_min": 0.8, "ratio_mean": 1.0}
    small = {"approx_kl": 1e-3, "kl_ref": 1e-3, "adv_mean": 1e-4, "logp_gap": 1e-3, "sampler_kl": 1e-4, "lr": 1e-6}
    level = {name: levels.get(name, small.get(name, 0.2)) for name in names}
    return {name: level[name] * (1 + 0.1 * (noise.random() - 0.5)) for name in names}


def measure(rows: int, metrics: int, directory: str | None, listen: int | None) -> dict[str, float]:
    """Milliseconds of `log` over `rows` rows, the first 100 apart: they build what the rest reuse."""
    noise = random.Random(1)
    names = CANONICAL[:metrics] + [f"extra/metric_{number}" for number in range(max(0, metrics - len(CANONICAL)))]
    made = [row(step, names, noise) for step in range(rows)]
    config = {"kl_coef": 0.05, "updates_per_batch": 2}
    wall: list[float] = []
    cpu: list[float] = []
    with rltriage.watch("bench", config=config, directory=directory, listen=listen, quiet=True) as run:
        gc.collect()
        for step, values in enumerate(made):
            at, used = time.perf_counter(), time.thread_time()
            run.log(step, values)
            cpu.append((time.thread_time() - used) * 1e3)
            wall.append((time.perf_counter() - at) * 1e3)
        errors = run.errors
    return percentiles("wall", wall[100:]) | percentiles("cpu", cpu[100:]) | {"first_row_ms": wall[0], "errors": errors}


def percentiles(what: str, took: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    took = sorted(took)
    points = {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "max": took[-1]}
    return {f"{what}_{name}_ms": round(value, 4) for name, value in points.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--metrics", type=int, default=40)
    parser.add_argument("--limit-ms", type=float, default=0.5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        full = measure(options.rows, options.metrics, folder, 0)
    result: dict[str, Any] = {
        "rows": options.rows,
        "metrics": options.metrics,
        "rules_directory_endpoint": full,
        "rules_only": measure(options.rows, options.metrics, None, None),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "limit_ms": options.limit_ms,
    }
    print(json.dumps(result, indent=2))
    return int(full["wall_p99_ms"] > options.limit_ms)


if __name__ == "__main__":
    sys.exit(main())
