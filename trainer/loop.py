"""The instrumented trainer: GRPO on TinyAgent with a full metric row per step and a switch per fault.

Each `fault ==` sits at the place where the real bug lives. With no fault the parameters and statistics are those of
`plain.py`, bit for bit (chapter 18.2).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from rltriage.engine.rows import Row
from rltriage.trainer import losses
from rltriage.trainer.config import TrainConfig
from rltriage.trainer.faults import (
    DROPOUT,
    ENTROPY_PENALTY,
    MICROBATCHES,
    OUTAGE,
    REWARD_NOISE,
    SAMPLER_TEMPERATURE,
    SYNC_EVERY,
    faulty_config,
)
from rltriage.trainer.gym import Task, make_tasks
from rltriage.trainer.metrics import rollout_metrics
from rltriage.trainer.policy import Policy, load_base
from rltriage.trainer.recorder import FlightRecorder
from rltriage.trainer.sampling import Batch, evaluate, sample_batch
from rltriage.trainer.snapshot import snapshot

Stats = dict[str, float]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the loss consumes besides the batch: `mask` and `old_logp` `[B, T-1]`, `advantages` `[B]`."""

    mask: Tensor
    old_logp: Tensor
    advantages: Tensor


def trainer_logps(policy: Policy, ids: Tensor, config: TrainConfig) -> Tensor:
    """The trainer's own log-probabilities of `ids[:, 1:]`, without gradient, `[B, T-1]`."""
    with torch.no_grad():
        return losses.token_logps(policy(ids)[:, :-1] / config.temperature, ids)


