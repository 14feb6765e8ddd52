"""Runs behind docs/exercises.md: `python benchmarks/trainer_exercises.py [1 2 3 4 5 6] [--seeds 0-2] [--processes 2]`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median

import torch

from rltriage.trainer import (
    FlightRecorder,
    TrainConfig,
    list_recordings,
    loop,
    reference_probe,
    replay_step,
    run_checks,
    train,
)
from rltriage.trainer.chapter import ends, parse_seeds, rare_tokens
from rltriage.trainer.gym import make_tasks
from rltriage.trainer.losses import kl_k3, masked_mean, token_logps
from rltriage.trainer.policy import Policy, load_base
from rltriage.trainer.probe import CHECKED
from rltriage.trainer.sampling import evaluate, sample_batch, sample_groups

SEEDS = [0, 1, 2]


def temperature_run(arguments: tuple[str | None, float, int]) -> list[dict[str, float]]:
    """One run with both sides at a temperature, or with the sampler alone at it."""
    fault, temperature, seed = arguments
    torch.set_num_threads(1)
    loop.SAMPLER_TEMPERATURE = temperature
    config = TrainConfig(temperature=temperature if fault is None else 1.0)
    return [dict(row.metrics) for row in train(config, fault=fault, seed=seed, checks=False)]


def exercise_1(pool: ProcessPoolExecutor) -> Iterator[str]:
    """The control at .7 on both sides, and the mismatch at .9, .7 and .5."""
    cases = [(None, 1.0), (None, 0.7), *(("temperature_mismatch", t) for t in (0.9, 0.7, 0.5))]
    runs = list(pool.map(temperature_run, [(fault, t, seed) for fault, t in cases for seed in SEEDS]))
    for index, (fault, t) in enumerate(cases):
        mine = runs[index * len(SEEDS) : (index + 1) * len(SEEDS)]
        rare, common = rare_tokens(t, range(1, 21)) if fault else (None, None)
        yield (
            f"{fault or 'no fault'} T={t}: reward {pair(mine, 'reward')}, reads {pair(mine, 'reads')}, "
            f"logp_gap {pair(mine, 'logp_gap')}, held-out {[round(r[-1]['eval_pass'], 2) for r in mine]}"
            + (f", rare {rare}, common {common}" if rare else "")
        )


def pair(runs: list[list[dict[str, float]]], key: str) -> str:
    """First and last four steps, mean over seeds."""
    first, last = (fmean(ends(rows, key)[i] for rows in runs) for i in (0, 1))
    return f"{first:.3g} -> {last:.3g}"


def many_updates(arguments: tuple[str | None, int, int, int]) -> dict[str, object]:
    """A run with `epochs` x `minibatches` updates a batch, and the KL of the whole step to the policy before it."""
    fault, epochs, minibatches, seed = arguments
    torch.set_num_threads(1)
    config, policy = TrainConfig(epochs=epochs, minibatches=minibatches), load_base()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.lr)
    rewards, moved, within, malformed = [], [], [], []
    for _ in range(24):
        batch = sample_batch(policy, make_tasks("train"), config, generator)
        before = loop.trainer_logps(policy, batch.ids, config)
        _, logs = loop.update(policy, optimizer, batch, config, generator, fault)
        moved.append(masked_mean(kl_k3(before, loop.trainer_logps(policy, batch.ids, config)), batch.mask).item())
        within.append([log["approx_kl"] for log in logs])
        rewards.append(batch.rewards.mean().item())
        malformed.append(fmean(e.malformed for e in batch.episodes))
    held_out, _ = evaluate(policy, make_tasks("heldout"), config, 0)
    per_update = [fmean(step[i] for step in within) for i in range(len(within[0]))]
    return {
        "reward": (fmean(rewards[:4]), fmean(rewards[-4:])),
        "held_out": held_out,
        "step_kl": (moved[0], median(moved), max(moved)),
        "kl_by_update": per_update,
        "malformed": (fmean(malformed[:4]), fmean(malformed[-4:])),
    }


def exercise_2(pool: ProcessPoolExecutor) -> Iterator[str]:
    """Stale old_logp with more updates on a batch."""
    cases = [(fault, e, m) for e, m in ((1, 2), (4, 4)) for fault in (None, "stale_old_logp")]
    jobs = [(*case, seed) for case in cases for seed in SEEDS]
    for job, found in zip(jobs, pool.map(many_updates, jobs), strict=True):
        yield f"{job[0] or 'healthy'} {job[1]}x{job[2]} seed {job[3]}: {rounded(found)}"
    for fault in (None, "stale_old_logp"):
        moved = [first_step_kl(fault, epochs) for epochs in (1, 2, 3, 4)]
        yield f"{fault or 'healthy'}, step 0: KL to the base after 1, 2, 3, 4 epochs of 4 minibatches {rounded(moved)}"


def first_step_kl(fault: str | None, epochs: int) -> float:
    """How far the first step moves the base policy on its own batch, with `epochs` x 4 updates."""
    config, policy = TrainConfig(epochs=epochs, minibatches=4), load_base()
    generator = torch.Generator().manual_seed(0)
    batch = sample_batch(policy, make_tasks("train"), config, generator)
    before = loop.trainer_logps(policy, batch.ids, config)
    loop.update(policy, torch.optim.Adam(policy.parameters(), lr=config.lr), batch, config, generator, fault)
    return masked_mean(kl_k3(before, loop.trainer_logps(policy, batch.ids, config)), batch.mask).item()


def rounded(value: object) -> object:
    """Three significant digits, everywhere."""
    if isinstance(value, float):
        return float(f"{value:.3g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, (list, tuple)) else value


def exercise_3(pool: ProcessPoolExecutor) -> Iterator[str]:
    """Check 10 on every code fault, and the gradient that a KL term has without advantages."""
    for fault in (None, "entropy_collapse", "mask_shift", "temperature_mismatch", "accum_norm"):
        (result,) = run_checks(reference_probe(fault), only=[10])
        yield f"{fault or 'healthy'}: {result.value:.3g}, passed {result.passed}"
    policy, moved = load_base(), load_base()
    train(steps=2, policy=moved, checks=False, eval_tasks=())
    batch = sample_groups(policy, make_tasks("train")[:8], CHECKED, torch.Generator().manual_seed(1))
    made, rows = loop.prepare(policy, batch, CHECKED), torch.arange(64)
    full = gradient(policy, None, batch, rows, made)
    for name, reference in (("a copy", load_base()), ("the policy two steps later", moved)):
        zero = gradient(policy, reference, batch, rows, replace(made, advantages=made.advantages * 0))
        yield f"kl_coef .1, k3, reference {name}: |g(A=0)| / |g(A)| = {(zero.norm() / full.norm()).item():.3g}"
    yield f"update form, weight decay .01: {update_form(0.01, momentum=False):.3g} of the change with them"
    yield f"update form, warm Adam: {update_form(0.0, momentum=True):.3g}"


def gradient(policy: Policy, reference: Policy | None, batch, rows, made) -> torch.Tensor:  # type: ignore[no-untyped-def]
    """The flat gradient of the whole batch."""
    policy.zero_grad()
    loop.backward(policy, reference, batch, rows, made, CHECKED)
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


def update_form(weight_decay: float, momentum: bool) -> float:
    """How far an update without advantages moves the weights, relative to one with them (the chapter's form)."""
    moves = []
    for scale in (1.0, 0.0):
        policy, generator = load_base(), torch.Generator().manual_seed(0)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=weight_decay)
        batch = sample_groups(policy, make_tasks("train")[:8], CHECKED, torch.Generator().manual_seed(1))
        if momentum:
            loop.update(policy, optimizer, batch, CHECKED, generator)
        before = torch.cat([p.detach().flatten().clone() for p in policy.parameters()])
        loop.update(policy, optimizer, replace(batch, rewards=batch.rewards * scale), CHECKED, generator)
        moves.append((torch.cat([p.detach().flatten() for p in policy.parameters()]) - before).norm())
    return float(moves[1] / moves[0])


