"""A GRPO trainer small enough for a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def tiny_qwen(tiny_model: Callable[..., Path]) -> Path:
    """A random Qwen2; at the default range of .02 all its words would have the same probability."""
    return tiny_model("Qwen2", attention_dropout=0.0, initializer_range=0.2)


@pytest.fixture
def grpo(tiny_qwen: Path, early_words: Callable[..., list[float]], grpo_trainer: Callable[..., Any]) -> Callable[..., Any]:
    """Builds a GRPOTrainer: `grpo(trainer_class=None, **GRPOConfig fields)`, 2 micro-batches an update."""

    def reward(completions: list[str], **_: Any) -> list[float]:
        return early_words(completions)

    def build(trainer_class: Any = None, **fields: Any) -> Any:
        settings = {
            "max_steps": 2,
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 2,
            "num_generations": 4,
            "max_completion_length": 8,
        }
        prompts = [" ".join(f"w{(number + k) % 12}" for k in range(1 + number % 5)) for number in range(11)]
        return grpo_trainer(tiny_qwen, reward, prompts, trainer_class, **(settings | fields))

    return build
