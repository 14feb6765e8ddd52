"""What a run of the reference trainer is told, and the config facts that rules may ask about. Loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

LossMode = Literal["token_mean", "seq_mean_token_mean"]
RewardKind = Literal["hidden", "public"]


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One GRPO run on TinyAgent; the defaults are the chapter's (section 18.2).

    A step samples `tasks_per_step` groups of `group_size` episodes of at most `max_turns` calls and makes
    `epochs * minibatches` Adam updates on them. `reward` is the verifier that pays: hidden tests, or the public ones that
    `hardcode_tests` defeats. `kl_coef` weighs a k3 KL to a frozen copy of the start, `entropy_coef` an entropy bonus in
    nats; both are off at 0. Held-out tasks are evaluated every `eval_every` steps with `eval_episodes` episodes a task.
    """

    lr: float = 1e-3
    epochs: int = 1
    minibatches: int = 2
    clip_eps: float = 0.2
    group_size: int = 8
    tasks_per_step: int = 8
    max_turns: int = 6
    max_grad_norm: float = 1.0
    temperature: float = 1.0
    kl_coef: float = 0.0
    entropy_coef: float = 0.0
    loss_mode: LossMode = "token_mean"
    reward: RewardKind = "hidden"
    eval_every: int = 8
    eval_episodes: int = 4

    @property
    def episodes_per_step(self) -> int:
        """Rows of a batch."""
        return self.tasks_per_step * self.group_size


def config_facts(config: TrainConfig, *, steps: int | None = None) -> dict[str, Any]:
    """The run's config facts under their canonical names (DESIGN section 5): what the run was told, not what it does.

    A fault that lives in code is not a fact: `old_logp_source` stays `trainer` under a temperature mismatch.
    """
    facts: dict[str, Any] = {
        "algorithm": "grpo",
        "kl_coef": config.kl_coef,
        "updates_per_batch": config.epochs * config.minibatches,
        "epochs": config.epochs,
        "minibatches": config.minibatches,
        "loss_mode": config.loss_mode,
        "temperature": config.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "precision": "fp32",
        "has_critic": False,
        "group_size": config.group_size,
        "reward_max": 1.0,
        "max_turns": config.max_turns,
        "lr": config.lr,
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "entropy_coef": config.entropy_coef,
        "clip_eps": config.clip_eps,
        "async_lag": 0,
        "old_logp_source": "trainer",
    }
    return facts if steps is None else {**facts, "steps": steps}