def exercise_4(pool: ProcessPoolExecutor) -> Iterator[str]:
    """All checks on a batch that was shuffled out of its group layout."""
    for result in run_checks(reference_probe("group_id_wrong")):
        yield f"{result.number} {result.check}: {result.value:.3g}, passed {result.passed}"
    rows = [row.metrics for row in train(fault="group_id_wrong", checks=False)]
    yield f"reward {ends(rows, 'reward')}, held-out {rows[-1]['eval_pass']}"


def exercise_5(pool: ProcessPoolExecutor) -> Iterator[str]:
    """|log-probability gap| of a bf16 pass against an fp32 trainer, with the right mask, a shifted one, and T = .7."""
    trained = load_base()
    train(steps=24, policy=trained, checks=False, eval_tasks=())
    for name, policy in (("base", load_base()), ("after 24 steps", trained)):
        gaps: dict[str, list[torch.Tensor]] = {"bf16": [], "bf16, mask shifted": [], "bf16, T = .7": [], "fp32": []}
        for seed in range(8):
            batch = sample_groups(policy, make_tasks("train")[:8], CHECKED, torch.Generator().manual_seed(seed))
            with torch.no_grad():
                own = token_logps(policy(batch.ids)[:, :-1], batch.ids)
                with torch.autocast("cpu", torch.bfloat16):
                    coarse = policy(batch.ids)[:, :-1].float()
            engine = torch.where(batch.mask > 0, token_logps(coarse, batch.ids), 0.0)  # env tokens: the placeholder
            on, shifted = batch.mask > 0, loop.prepare(policy, batch, CHECKED, "mask_shift").mask > 0
            gaps["fp32"].append((own - batch.sample_logp).abs()[on])
            gaps["bf16"].append((own - engine).abs()[on])
            gaps["bf16, mask shifted"].append((own - engine).abs()[shifted])
            gaps["bf16, T = .7"].append((own - token_logps(coarse / 0.7, batch.ids)).abs()[on])
        for case, parts in gaps.items():
            batches = torch.stack([statistics(part) for part in parts])
            low, high = (rounded(ends.values.tolist()) for ends in (batches.min(0), batches.max(0)))
            yield f"{name}, {case}: mean/median/p99/max/share>1 from {low} to {high}"


