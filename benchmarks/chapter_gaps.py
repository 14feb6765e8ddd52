"""Runs behind "Why some of it differs" in docs/chapter.md: `python benchmarks/chapter_gaps.py [--seeds 0-4]`.

Three numbers do not come out like the chapter's: the turns under a flipped sign, the entropy at ten times the learning
rate, and the reward under a temperature mismatch. Each is rerun with one thing changed at a time: more seeds, the shipped
base with the chapter's entropy at step 0 (its head scaled), and smaller learning rates. Writes docs/chapter-gaps.json, from
which `make chapter` and `make chapter-page` write the section.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from rltriage.engine.rundir import write_atomically
from rltriage.recorded import machine
from rltriage.trainer import TrainConfig, faulty_config, train
from rltriage.trainer.chapter import ends, parse_seeds, sources_hash
from rltriage.trainer.gym import make_tasks
from rltriage.trainer.policy import Policy, load_base
from rltriage.trainer.sampling import sample_batch

ROOT = Path(__file__).parents[1]
CHAPTER_ENTROPY = 0.565  # of the chapter's base at step 0
KEPT = ("reward", "turns", "entropy", "malformed", "reads", "submitted", "hardcode", "approx_kl")
STEPS = {"sign_flip": 8, "lr_too_high": 8, "temperature_mismatch": 24}
Case = tuple[str, str, TrainConfig, Sequence[int]]  # base, fault, configuration, seeds


def cases(seeds: Sequence[int], more: Sequence[int]) -> Iterator[Case]:
    """What is run: the cheap ones first."""
    for fault in STEPS:
        yield "shipped", fault, TrainConfig(), more if fault != "temperature_mismatch" else seeds
    for lr in (3e-3, 5e-3):
        yield "shipped", "lr_too_high", TrainConfig(lr=lr), seeds[:3]
    for fault in ("sign_flip", "lr_too_high"):
        yield "chapter's entropy", fault, TrainConfig(), seeds[:3]


@functools.cache
def base_policy(name: str) -> Policy:
    """The policy that a case starts from."""
    return load_base() if name == "shipped" else hotter(load_base(), CHAPTER_ENTROPY)


def hotter(policy: Policy, entropy: float) -> Policy:
    """The policy with its head scaled down until its entropy on its own samples is `entropy` (bisection)."""
    head, low, high = policy.head.weight.detach().clone(), 0.4, 1.0
    for _ in range(8):
        middle = (low + high) / 2
        with torch.no_grad():
            policy.head.weight.copy_(head * middle)
        low, high = (low, middle) if entropy_of(policy) < entropy else (middle, high)
    return policy


def entropy_of(policy: Policy) -> float:
    """Mean entropy on the policy's tokens of one sampled batch, nats."""
    batch = sample_batch(policy, make_tasks("train"), TrainConfig(), torch.Generator().manual_seed(0))
    with torch.no_grad():
        logs = policy(batch.ids)[:, :-1].log_softmax(-1)
    return float((-(logs.exp() * logs).sum(-1) * batch.mask).sum() / batch.mask.sum())


def summary(rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Means over the first and the last four steps, to four digits, and the last held-out pass rate."""
    parts = {key: ends(rows, key) for key in KEPT}
    first, last = ({key: float(f"{pair[i]:.4g}") for key, pair in parts.items()} for i in (0, 1))
    return {"first": first, "last": last, "held_out": rows[-1]["eval_pass"]}


def main() -> None:
    """Run what is missing in the cache, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=parse_seeds, default=parse_seeds("0-4"))
    parser.add_argument("--more", type=parse_seeds, default=parse_seeds("0-9"), help="seeds of the short runs")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "chapter-gaps")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "chapter-gaps.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sources = sources_hash()
    folder = options.cache / sources
    folder.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    for base, fault, config, seeds in cases(options.seeds, options.more):
        lr = faulty_config(config, fault).lr
        for seed in seeds:
            file = folder / f"{base}-{fault}-{lr}-{seed}.json".replace(" ", "_").replace("'", "")
            if not file.exists():
                policy = copy.deepcopy(base_policy(base))
                rows = [
                    r.metrics
                    for r in train(config, fault=fault, steps=STEPS[fault], seed=seed, policy=policy, checks=False)
                ]
                write_atomically(file, json.dumps([dict(row.metrics) for row in rows]))
                print(file.name, file=sys.stderr, flush=True)
            found.append({"base": base, "fault": fault, "lr": lr, "seed": seed, **summary(json.loads(file.read_text()))})
    about = {
        "sources": sources,
        "made": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine(),
        "command": "python benchmarks/chapter_gaps.py",
    }
    runs = ",\n  ".join(json.dumps(run) for run in found)
    write_atomically(options.out, json.dumps(about, indent=1)[:-2] + f',\n "runs": [\n  {runs}\n ]\n}}\n')
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
