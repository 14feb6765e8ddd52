"""Stable-Baselines3's PPO on CartPole watched by the shipped rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rltriage

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")


SOUND = {"n_steps": 256, "batch_size": 64, "gae_lambda": 0.8, "gamma": 0.98, "learning_rate": 1e-3}


def _train(rows: int, directory: Path, **fields: Any) -> list[rltriage.Alert]:
    """PPO on CartPole for so many rows; the alerts from `warning` up that fired."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)  # two threads on a shared machine stall
    alerts: list[rltriage.Alert] = []
    hook = rltriage.sb3_callback(name="cartpole", directory=directory, on_alert=alerts.append, quiet=True)
    settings = {**SOUND, **fields}
    PPO("MlpPolicy", "CartPole-v1", seed=3, **settings).learn(rows * settings["n_steps"], callback=hook)
    return [alert for alert in alerts if alert.state == "firing" and alert.severity != "info"]


def test_a_healthy_run_is_silent(tmp_path: Path) -> None:
    """PPO that learns CartPole raises nothing from `warning` up, and its rows are on disk under canonical names."""
    assert _train(12, tmp_path) == []
    rows = [json.loads(line) for line in (tmp_path / "cartpole" / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 13 and rows[11]["reward"] > rows[0]["reward"] and rows[11]["entropy"] > 0


def test_a_critic_that_is_never_trained_is_named(tmp_path: Path) -> None:
    """With the value loss weighted by zero, the critic explains none of the returns."""
    fired = _train(14, tmp_path, n_steps=64, vf_coef=0.0, n_epochs=1)
    assert "critic_untrained" in {alert.suspects[0].fault for alert in fired}
