"""The policy: a causal transformer of 158,016 parameters, and the key-value cache that the sampler drives it with."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rltriage.trainer.gym import VOCABULARY

WIDTH, LAYERS, HEADS = 64, 3, 4
HEAD_DIM = WIDTH // HEADS
CHECKPOINT = Path(__file__).with_name("base.safetensors")


class Cache:
    """Keys and values of `rows` sequences that advance together, at most `length` positions."""

    def __init__(self, rows: int, length: int) -> None:
        self.kv = torch.zeros(LAYERS, 2, rows, HEADS, length, HEAD_DIM)
        self.used = 0

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store `[B, H, t, D]` behind what is there and return all of it, `[B, H, used + t, D]`."""
        end = self.used + key.shape[2]
        self.kv[layer, 0, :, :, self.used : end] = key
        self.kv[layer, 1, :, :, self.used : end] = value
        return self.kv[layer, 0, :, :, :end], self.kv[layer, 1, :, :, :end]


def rotary(length: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine, each `[length, D / 2]`, of rotary position embeddings at base 10,000."""
    frequency = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM)
    angle = torch.arange(length)[:, None].float() * frequency
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary embeddings to `x [..., t, D]`, whose halves are the pairs' two coordinates."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


LONGEST = 512  # positions; an episode of 12 turns has at most 151
ROTARY = rotary(LONGEST)


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, layer: int, cache: Cache | None) -> Tensor:
        rows, length, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(rows, length, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        (q, k), v = rotate(qkv[:2], cos, sin), qkv[2]
        if cache is not None:
            k, v = cache.extend(layer, k, v)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        hidden: Tensor = self.down(F.gelu(self.up(self.norm2(x))))
        return x + hidden


class Policy(nn.Module):
    """Token ids `[B, T]` to logits `[B, T, V]`; right padding is harmless because attention is causal.

    `dropout`, a rate and its generator, zeroes activations between the blocks; no correct run sets it.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # the caller's random state is not ours to advance
            torch.manual_seed(seed)
            self.embed = nn.Embedding(len(VOCABULARY), WIDTH)  # std 1 brings the gradient norm into the chapter's range
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, len(VOCABULARY), bias=False)
        self.dropout: tuple[float, torch.Generator] | None = None

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits of the next token at every position; with a cache, `ids` continue it (prefill, or one token)."""
        start = 0 if cache is None else cache.used
        cos, sin = (table[start : start + ids.shape[1]] for table in ROTARY)
        x = self.embed(ids)
        for layer, block in enumerate(self.blocks):
            x = block(x, cos, sin, layer, cache)
            if self.dropout is not None:
                rate, generator = self.dropout
                x = x * (torch.rand(x.shape, generator=generator) >= rate) / (1 - rate)
        if cache is not None:
            cache.used += ids.shape[1]
        logits: Tensor = self.head(self.norm(x))
        return logits


def load_base(path: Path = CHECKPOINT) -> Policy:
    """The base policy that every run starts from: the warm start of `rltriage.trainer.warmstart`, shipped."""
    from safetensors.torch import load_file

    policy = Policy()
    policy.load_state_dict(load_file(path))
    return policy
