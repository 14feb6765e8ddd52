"""Lockstep sampling: all episodes of a step advance one token per tick, drawn by inverse CDF from one uniform per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rltriage.trainer.config import TrainConfig
from rltriage.trainer.gym import MAX_CALL, PAD, Episode, Owner, Task
from rltriage.trainer.policy import Cache, Policy

LONGEST_ANSWER = 6  # <obs> line v0 expected v1 </obs>


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes as right-padded tensors. Position t of the `[B, T-1]` tensors is about predicting `ids[:, t + 1]`."""

    ids: Tensor  # [B, T] int64
    mask: Tensor  # [B, T-1] float, 1 where the policy wrote the target
    sample_logp: Tensor  # [B, T-1] float, the sampler's own record, 0 where the environment wrote the target
    rewards: Tensor  # [B] float
    episodes: tuple[Episode, ...] = ()

    def rows(self, order: Tensor) -> Batch:
        """The rows `order [b]` of the batch, in that order."""
        episodes = tuple(self.episodes[i] for i in order.tolist())
        return Batch(self.ids[order], self.mask[order], self.sample_logp[order], self.rewards[order], episodes)


@torch.no_grad()
def sample_episodes(policy: Policy, episodes: Sequence[Episode], temperature: float, generator: torch.Generator) -> None:
    """Run fresh `episodes` to their end with `policy`, in place.

    Every row draws from the generator on every tick, finished or not, so that one episode's length never shifts the
    random numbers of another row's token.
    """
    rows, prompt = len(episodes), len(episodes[0].ids)
    longest = prompt + max(e.max_turns for e in episodes) * (MAX_CALL + LONGEST_ANSWER)
    cache = Cache(rows, longest)
    logits = policy(torch.tensor([e.ids for e in episodes]), cache)[:, -1]
    while not all(e.done for e in episodes):
        logp = torch.log_softmax(logits / temperature, dim=-1)
        cdf = logp.exp().cumsum(-1)
        draw = torch.rand(rows, 1, generator=generator) * cdf[:, -1:]
        drawn = torch.searchsorted(cdf, draw, right=True).clamp_(max=logits.shape[-1] - 1)
        tokens = _advance(episodes, drawn[:, 0].tolist(), logp.gather(1, drawn)[:, 0].tolist())
        logits = policy(torch.tensor(tokens)[:, None], cache)[:, -1]


def _advance(episodes: Sequence[Episode], drawn: Sequence[int], logps: Sequence[float]) -> list[int]:
    """One tick: each live row takes its environment's next token, or the drawn one where the policy is to speak."""
    tokens = []
    for episode, token, logp in zip(episodes, drawn, logps, strict=True):
        if episode.done:
            tokens.append(PAD)
        elif episode.pending:
            tokens.append(episode.environment_token())
        else:
            episode.policy_token(token, logp)
            tokens.append(token)
    return tokens


def collate(episodes: Sequence[Episode]) -> Batch:
    """Pad finished episodes to the longest and align owners and sampler log-probabilities with the predicted token."""
    width = max(len(e.ids) for e in episodes)
    ids = torch.tensor([e.ids + [PAD] * (width - len(e.ids)) for e in episodes])
    owners = torch.tensor([[*e.owners[1:], *[Owner.PROMPT] * (width - len(e.ids))] for e in episodes])
    logps = torch.tensor([e.logps[1:] + [0.0] * (width - len(e.ids)) for e in episodes])
    rewards = torch.tensor([e.reward for e in episodes])
    return Batch(ids, (owners == Owner.POLICY).float(), logps, rewards, tuple(episodes))


def sample_batch(policy: Policy, tasks: Sequence[Task], config: TrainConfig, generator: torch.Generator) -> Batch:
    """One step's episodes: `tasks_per_step` tasks drawn without replacement, `group_size` attempts each, group by group."""
    chosen = torch.randperm(len(tasks), generator=generator)[: config.tasks_per_step].tolist()
    return sample_groups(policy, [tasks[i] for i in chosen], config, generator)


def sample_groups(policy: Policy, tasks: Sequence[Task], config: TrainConfig, generator: torch.Generator) -> Batch:
    """`group_size` attempts at each of `tasks`, as one batch."""
    episodes = [Episode(task, config.max_turns, config.reward) for task in tasks for _ in range(config.group_size)]
    sample_episodes(policy, episodes, config.temperature, generator)
    return collate(episodes)


def evaluate(policy: Policy, tasks: Sequence[Task], config: TrainConfig, seed: int) -> tuple[float, int]:
    """Hidden pass rate on `tasks` and the number of episodes, from a generator of its own: training never notices."""
    generator = torch.Generator().manual_seed(seed)
    episodes = [Episode(task, config.max_turns) for task in tasks for _ in range(config.eval_episodes)]
    sample_episodes(policy, episodes, config.temperature, generator)
    return sum(e.hidden_pass for e in episodes) / len(episodes), len(episodes)