def sampler_config(config: TrainConfig, fault: str | None) -> TrainConfig:
    """What the sampler runs with: the trainer's config, unless the two disagree."""
    if fault == "temperature_mismatch":
        return replace(config, temperature=SAMPLER_TEMPERATURE)
    if fault == "truncation_cap":
        return replace(config, max_turns=config.max_turns // 2)
    return config


def delivered(batch: Batch, fault: str | None, step: int) -> Batch:
    """The batch as it reaches the trainer: the sampler's rows and the verifier's rewards, unless they are damaged."""
    rewards, generator = batch.rewards, torch.Generator().manual_seed(step)
    if fault == "group_id_wrong":
        return batch.rows(torch.randperm(len(rewards), generator=generator))
    if fault == "advantage_blowup":
        rewards = rewards + REWARD_NOISE * torch.randn(len(rewards), generator=generator)
    elif fault == "batch_misalignment":
        rewards = rewards[torch.randperm(len(rewards), generator=generator)]
    elif fault == "verifier_failure" and step in OUTAGE:
        rewards = torch.zeros_like(rewards)
    elif fault == "nonfinite" and step == OUTAGE.start:
        rewards = rewards.index_fill(0, torch.tensor([0]), float("nan"))
    return replace(batch, rewards=rewards)


def prepare(policy: Policy, batch: Batch, config: TrainConfig, fault: str | None = None) -> Prepared:
    """Loss mask, old log-probabilities and advantages of a batch."""
    mask = batch.mask
    if fault == "mask_shift":
        mask = F.pad(mask, (1, 0))[:, :-1]
    if fault == "eos_mismatch":
        mask = mask * (mask.cumsum(-1) < mask.sum(-1, keepdim=True))
    if fault == "dropout_active":
        policy.dropout = (DROPOUT, torch.Generator().manual_seed(0))
    old_logp = trainer_logps(policy, batch.ids, config)
    policy.dropout = None
    if fault == "temperature_mismatch":
        old_logp = batch.sample_logp
    advantages = losses.group_advantages(batch.rewards, config.group_size)
    if fault == "sign_flip":
        advantages = -advantages
    return Prepared(mask, old_logp, advantages)


def make_reference(policy: Policy, config: TrainConfig, fault: str | None = None) -> Policy | None:
    """The frozen KL reference, None without a KL term."""
    if not config.kl_coef:
        return None
    return policy if fault == "ref_is_policy" else copy.deepcopy(policy)


def backward(
    policy: Policy,
    reference: Policy | None,
    batch: Batch,
    rows: Tensor,
    prepared: Prepared,
    config: TrainConfig,
    fault: str | None = None,
) -> Stats:
    """Loss and backward of one minibatch, no optimizer step. Statistics are means over its microbatches."""
    parts: Sequence[Tensor] = [rows]
    if fault == "accum_norm":
        parts = rows[prepared.mask[rows].sum(-1).argsort()].chunk(MICROBATCHES)
    logs = []
    for part in parts:
        loss, stats = part_loss(policy, reference, batch.ids[part], part, prepared, config, fault)
        torch.autograd.backward(loss / len(parts))
        logs.append(stats)
    return {key: sum(s[key] for s in logs) / len(logs) for key in logs[0]}


def part_loss(
    policy: Policy,
    reference: Policy | None,
    ids: Tensor,
    rows: Tensor,
    prepared: Prepared,
    config: TrainConfig,
    fault: str | None,
) -> tuple[Tensor, Stats]:
    """The loss of some rows of a batch and its statistics; `ids [b, T]` are those rows'."""
    mask, old_logp, advantages = prepared.mask[rows], prepared.old_logp[rows], prepared.advantages[rows]
    logits = policy(ids)[:, :-1] / config.temperature
    logp = losses.token_logps(logits, ids)
    ratio = (logp - old_logp).exp()
    per_token = losses.clipped_losses(ratio, advantages, config.clip_eps)
    loss = losses.aggregate(per_token, mask, config.loss_mode)
    entropy = losses.masked_mean(losses.entropies(logits), mask)
    if config.entropy_coef:
        loss = loss - config.entropy_coef * entropy
    if fault == "entropy_collapse":
        loss = loss + ENTROPY_PENALTY * entropy
    stats = ratio_stats(ratio.detach(), per_token.detach(), logp.detach(), old_logp, advantages, mask)
    if reference is not None:
        kl = losses.masked_mean(losses.kl_k3(logp, trainer_logps(reference, ids, config)), mask)
        loss = loss + config.kl_coef * kl
        stats["kl_ref"] = kl.item()
    return loss, {**stats, "entropy": entropy.item(), "loss": loss.item()}


def ratio_stats(
    ratio: Tensor, per_token: Tensor, logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor
) -> Stats:
    """Statistics of pi / pi_old on the trained tokens. A token counts as clipped where the clip changes its loss."""
    on = mask > 0
    clipped = (per_token > -ratio * advantages[:, None]).float()
    picked = ratio[on]
    return {
        "approx_kl": losses.masked_mean(losses.kl_k3(old_logp, logp), mask).item(),
        "clip_frac": losses.masked_mean(clipped, mask).item(),
        "ratio_max": picked.max().item(),
        "ratio_min": picked.min().item(),
        "ratio_mean": picked.mean().item(),
    }


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    config: TrainConfig,
    generator: torch.Generator,
    fault: str | None = None,
    reference: Policy | None = None,
) -> tuple[Stats, list[Stats]]:
    """All minibatch updates of one batch: the update half of the metric row, and the statistics of each minibatch.

    The row's statistics are means over the minibatches, as in the chapter (`ratio_max`: the mean of their largest ratios);
    `approx_kl_max` and `grad_norm_max` are maxima, `ratio_first_max` is of the first minibatch, before any step.
    """
    prepared = prepare(policy, batch, config, fault)
    stats = consistency_stats(trainer_logps(policy, batch.ids, config) if fault else prepared.old_logp, batch, prepared)
    logs: list[Stats] = []
    for _ in range(config.epochs):
        for rows in torch.randperm(len(batch.ids), generator=generator).chunk(config.minibatches):
            if fault == "stale_old_logp":
                prepared.old_logp[rows] = trainer_logps(policy, batch.ids[rows], config)
            optimizer.zero_grad()
            log = backward(policy, reference, batch, rows, prepared, config, fault)
            log["grad_norm"] = clip_grad_norm_(policy.parameters(), config.max_grad_norm).item()
            optimizer.step()
            logs.append(log)
    means = {key: sum(log[key] for log in logs) / len(logs) for key in logs[0]}
    maxima = {f"{key}_max": max(log[key] for log in logs) for key in ("approx_kl", "grad_norm")}
    return {**means, **maxima, "ratio_first_max": logs[0]["ratio_max"], **stats}, logs


