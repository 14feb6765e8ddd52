"""Stable-Baselines3's PPO on CartPole watched by the shipped rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rltriage

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")


def test_a_healthy_run_is_silent(tmp_path: Path) -> None:
    """PPO that learns CartPole raises nothing from `warning` up, and its rows are on disk under canonical names."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)  # two threads on a shared machine stall
    fired: list[Any] = []
    hook = rltriage.sb3_callback(name="cartpole", directory=tmp_path, on_alert=fired.append, quiet=True)
    PPO("MlpPolicy", "CartPole-v1", seed=3, n_steps=256, batch_size=64, n_epochs=4).learn(20 * 256, callback=hook)
    assert [alert for alert in fired if alert.severity != "info"] == []
    rows = (tmp_path / "cartpole" / "rows.jsonl").read_text().splitlines()
    assert len(rows) == 21 and '"entropy"' in rows[-2] and '"reward"' in rows[-2]
