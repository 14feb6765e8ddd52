"""Stable-Baselines3: a callback that reads every row its logger dumps, as TensorBoard and `progress.csv` get it.

What it cannot know: SB3 logs no gradient norm, no ratio extremes and no KL to a reference; its first row holds no `train/*`
(nothing was trained yet) and every later one those of the update before. The last update is never dumped: it is read when
training ends. Measured with 2.9: `research/hooks.md`. Source: issue 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rltriage.trainer.hooks.quietly import quietly

if TYPE_CHECKING:
    from rltriage.trainer.hooks import Watched

_CONFIG = (
    "n_epochs",
    "n_steps",
    "n_envs",
    "batch_size",
    "gamma",
    "gae_lambda",
    "ent_coef",
    "vf_coef",
    "max_grad_norm",
    "target_kl",
    "normalize_advantage",
)


def config(model: Any) -> dict[str, Any]:
    """The configuration of an SB3 model: its own attributes, schedules as their value at the start."""
    found = {name: getattr(model, name, None) for name in _CONFIG}
    found = {name: value for name, value in found.items() if isinstance(value, (bool, int, float, str))}
    for name in ("learning_rate", "clip_range"):
        value = getattr(model, name, None)
        value = value(1.0) if callable(value) else value
        if isinstance(value, (int, float)):
            found[name] = value
    found["algorithm"] = type(model).__name__.lower()
    if hasattr(model, "rollout_buffer"):
        found |= _on_policy(model)
    if getattr(model, "num_timesteps", 0) > 0:
        found["resumed_at"] = model.num_timesteps
    return found


def _on_policy(model: Any) -> dict[str, Any]:
    """PPO and A2C train a critic and have no reference policy; PPO alone passes over its rollout more than once."""
    found: dict[str, Any] = {"has_critic": True, "kl_coef": 0.0}
    epochs, batch = getattr(model, "n_epochs", 1), getattr(model, "batch_size", None)
    rollout = model.n_steps * model.n_envs
    minibatches = -(-rollout // batch) if batch else 1
    return found | {"epochs": epochs, "minibatches": minibatches, "updates_per_batch": epochs * minibatches}


def callback(run: Watched, *, halting: bool = False) -> Any:
    """A `stable_baselines3` callback that logs into `run`; with `halting`, `learn` returns once `run.should_stop`.

    Raises ImportError where stable_baselines3 is missing.
    """
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import KVWriter

    class Rows(KVWriter):  # type: ignore[misc, unused-ignore]  # what SB3 types is not followed
        """Takes every dumped row; values arrive as SB3 recorded them."""

        def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
            run.log(step, key_values)

        def close(self) -> None:
            """The run is closed when training ends."""

    class RltriageCallback(BaseCallback):  # type: ignore[misc, unused-ignore]
        """Passes SB3's rows and configuration to rltriage."""

        def _on_training_start(self) -> None:
            self.rows = Rows()
            quietly("reading the configuration", lambda: run.declare(config(self.model), profile="stable_baselines3"))
            quietly("listening to the logger", lambda: self.logger.output_formats.append(self.rows))

        def _on_step(self) -> bool:
            return not (halting and run.should_stop)

        def _on_training_end(self) -> None:
            quietly("reading the last update", self._take_last)
            run.close()

        def _take_last(self) -> None:
            formats = self.logger.output_formats
            if self.rows in formats:
                formats.remove(self.rows)
            last = {name: value for name, value in self.logger.name_to_value.items() if name.startswith("train/")}
            if last:
                # The row of `num_timesteps` exists and holds the update before this one.
                run.log(self.num_timesteps + 1, last)

    return RltriageCallback()
