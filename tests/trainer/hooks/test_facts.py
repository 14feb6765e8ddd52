"""What each hook reads from its framework's configuration, as the canonical facts that rules ask for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rltriage.engine.intake import Intake
from rltriage.trainer.hooks import openrlhf, sb3, trl, verl


def _facts(profile: str, config: dict[str, Any]) -> dict[str, Any]:
    return {name: fact.value for name, fact in Intake("r", profile, config).run.facts.items()}


def test_trl() -> None:
    """Updates per batch are passes over a generation times its optimizer steps."""
    fields = {"beta": 0.04, "num_iterations": 2, "steps_per_generation": 8, "gradient_accumulation_steps": 4}
    fields |= {"loss_type": "dapo", "epsilon": 0.2, "temperature": 0.9, "top_p": 1.0, "top_k": 0, "num_generations": 8}
    fields |= {"max_completion_length": 256, "learning_rate": 1e-6, "warmup_steps": 0.1, "bf16": True}
    found = _facts("trl", trl.config(type("GRPOConfig", (), fields)(), max_steps=100, start_step=40))
    expected = {"kl_coef": 0.04, "updates_per_batch": 4, "loss_mode": "token_mean", "clip_eps": 0.2, "temperature": 0.9}
    expected |= {"top_p": 1.0, "top_k": 0, "group_size": 8, "max_length": 256, "lr": 1e-6, "warmup_steps": 10, "steps": 100}
    assert (
        expected | {"precision": "bf16", "has_critic": False, "resumed_at": 40, "algorithm": "grpo"}
    ).items() <= found.items()


def test_stable_baselines3() -> None:
    """PPO passes n_epochs times over its minibatches, trains a critic and knows no reference policy."""
    model = type("PPO", (), {"n_epochs": 10, "n_steps": 2048, "n_envs": 1, "batch_size": 64, "ent_coef": 0.0})()
    model.rollout_buffer, model.learning_rate, model.clip_range, model.num_timesteps = object(), 3e-4, lambda _: 0.2, 0
    found = _facts("stable_baselines3", sb3.config(model))
    expected = {"updates_per_batch": 320, "epochs": 10, "clip_eps": 0.2, "lr": 3e-4, "has_critic": True, "kl_coef": 0.0}
    assert (expected | {"entropy_coef": 0.0}).items() <= found.items()


def test_verl() -> None:
    """The coefficient of the KL counts only where the KL is switched on; GRPO has no critic."""
    actor = {"ppo_epochs": 1, "ppo_mini_batch_size": 64, "use_kl_loss": True, "kl_loss_coef": 0.001, "clip_ratio": 0.2}
    actor |= {"optim": {"lr": 1e-6}, "loss_agg_mode": "token-mean", "entropy_coeff": 0}
    tree = {
        "actor_rollout_ref": {"actor": actor, "rollout": {"temperature": 0.7, "top_p": 0.9, "n": 8}},
        "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False, "kl_ctrl": {"kl_coef": 0.002}},
        "data": {"train_batch_size": 256, "max_response_length": 1024},
    }
    expected = {"kl_coef": 0.001, "updates_per_batch": 4, "loss_mode": "token_mean", "temperature": 0.7, "top_p": 0.9}
    expected |= {"group_size": 8, "max_length": 1024, "lr": 1e-6, "clip_eps": 0.2, "has_critic": False}
    assert expected.items() <= _facts("verl", verl.config(tree)).items()


def test_openrlhf() -> None:
    """OpenRLHF 0.11 keeps its arguments in nested namespaces."""
    space = SimpleNamespace
    args = space(
        actor=space(eps_clip=0.2),
        algo=space(kl=space(init_coef=0.01), advantage=space(estimator="reinforce")),
        rollout=space(n_samples_per_prompt=8, temperature=1.0, batch_size=128),
        train=space(max_epochs=1, batch_size=128),
    )
    expected = {"kl_coef": 0.01, "group_size": 8, "clip_eps": 0.2, "temperature": 1.0, "has_critic": False}
    assert expected.items() <= _facts("openrlhf", openrlhf.config(args)).items()
