"""Stable-Baselines3's PPO on CartPole with the hook, for real."""

from __future__ import annotations

from typing import Any

import pytest

from rltriage.engine.intake import Intake
from rltriage.engine.rows import Record
from rltriage.trainer.hooks import sb3

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")


def _ppo(**fields: Any) -> Any:
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)  # two threads on a shared machine stall
    return PPO("MlpPolicy", "CartPole-v1", seed=3, **({"n_steps": 128, "batch_size": 64, "n_epochs": 4} | fields))


def test_every_dumped_row_and_the_last_update_arrive(rows: Any) -> None:
    """Rows are those of the logger; what the last update measured, which SB3 never dumps, comes when training ends."""
    _ppo().learn(3 * 128, callback=sb3.callback(rows))
    assert [step for step, _ in rows.rows] == [128, 256, 384, 385]
    assert "train/loss" not in rows.rows[0][1], "nothing was trained before the first row"
    assert {"rollout/ep_rew_mean", "train/entropy_loss", "train/approx_kl"} <= rows.rows[1][1].keys()
    assert rows.rows[3][1]["train/n_updates"] == 12
    assert rows.profile == "stable_baselines3"
    assert rows.closed == ["finished"]


def test_configuration_is_read_from_the_model(rows: Any) -> None:
    """Updates per rollout, clip range, learning rate and the critic are facts of the model, schedules included."""
    _ppo().learn(128, callback=sb3.callback(rows))
    expected = {"algorithm": "ppo", "updates_per_batch": 8, "epochs": 4, "minibatches": 2, "clip_range": 0.2}
    assert (expected | {"learning_rate": 3e-4, "has_critic": True, "kl_coef": 0.0}).items() <= rows.config.items()
    assert "resumed_at" not in rows.config


def test_learning_stops_when_asked(rows: Any) -> None:
    """With `halting`, `learn` returns after the row that set `should_stop`."""
    rows.stop_at = 256
    model = _ppo()
    model.learn(2000, callback=sb3.callback(rows, halting=True))
    assert model.num_timesteps < 2 * 256


def test_the_logger_is_left_as_it_was(rows: Any) -> None:
    """After training the hook's writer is gone from the logger."""
    model = _ppo()
    model.learn(128, callback=sb3.callback(rows))
    assert not [each for each in model.logger.output_formats if "Rows" in type(each).__name__]


def test_a2c_takes_one_step_a_rollout(rows: Any) -> None:
    """A2C has no epochs and no minibatches: one update a rollout, so that no rule waits for a second one."""
    import torch
    from stable_baselines3 import A2C

    torch.set_num_threads(1)
    A2C("MlpPolicy", "CartPole-v1", seed=3, n_steps=8).learn(64, log_interval=2, callback=sb3.callback(rows))
    expected = {"algorithm": "a2c", "updates_per_batch": 1, "epochs": 1, "minibatches": 1, "has_critic": True}
    assert expected.items() <= rows.config.items()
    assert {"train/policy_loss", "train/value_loss", "train/explained_variance"} <= rows.rows[-1][1].keys()
    metrics = [row.metrics for step, values in rows.rows for row in _intake(rows).rows(Record(values, step=step))]
    assert {"loss", "entropy", "explained_variance"} <= metrics[-1].keys()


def _intake(rows: Any) -> Intake:
    return Intake("run", rows.profile, rows.config)
