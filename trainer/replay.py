"""The exact repetition of a recorded step of the reference trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rltriage.rules.errors import SourceError
from rltriage.trainer.config import TrainConfig
from rltriage.trainer.faults import find_fault
from rltriage.trainer.gym import decode
from rltriage.trainer.loop import Stats, backward, make_reference, prepare, update
from rltriage.trainer.policy import Policy
from rltriage.trainer.recorder import Recording, environment, find_recording
from rltriage.trainer.sampling import Batch
from rltriage.trainer.snapshot import restore_optimizer

MOST_UPDATES = 10_000  # of one batch: more is a recording that would never end


@dataclass(frozen=True, slots=True)
class Moved:
    """A statistic that the replay gave differently."""

    name: str
    recorded: float
    replayed: float


@dataclass(frozen=True, slots=True)
class Dominant:
    """An episode of the step: its share in the sum of the episodes' gradient norms, and its text."""

    row: int
    share: float
    reward: float
    advantage: float
    text: str


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome: nothing `moved` means exact. `differences` name what is not as it was when the step was recorded."""

    step: int
    compared: int
    moved: tuple[Moved, ...]
    differences: tuple[str, ...]
    dominant: tuple[Dominant, ...]

    @property
    def exact(self) -> bool:
        """Every statistic came out with the same bits."""
        return not self.moved


def replay_step(folder: Path, step: int, top: int = 3) -> Replay:
    """Repeat a recorded step's update and compare its statistics bit by bit; the `top` episodes by gradient.

    Runs on the recorded number of threads. Raises SourceError if the step was not recorded or its files are damaged.
    """
    recording = find_recording(folder, step)
    differences = tuple(
        f"{name} is {now}, was {recording.meta['environment'].get(name)}"
        for name, now in environment().items()
        if name != "threads" and now != recording.meta["environment"].get(name)
    )
    threads, random_state = torch.get_num_threads(), torch.random.get_rng_state()
    torch.set_num_threads(int(recording.meta["environment"]["threads"]))
    try:
        stats, dominant = _repeat(recording, top)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as error:
        raise SourceError(f"{recording.folder}: is no step of the reference trainer ({error})") from error
    finally:
        torch.set_num_threads(threads)
        torch.random.set_rng_state(random_state)
    then = recording.statistics
    moved = [Moved(name, then[name], now) for name, now in stats.items() if not _same(then.get(name, math.inf), now)]
    return Replay(step, len(stats), tuple(moved), differences, dominant)


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _repeat(recording: Recording, top: int) -> tuple[Stats, tuple[Dominant, ...]]:
    meta: Mapping[str, Any] = recording.meta
    config, fault = TrainConfig(**meta["config"]), meta["fault"]
    find_fault(fault)
    if not 1 <= config.epochs * config.minibatches <= MOST_UPDATES:
        raise ValueError(f"{config.epochs} x {config.minibatches} updates")
    policy, rng = Policy(), recording.tensors("rng")
    policy.load_state_dict(recording.tensors("model"))
    reference = make_reference(policy, config, fault)
    if reference is not None and reference is not policy:
        reference.load_state_dict(recording.tensors("reference"))
    saved = recording.tensors("batch")
    batch = Batch(saved["ids"], saved["mask"], saved["sample_logp"], saved["rewards"])
    dominant = _dominant(policy, reference, batch, config, fault, top)
    optimizer = restore_optimizer(policy, recording.tensors("optimizer"), meta["lr"])
    generator = torch.Generator()
    generator.set_state(rng["run"])
    torch.random.set_rng_state(rng["torch"])
    stats, _ = update(policy, optimizer, batch, config, generator, fault, reference)
    return {"reward": math.fsum(batch.rewards.tolist()) / len(batch.rewards), **stats}, dominant


def _dominant(
    policy: Policy, reference: Policy | None, batch: Batch, config: TrainConfig, fault: str | None, top: int
) -> tuple[Dominant, ...]:
    """Episodes by the gradient norm of their own part of the loss, weighted by their share of its tokens; NaN first."""
    prepared = prepare(policy, batch, config, fault)
    weights = prepared.mask.sum(-1) if config.loss_mode == "token_mean" else torch.ones(len(batch.ids))
    norms = []
    for row in range(len(batch.ids)):
        policy.zero_grad()
        backward(policy, reference, batch, torch.tensor([row]), prepared, config, fault)
        squares = [p.grad.square().sum() for p in policy.parameters() if p.grad is not None]
        norms.append(float(weights[row] * torch.stack(squares).sum().sqrt()))
    policy.zero_grad()
    finite = [n for n in norms if math.isfinite(n)]
    total = sum(finite) or 1.0
    order = sorted(range(len(norms)), key=lambda row: -norms[row] if math.isfinite(norms[row]) else -math.inf)
    texts = {row: decode(batch.ids[row].tolist()) for row in order[:top]}
    return tuple(
        Dominant(row, norms[row] / total, float(batch.rewards[row]), float(prepared.advantages[row]), text)
        for row, text in texts.items()
    )
