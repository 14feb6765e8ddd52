"""Runs behind docs/probes.md, "Thresholds per precision": `python benchmarks/precision_gap.py [--seeds 8]`.

An fp32 trainer against a sampler in fp32, fp16 or bf16 of the same weights: nothing else wrong, the loss mask shifted by
one, the last token of each episode lost, and the sampler at temperature .7. Ranges are over batches of 64 episodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from torch import Tensor

from rltriage.trainer import train
from rltriage.trainer.gym import make_tasks
from rltriage.trainer.loop import prepare, trainer_logps
from rltriage.trainer.losses import token_logps
from rltriage.trainer.policy import Policy, load_base
from rltriage.trainer.probe import CHECKED
from rltriage.trainer.sampling import Batch, sample_groups

COLUMNS = ("mean", "median", "p90", "p99", "max", "share > .5", "share > 1", "placeholders")
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def engine_logp(policy: Policy, batch: Batch, dtype: torch.dtype, temperature: float = 1.0) -> Tensor:
    """What a sampler in `dtype` records `[B, T-1]`: 0 on tokens that the environment wrote. In fp32: what it did record."""
    if dtype == torch.float32 and temperature == 1:
        return batch.sample_logp
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        logits = policy(batch.ids)[:, :-1]
    return torch.where(batch.mask > 0, token_logps(logits.float() / temperature, batch.ids), 0.0)


def statistics(own: Tensor, recorded: Tensor, mask: Tensor) -> Tensor:
    """The columns of one batch; a placeholder is a record of exactly 0 that the trainer gives a probability below .99."""
    on = mask > 0
    gap = (own - recorded).abs()[on]
    placeholders = ((recorded[on] == 0) & (own[on] < -0.01)).float().mean()
    quantiles = gap.quantile(torch.tensor([0.5, 0.9, 0.99]))
    shares = [(gap > limit).float().mean() for limit in (0.5, 1.0)]
    return torch.stack([gap.mean(), *quantiles, gap.max(), *shares, placeholders])


def cases(policy: Policy, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Name and statistics of every case on one batch."""
    batch = sample_groups(policy, make_tasks("train")[:8], CHECKED, torch.Generator().manual_seed(seed))
    own = trainer_logps(policy, batch.ids, CHECKED)
    for name, dtype in DTYPES.items():
        recorded = engine_logp(policy, batch, dtype)
        yield f"{name}, healthy", statistics(own, recorded, batch.mask)
        for fault in ("mask_shift", "eos_mismatch"):
            yield f"{name}, {fault}", statistics(own, recorded, prepare(policy, batch, CHECKED, fault).mask)
        yield f"{name}, T = .7", statistics(own, engine_logp(policy, batch, dtype, 0.7), batch.mask)


def main() -> None:
    """Print one line a case: the smallest and the largest value of each statistic over batches and both policies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    trained = load_base()
    train(steps=24, policy=trained, checks=False, eval_tasks=())
    found: dict[str, list[Tensor]] = {}
    for policy in (load_base(), trained):
        for seed in range(seeds):
            for name, values in cases(policy, seed):
                found.setdefault(name, []).append(values)
    print(f"| case | {' | '.join(COLUMNS)} |")
    for name, parts in found.items():
        low, high = torch.stack(parts).min(0).values.tolist(), torch.stack(parts).max(0).values.tolist()
        print(f"| {name} | " + " | ".join(f"{a:.2g} to {b:.2g}" for a, b in zip(low, high, strict=True)) + " |")


if __name__ == "__main__":
    main()
