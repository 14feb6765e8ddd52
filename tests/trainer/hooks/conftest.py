"""A run that remembers, files of real frameworks, and a small GRPO trainer."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

FRAMEWORKS = Path(__file__).parents[3] / ".cache" / "frameworks"


class Rows:
    """A watched run that only remembers what a hook wrote into it."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.config: dict[str, Any] = {}
        self.profile: str | None = None
        self.name: str | None = None
        self.rows: list[tuple[int | None, dict[str, Any]]] = []
        self.closed: list[str] = []
        self.stop_at = stop_at

    @property
    def should_stop(self) -> bool:
        return self.stop_at is not None and any((step or 0) >= self.stop_at for step, _ in self.rows)

    def declare(self, config: Any, profile: str | None = None, name: str | None = None) -> None:
        self.config, self.profile, self.name = dict(config), profile, name

    def log(self, step: int | None, metrics: Any) -> None:
        self.rows.append((step, dict(metrics)))

    def close(self, state: str = "finished") -> None:
        self.closed.append(state)


@pytest.fixture
def rows() -> Rows:
    """A run that remembers."""
    return Rows()


@pytest.fixture
def framework_file(missing: Callable[[str], NoReturn]) -> Callable[[str], Any]:
    """Loads one file of a framework alone, by its path: importing the package would import ray, or vLLM."""

    def load(name: str) -> Any:
        path = FRAMEWORKS / name
        if not path.is_file():
            missing(f"{name} is not there: python tests/fetch.py frameworks")
        spec = importlib.util.spec_from_file_location(name.removesuffix(".py").replace("/", "_"), path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def tiny_policy(tiny_model: Callable[..., Path]) -> Path:
    """A random Llama."""
    return tiny_model("Llama")


@pytest.fixture
def grpo(
    tiny_policy: Path, early_words: Callable[..., list[float]], grpo_trainer: Callable[..., Any]
) -> Callable[..., Any]:
    """Builds a GRPOTrainer: `grpo(callbacks, trainer_class=None, **GRPOConfig fields)`."""

    def reward(completions: list[str], **_: Any) -> list[float]:
        """1 for a completion of which a third is made of the first five words: some pass and some do not."""
        return [float(share > 1 / 3) for share in early_words(completions)]

    def build(callbacks: list[Any], trainer_class: Any = None, **fields: Any) -> Any:
        settings = {
            "max_steps": 12,
            "logging_steps": 1,
            "per_device_train_batch_size": 16,
            "num_generations": 8,
            "max_completion_length": 32,
        }
        prompts = [f"w{number} w{number + 1}" for number in range(11)]
        return grpo_trainer(tiny_policy, reward, prompts, trainer_class, callbacks, **(settings | fields))

    return build