def statistics(gap: torch.Tensor) -> torch.Tensor:
    """Mean, median, p99, maximum and share above 1 nat of one batch."""
    return torch.stack([gap.mean(), gap.median(), gap.quantile(0.99), gap.max(), (gap > 1).float().mean()])


def exercise_6(pool: ProcessPoolExecutor) -> Iterator[str]:
    """What the default trigger records in whole runs, and whether each recording replays exactly."""
    for fault in (None, "mask_shift", "lr_too_high", "nonfinite"):
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                train(fault=fault, seed=seed, checks=False, eval_tasks=(), recorder=FlightRecorder(Path(folder)))
                kept = list_recordings(Path(folder))
                exact = [replay_step(Path(folder), r.step).exact for r in kept]
                size = sum(r.bytes for r in kept) / max(len(kept), 1) / 2**20
                steps = [r.step for r in kept]
                yield f"{fault or 'healthy'} seed {seed}: steps {steps}, exact {exact}, {size:.2f} MiB each"


def main() -> None:
    """Print the results of the exercises asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=parse_seeds, default=SEEDS)
    options = parser.parse_args()
    SEEDS[:] = options.seeds
    torch.set_num_threads(1)
    exercises = (exercise_1, exercise_2, exercise_3, exercise_4, exercise_5, exercise_6)
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for number in options.numbers:
            for line in exercises[number - 1](pool):
                print(f"{number}  {line}", flush=True)


if __name__ == "__main__":
    main()
