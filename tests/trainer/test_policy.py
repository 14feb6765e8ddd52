"""The policy, the sampler and the shipped checkpoint."""

import torch

from rltriage.trainer.config import TrainConfig
from rltriage.trainer.gym import NAMES, TOKEN, Owner, make_tasks
from rltriage.trainer.losses import group_advantages, token_logps
from rltriage.trainer.policy import Cache, Policy, load_base
from rltriage.trainer.sampling import sample_groups


def test_the_policy_has_158016_parameters():
    """The chapter's 158k."""
    assert sum(p.numel() for p in Policy().parameters()) == 158_016


def test_the_cache_gives_the_logits_of_the_full_pass():
    """Prefill and single steps agree with one forward pass to fp32 rounding."""
    policy, ids = load_base(), torch.randint(62, (3, 12), generator=torch.Generator().manual_seed(0))
    cache = Cache(3, 12)
    with torch.no_grad():
        stepped = [policy(ids[:, :5], cache), *(policy(ids[:, t : t + 1], cache) for t in range(5, 12))]
        assert torch.allclose(torch.cat(stepped, dim=1), policy(ids), atol=1e-4)


def test_the_samplers_record_is_the_trainers_log_probability():
    """On policy tokens, at the temperature that both use."""
    policy, config = load_base(), TrainConfig(temperature=0.7, tasks_per_step=2)
    batch = sample_groups(policy, make_tasks("train")[:2], config, torch.Generator().manual_seed(0))
    with torch.no_grad():
        own = token_logps(policy(batch.ids)[:, :-1] / 0.7, batch.ids)
    assert (own - batch.sample_logp)[batch.mask > 0].abs().max() < 1e-5


def test_rows_are_padded_on_the_right_and_the_longest_ends_on_a_policy_token():
    """What the padding check needs to see a shifted mask."""
    batch = sample_groups(load_base(), make_tasks("train")[:4], TrainConfig(), torch.Generator().manual_seed(0))
    longest = max(batch.episodes, key=lambda e: len(e.ids))
    assert len(longest.ids) == batch.ids.shape[1] and longest.owners[-1] is Owner.POLICY and batch.mask[:, -1].any()
    assert batch.mask.sum() == sum(e.length for e in batch.episodes)


def test_the_shipped_base_is_a_mediocre_agent_that_never_saw_the_heldout_names():
    """About a fifth passes, reads are rare but known; rows of held-out names are as they were initialised."""
    policy = load_base()
    batch = sample_groups(policy, make_tasks("train"), TrainConfig(group_size=16), torch.Generator().manual_seed(5))
    assert 0.12 < batch.rewards.mean() < 0.3
    assert 0.2 < sum(e.operations.count("read") for e in batch.episodes) / len(batch.episodes) < 1
    unseen = [TOKEN[name] for name in NAMES[20:]]
    assert policy.embed.weight[unseen].std() > 0.9


def test_equal_rewards_have_exactly_no_advantage():
    """In fp32 the mean of eight rewards of .7 is not .7; the advantage must be 0 all the same."""
    rewards = torch.tensor([0.7] * 8 + [1.0, 0, 0, 0, 0, 0, 0, 0])
    advantages = group_advantages(rewards, 8)
    assert torch.equal(advantages[:8], torch.zeros(8))
    assert abs(advantages[8:].mean()) < 1e-6 and advantages[8] > 2.6


def test_the_warm_start_is_reproducible(monkeypatch):
    """Two short builds of the same seed give the same bits, another seed does not; demonstrations stay in their format."""
    import random

    from rltriage.trainer import warmstart

    monkeypatch.setattr(warmstart, "STEPS", 2)
    monkeypatch.setattr(warmstart, "DEMONSTRATIONS", 60)
    first, second, other = (warmstart.build(seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])
    rng = random.Random(0)
    shown = [warmstart.demonstration(warmstart.MEDIOCRE, rng) for _ in range(300)]
    assert not {e.task.name for e in shown} & set(NAMES[20:])
    assert sum(e.malformed for e in shown) / sum(e.turns for e in shown) < 0.03