def consistency_stats(trainer_logp: Tensor, batch: Batch, prepared: Prepared) -> Stats:
    """Sampler against trainer on the trained tokens, in nats per token, and what the loss was fed.

    `logp_placeholder_frac` is the share of trained tokens with a sampler record of exactly 0 (never drawn) that the
    trainer gives a probability below .99; `loss_tokens` is trained tokens per episode.
    """
    on = prepared.mask > 0
    recorded, own = batch.sample_logp[on], trainer_logp[on]
    gap = (own - recorded).abs()
    advantages = prepared.advantages
    return {
        "logp_gap": gap.mean().item(),
        "logp_gap_p99": gap.quantile(0.99).item(),
        "logp_gap_max": gap.max().item(),
        "logp_gap_gt1_frac": (gap > 1).float().mean().item(),
        "logp_placeholder_frac": ((recorded == 0) & (own < -0.01)).float().mean().item(),
        "adv_mean": advantages.mean().item(),
        "adv_min": advantages.min().item(),
        "adv_max": advantages.max().item(),
        "adv_abs_max": advantages.abs().max().item(),
        "loss_tokens": prepared.mask.sum().item() / len(advantages),
    }


def train(
    config: TrainConfig | None = None,
    *,
    fault: str | None = None,
    emit: Callable[[Row], object] = lambda row: None,
    steps: int = 24,
    seed: int = 0,
    clock: Callable[[], float] | None = None,
    checks: bool = True,
    policy: Policy | None = None,
    eval_tasks: Sequence[Task] | None = None,
    recorder: FlightRecorder | None = None,
) -> list[Row]:
    """Run GRPO on TinyAgent and return the rows, each given to `emit` as soon as its step is done.

    `fault` is an id of `faults.FAULTS` (its overrides are applied), None a healthy run. `policy` is trained in place and
    defaults to a fresh copy of the shipped base. `clock` gives the rows' unix seconds; without it they have no time.
    `checks` runs the invariants before step 0 and puts their results into row 0. `eval_tasks` defaults to the held-out
    tasks, an empty list turns evaluation off. `recorder` keeps the steps that its trigger picks from the row and from
    what `emit` returned. Draws only from its own generators; the result depends on the seed, the torch version and the
    number of threads. Raises RltriageError for an unknown fault.
    """
    config = faulty_config(config or TrainConfig(), fault)
    policy = policy if policy is not None else load_base()
    tasks = make_tasks("train")
    heldout = make_tasks("heldout") if eval_tasks is None else eval_tasks
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.lr)
    reference = make_reference(policy, config, fault)
    first = check_metrics(policy, config, fault) if checks else {}
    rows = []
    sampler = policy
    for step in range(steps):
        if fault == "weights_not_synced" and step % SYNC_EVERY == 0:
            sampler = copy.deepcopy(policy)
        if fault == "lr_schedule":
            optimizer.param_groups[0]["lr"] = config.lr * max(0.0, 1 - 2 * step / steps)
        batch = delivered(sample_batch(sampler, tasks, sampler_config(config, fault), generator), fault, step)
        if recorder is not None:
            recorder.before_update(*snapshot(policy, optimizer, batch, config, generator, fault, reference))
        stats, _ = update(policy, optimizer, batch, config, generator, fault, reference)
        rollout = rollout_metrics(batch.episodes, batch.rewards.tolist(), config.group_size)
        metrics = {**rollout, **stats, "lr": float(optimizer.param_groups[0]["lr"])}
        if heldout and (step % config.eval_every == 0 or step == steps - 1):
            metrics["eval_pass"], metrics["eval_n"] = evaluate(policy, heldout, config, seed=step)
        row = Row(step, metrics if step else {**metrics, **first}, clock() if clock else None)
        rows.append(row)
        report = emit(row)
        if recorder is not None:
            recorder.after_row(row, report)
    return rows


def check_metrics(policy: Policy, config: TrainConfig, fault: str | None) -> Stats:
    """The invariants of this run before its first step, as `check_<id>` and `check_<id>_value` metrics."""
    from rltriage.trainer.invariants import as_metrics, run_checks
    from rltriage.trainer.probe import ReferenceProbe

    return as_metrics(run_checks(ReferenceProbe(policy, config, fault)))
