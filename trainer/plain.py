"""The plain trainer: GRPO on TinyAgent with no diagnostics and no faults.

It exists to be compared with: `loop.py` without a fault must give the same bits. It shares with it the policy, the gym
and the loss primitives, nothing else.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from rltriage.trainer import losses
from rltriage.trainer.config import TrainConfig
from rltriage.trainer.gym import make_tasks
from rltriage.trainer.policy import Policy
from rltriage.trainer.sampling import Batch, sample_batch


def train_plain(policy: Policy, config: TrainConfig, *, steps: int, seed: int = 0) -> list[dict[str, float]]:
    """Train `policy` in place; a dict of `reward`, `loss`, `approx_kl`, `entropy`, `grad_norm` per step."""
    generator = torch.Generator().manual_seed(seed)
    tasks = make_tasks("train")
    reference = copy.deepcopy(policy) if config.kl_coef else None
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.lr)
    history = []
    for _ in range(steps):
        batch = sample_batch(policy, tasks, config, generator)
        advantages = losses.group_advantages(batch.rewards, config.group_size)
        with torch.no_grad():
            old_logp = losses.token_logps(policy(batch.ids)[:, :-1] / config.temperature, batch.ids)
        minibatches = []
        for _ in range(config.epochs):
            for rows in torch.randperm(len(batch.ids), generator=generator).chunk(config.minibatches):
                optimizer.zero_grad()
                loss, stats = minibatch_loss(policy, reference, batch, rows, old_logp, advantages, config)
                torch.autograd.backward(loss)
                stats["grad_norm"] = clip_grad_norm_(policy.parameters(), config.max_grad_norm).item()
                optimizer.step()
                minibatches.append(stats)
        row = {key: sum(s[key] for s in minibatches) / len(minibatches) for key in minibatches[0]}
        history.append({"reward": batch.rewards.mean().item(), **row})
    return history


def minibatch_loss(
    policy: Policy,
    reference: Policy | None,
    batch: Batch,
    rows: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    config: TrainConfig,
) -> tuple[Tensor, dict[str, float]]:
    """Clipped policy loss of `rows`, plus the KL penalty and minus the entropy bonus where they are configured."""
    ids, mask = batch.ids[rows], batch.mask[rows]
    logits = policy(ids)[:, :-1] / config.temperature
    logp = losses.token_logps(logits, ids)
    ratio = (logp - old_logp[rows]).exp()
    loss = losses.aggregate(losses.clipped_losses(ratio, advantages[rows], config.clip_eps), mask, config.loss_mode)
    entropy = losses.masked_mean(losses.entropies(logits), mask)
    if config.entropy_coef:
        loss = loss - config.entropy_coef * entropy
    if reference is not None:
        with torch.no_grad():
            reference_logp = losses.token_logps(reference(ids)[:, :-1] / config.temperature, ids)
        loss = loss + config.kl_coef * losses.masked_mean(losses.kl_k3(logp, reference_logp), mask)
    approx_kl = losses.masked_mean(losses.kl_k3(old_logp[rows], logp.detach()), mask)
    return loss, {"loss": loss.item(), "entropy": entropy.item(), "approx_kl": approx_kl.item()}
