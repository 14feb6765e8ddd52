"""The loss primitives of the plain and the instrumented trainer. Sources: chapter 18.2 and 18.5, PPO, GRPO, k3 KL."""

from __future__ import annotations

import torch
from torch import Tensor

from rltriage.trainer.config import LossMode


def token_logps(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probabilities `[B, T-1]` of `ids[:, 1:]` under `logits [B, T-1, V]`."""
    return torch.log_softmax(logits, dim=-1).gather(-1, ids[:, 1:, None])[..., 0]


def entropies(logits: Tensor) -> Tensor:
    """Entropy in nats of each position's distribution, `[B, T-1]`."""
    logp = torch.log_softmax(logits, dim=-1)
    return -(logp.exp() * logp).sum(-1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` where `mask` is 1."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def aggregate(losses: Tensor, mask: Tensor, mode: LossMode) -> Tensor:
    """One number from per-token losses `[B, T-1]`: the mean over tokens, or the mean over episodes of their token means.

    The second gives a failing episode a fixed total penalty whatever its length (chapter 18.5, length bias).
    """
    if mode == "token_mean":
        return masked_mean(losses, mask)
    return ((losses * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()


def group_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """`(r - mean) / (std + 1e-6)` within each block of `group_size` rows, population std, `[B]` to `[B]`.

    A group of equal rewards gets exactly 0: the rounding of its mean, divided by 1e-6, would not be.
    """
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(-1, keepdim=True)
    scaled = centred / (groups.std(-1, correction=0, keepdim=True) + 1e-6)
    flat = groups.max(-1, keepdim=True).values == groups.min(-1, keepdim=True).values
    return torch.where(flat, torch.zeros_like(scaled), scaled).view(-1)


def clipped_losses(ratio: Tensor, advantages: Tensor, eps: float) -> Tensor:
    """PPO's per-token losses `[B, T-1]` from ratios and one advantage a row `[B]`."""
    gain = advantages[:, None]
    return torch.maximum(-ratio * gain, -ratio.clamp(1 - eps, 1 + eps) * gain)


def kl_k3(logp: Tensor, other: Tensor) -> Tensor:
    """The k3 estimate per token of KL(policy || other), `[B, T-1]`: never negative, exactly 0 where they agree."""
    gap = other - logp
    return gap.exp() - 1 - gap
