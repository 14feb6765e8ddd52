"""Speed and size of the engine: rows per second, tail latency, ratio to json.loads, bytes per run.

Times are CPU times of this thread, so that a busy machine changes them little.

python benchmarks/engine.py [--pack rules/packs/triage.yaml] [--rows 20000] [--metrics 40] [--runs 1000]

Without --pack a synthetic pack of 65 rules is measured that has the shapes of the shipped one. Rows are healthy: values
wander around plausible levels, so that every rule is judged at every row. The bars are in DESIGN section 10.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

from rltriage.engine.monitor import Monitor
from rltriage.engine.rows import Fact, Row, Run
from rltriage.rules.conditions.base import Condition
from rltriage.rules.conditions.departure import Departure
from rltriage.rules.conditions.divergence import Divergence
from rltriage.rules.conditions.logic import All, Any, Not
from rltriage.rules.conditions.nonfinite import Nonfinite
from rltriage.rules.conditions.race import Race
from rltriage.rules.conditions.repeated import Repeated
from rltriage.rules.conditions.rows import Rows
from rltriage.rules.conditions.spike import Spike
from rltriage.rules.conditions.terms import Term, Window, number
from rltriage.rules.conditions.threshold import Threshold
from rltriage.rules.conditions.trend import Trend
from rltriage.rules.conditions.trivial import Trivial
from rltriage.rules.model import Catalogue, Rule, RulePack

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
GROWING = (
    "logp_gap",
    "sampler_kl",
    "probs_diff_mean",
    "malformed",
    "hardcode",
    "truncated_frac",
    "entropy",
    "length",
    "turns",
)
LEVELLED = ("logp_gap", "ratio_max", "truncated_frac", "zero_adv_frac", "adv_abs_max", "kl_ref", "grad_norm", "clip_frac")


def synthetic_pack(size: int = 65) -> RulePack:
    """Rules of the shapes of the shipped pack, in about its proportions, over 40 metrics."""
    conditions: list[Condition] = []
    gain = Threshold(metric="reward", stat="gain_z", below=number(2.0))
    for metric in LEVELLED:
        conditions.append(Threshold(metric=metric, window=Window(5, min=3), above=number(40 * LEVELS[metric])))
        conditions.append(All((Rows(last=3), Threshold(metric=metric, at_least=number(20 * LEVELS[metric])))))
    for metric in GROWING:
        reach = number(2 * LEVELS[metric])
        conditions.append(Departure(metric=metric, factor=3.0, window=3, reach=reach))
        conditions.append(All((Departure(metric=metric, factor=4.0), gain)))
    for metric in ("approx_kl", "grad_norm", "kl_ref", "loss"):
        spike = Spike(metric=metric, floor=20 * LEVELS[metric])
        conditions += [spike, Repeated(spike, 2, 10), All((Repeated(spike, 2, 5), Any((gain, Not(gain)))))]
    for metric in ("kl_ref", "ratio_max", "ratio_mean", "clip_frac", "approx_kl"):
        conditions.append(Trivial(metric=metric, equals=0.0))
    for metric in ("entropy", "reads", "tests"):
        conditions.append(Race(falling=metric, rising="reward", ceiling=Term(config="reward_max")))
    for metric in ("reward", "pass_rate", "submitted"):
        conditions.append(Trend(metric=metric, direction="down", z=6.0, window=20))
        conditions.append(
            Trend(metric=metric, direction="down", window=8, from_start=True, z=8.0, ratio=0.5, monotone=True)
        )
        best = Term(metric=metric, stat="best", times=0.5)
        before = Term(metric=metric, window=Window(10, skip=3), plus=Term(metric=metric, stat="noise", times=-8.0))
        conditions.append(All((Threshold(metric=metric, stat="now", below=best), Threshold(metric=metric, above=before))))
    conditions.append(Divergence(left="length_fail", right="length_pass", mode="ratio", factor=1.5))
    conditions.append(Divergence(left="reward", right="pass_rate", by=Term(config="reward_max", times=0.2, default=1.0)))
    conditions.append(Nonfinite(ignored=("kl_*",)))
    return RulePack("synthetic", tuple(_rule(index, condition) for index, condition in enumerate(conditions[:size])))


def _rule(index: int, condition: Condition) -> Rule:
    return Rule(
        f"rule-{index}", "{reward} at {step}", "outcome", "warning", condition, {"mask_shift": 1.0}, "invariants", hold=2
    )


def lines(count: int, metrics: int, seed: int = 0) -> list[str]:
    """Rows of a healthy run as a JSONL file has them."""
    draw = random.Random(seed)
    names = list(LEVELS)[:metrics] + [f"extra_{index}" for index in range(metrics - len(LEVELS))]
    found = []
    for step in range(count):
        row: dict[str, float] = {"step": step, "time": 1.7e9 + step}
        for name in names:
            row[name] = LEVELS.get(name, 1.0) * (1.0 + 0.05 * draw.gauss(0.0, 1.0))
        found.append(json.dumps(row))
    return found


def read(lines: Sequence[str]) -> list[Row]:
    """The same rows as the engine takes them."""
    rows = []
    for line in lines:
        values = json.loads(line)
        rows.append(Row(values.pop("step"), values, values.pop("time")))
    return rows


def monitor(pack: RulePack, run: str = "bench") -> Monitor:
    """A monitor with the facts that most rules ask for."""
    facts = {name: Fact(value, "declared") for name, value in FACTS.items()}
    return Monitor(Run(run, facts=facts), pack, Catalogue({}, {}, {}))


FACTS = {"kl_coef": 0.04, "updates_per_batch": 4, "reward_max": 1.0, "has_critic": False, "max_length": 1024, "lr": 1e-5}


def speed(pack: RulePack, text: Sequence[str], repeats: int = 3) -> dict[str, float]:
    """The best of a few passes: rows/s, and the quantiles of single rows in microseconds."""
    rows = read(text)
    parse = min(_timed_parse(text) for _ in range(repeats))
    best, latencies, fired = float("inf"), [0.0], 0
    for _ in range(repeats):
        watched = monitor(pack)
        gc.collect()
        clock, taken = time.thread_time, []
        for row in rows:
            begin = clock()
            report = watched.observe(row)
            taken.append(clock() - begin)
            fired += len(report.alerts)
        if sum(taken) < best:
            best, latencies = sum(taken), sorted(taken)
    count = len(rows)
    return {
        "rows_per_s": count / best,
        "us_per_row": 1e6 * best / count,
        "p50_us": 1e6 * latencies[count // 2],
        "p99_us": 1e6 * latencies[int(0.99 * count)],
        "max_us": 1e6 * latencies[-1],
        "times_json": (best + parse) / parse,
        "alerts": fired / repeats,
    }


def _timed_parse(text: Sequence[str]) -> float:
    begin = time.thread_time()
    for line in text:
        json.loads(line)
    return time.thread_time() - begin


def size(pack: RulePack, text: Sequence[str], runs: int) -> float:
    """Bytes per run with full windows, beyond the rules themselves."""
    rows = read(text[:200])
    monitor(pack).observe(rows[0])
    gc.collect()
    tracemalloc.start()
    kept = []
    for index in range(runs):
        watched = monitor(pack, f"run-{index}")
        for row in rows:
            watched.observe(row)
        kept.append(watched)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / len(kept)


def main() -> None:
    """Print one line a measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pack", type=Path, help="a rule pack (default: a synthetic one)")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--metrics", type=int, default=40)
    parser.add_argument("--runs", type=int, default=1_000)
    options = parser.parse_args()
    pack = synthetic_pack()
    if options.pack is not None:
        from rltriage.rules.loader import load_rules

        pack = load_rules(options.pack)
    text = lines(options.rows, options.metrics)
    print(f"{len(pack.rules)} rules, {options.rows} rows of {options.metrics} metrics")
    for name, value in speed(pack, text).items():
        print(f"{name:12} {value:12.1f}")
    print(f"{'bytes_a_run':12} {size(pack, text, options.runs):12.0f}")


if __name__ == "__main__":
    main()
