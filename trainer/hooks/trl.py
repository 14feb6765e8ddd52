"""TRL and the Hugging Face Trainer: a `TrainerCallback` that passes on every logged row.

What it cannot know: with TRL's defaults (`beta` 0, one update per generation) TRL logs no KL and its ratio is 1 by
construction, so a reference that is the policy and a stale old log-probability cannot show. Of a mask that loses the last
token no metric of TRL's moves. Measured with TRL 1.16: `research/hooks.md`. Source: issue 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltriage.trainer.hooks.quietly import quietly
from rltriage.trainer.hooks.ranks import any_rank_wants

if TYPE_CHECKING:
    from rltriage.trainer.hooks import Watched

# One name, several quantities: `kl` is to the reference in GRPO, to the sampler in asynchronous GRPO. A class of the user's
# own is what it descends from.
_TRAINERS = {
    "GRPOConfig": ("grpo", "trl"),
    "RLOOConfig": ("rloo", "trl/rloo"),
    "AsyncGRPOConfig": ("asyncgrpo", "trl/async"),
    "PPOConfig": ("ppo", "trl/ppo"),
    "OnlineDPOConfig": ("onlinedpo", "trl/online_dpo"),
}
# What the profile derives facts from, and what tells a reader of the run how it was trained.
_CONFIG = (
    "beta",
    "num_iterations",
    "steps_per_generation",
    "gradient_accumulation_steps",
    "loss_type",
    "epsilon",
    "epsilon_high",
    "delta",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "num_generations",
    "max_completion_length",
    "mask_truncated_completions",
    "scale_rewards",
    "reward_weights",
    "importance_sampling_level",
    "use_bias_correction_kl",
    "sync_ref_model",
    "use_vllm",
    "entropy_coef",
    "learning_rate",
    "lr_scheduler_type",
    "weight_decay",
    "max_grad_norm",
    "max_staleness",
    "max_new_tokens",
    "kl_coef",
    "num_ppo_epochs",
    "num_mini_batches",
    "cliprange",
    "response_length",
)


def config(args: Any, max_steps: int = 0, start_step: int = 0) -> dict[str, Any]:
    """The trainer's configuration out of its `args` (GRPOConfig, RLOOConfig, PPOConfig, ...); what it lacks is left out.

    Keys are TRL's own, which the profile translates, and canonical ones for what takes more than one look: `max_steps` is
    the length of the run in optimizer steps, `start_step` the step that it resumes at (0: it starts at the start).
    """
    found = {name: _plain(getattr(args, name, None)) for name in _CONFIG}
    found["algorithm"] = _trainer(args)[0]
    found["precision"] = "bf16" if getattr(args, "bf16", False) else "fp16" if getattr(args, "fp16", False) else "fp32"
    if max_steps > 0:
        found["steps"] = max_steps
        found["warmup_steps"] = _warmup(args, max_steps)
    if start_step > 0:
        found["resumed_at"] = start_step
    return {name: value for name, value in found.items() if value is not None}


def _trainer(args: Any) -> tuple[str, str]:
    """Algorithm and profile of a trainer's arguments."""
    names = (kind.__name__ for kind in type(args).__mro__)
    own = type(args).__name__.removesuffix("Config").lower()
    return next((_TRAINERS[name] for name in names if name in _TRAINERS), (own, "trl"))


def _warmup(args: Any, max_steps: int) -> int:
    """`warmup_steps` is a number of steps, or a share of the run where it is below 1 (transformers 5; before: a ratio)."""
    steps = getattr(args, "warmup_steps", None) or getattr(args, "warmup_ratio", None) or 0
    return int(steps) if steps >= 1 else math.ceil(max_steps * steps)


def _plain(value: Any) -> Any:
    """Enums as their value; anything that is not plain data is left out."""
    value = getattr(value, "value", value)
    if isinstance(value, (list, tuple)):
        return list(value) if all(isinstance(item, (int, float)) for item in value) else None
    return value if isinstance(value, (bool, int, float, str)) else None


def callback(run: Watched, *, halting: bool = False) -> Any:
    """A `transformers.TrainerCallback` that logs into `run`; with `halting`, training stops when `run.should_stop`.

    Rows come from the main process only. With several processes and `halting`, one flag is exchanged per logged row,
    because all of them must stop at the same step. Raises ImportError where transformers is missing.
    """
    from transformers import TrainerCallback

    class RltriageCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]  # what TRL types is not followed
        """Passes the trainer's rows and configuration to rltriage."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                quietly("reading the trainer's configuration", _declare, run, args, state)

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            # The last row of a run sums it up (train_runtime, ...): no step, no metrics of the policy.
            if state.is_world_process_zero and logs and "train_runtime" not in logs:
                run.log(state.global_step, logs)
            if halting and any_rank_wants(run.should_stop, getattr(args, "device", "cpu")):
                control.should_training_stop = True

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                run.close()

    return RltriageCallback()


def _declare(run: Watched, args: Any, state: Any) -> None:
    run.declare(config(args, state.max_steps, state.global_step), profile=_trainer(args)[1], name=_name(args))


def _name(args: Any) -> str | None:
    """The run's name where the user gave one: transformers before 5 puts `output_dir` there by itself."""
    name = getattr(args, "run_name", None)
    return name if isinstance(name, str) and name and name != getattr(args, "output_dir", None) else None
