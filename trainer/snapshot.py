"""The reference trainer's state before an update, as tensors and JSON for the flight recorder, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rltriage.trainer.config import TrainConfig
from rltriage.trainer.policy import Policy
from rltriage.trainer.sampling import Batch


def snapshot(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    config: TrainConfig,
    generator: torch.Generator,
    fault: str | None,
    reference: Policy | None,
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """State before an update as the recorder takes it: tensors by file, and the JSON part."""
    state = optimizer.state_dict()
    moments = {f"{i}.{key}": value for i, values in state["state"].items() for key, value in values.items()}
    parts = {
        "batch": {"ids": batch.ids, "mask": batch.mask, "sample_logp": batch.sample_logp, "rewards": batch.rewards},
        "model": dict(policy.state_dict()),
        "optimizer": moments,
        "rng": {"run": generator.get_state(), "torch": torch.random.get_rng_state()},
    }
    if reference is not None and reference is not policy:
        parts["reference"] = dict(reference.state_dict())
    return parts, {"config": dataclasses.asdict(config), "fault": fault, "lr": float(state["param_groups"][0]["lr"])}


def restore_optimizer(policy: Policy, moments: Mapping[str, Tensor], lr: float) -> torch.optim.Optimizer:
    """Adam over `policy` with the moments of a snapshot."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in moments.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return optimizer
