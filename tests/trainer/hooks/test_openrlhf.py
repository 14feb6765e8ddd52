"""OpenRLHF's loggers, as its 0.11.2 has them: `log_train(global_step, logs_dict)` and `log_eval` on two classes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rltriage.trainer.hooks import openrlhf

ARGS = SimpleNamespace(
    actor=SimpleNamespace(eps_clip=0.2, adam=SimpleNamespace(lr=5e-7), model_name_or_path="/models/base"),
    algo=SimpleNamespace(kl=SimpleNamespace(init_coef=0.01)),
    logger=SimpleNamespace(wandb=SimpleNamespace(run_name="r1", key=None), tensorboard_dir="/logs"),
    rollout=SimpleNamespace(n_samples_per_prompt=8),
)


@pytest.fixture
def loggers() -> Any:
    """The module with its two classes, fresh for each test: installing changes them."""

    class Logger:
        def __init__(self, args: Any) -> None:
            self.lines: list[tuple[str, int, Any]] = []
            self.open = True

        def log_train(self, global_step: int, logs_dict: Any) -> None:
            self.lines.append(("train", global_step, logs_dict))

        def log_eval(self, global_step: int, logs_dict: Any) -> None:
            self.lines.append(("eval", global_step, logs_dict))

        def close(self) -> None:
            self.open = False

    def fresh(name: str) -> Any:
        return type(name, (), {key: value for key, value in vars(Logger).items() if key[:2] != "__" or key == "__init__"})

    return SimpleNamespace(WandbLogger=fresh("WandbLogger"), TensorboardLogger=fresh("TensorboardLogger"))


def test_rows_arrive_once_where_both_loggers_are_on(loggers: Any, rows: Any) -> None:
    """The first logger built speaks; each logger still does its own work."""
    openrlhf.install(loggers, lambda name: rows)
    wandb, tensorboard = loggers.WandbLogger(ARGS), loggers.TensorboardLogger(ARGS)
    for logger in (wandb, tensorboard):
        logger.log_train(5, {"policy_loss": 0.5, "generated_samples": None})
        logger.log_eval(5, {"eval_maths_pass1": 0.25})
        logger.close()
    assert rows.rows == [
        (5, {"train/policy_loss": 0.5, "train/generated_samples": None}),
        (5, {"eval/eval_maths_pass1": 0.25}),
    ]
    assert len(wandb.lines) == len(tensorboard.lines) == 2 and not wandb.open and not tensorboard.open
    assert rows.closed == ["finished"]


def test_configuration_comes_from_the_arguments(loggers: Any, rows: Any) -> None:
    """Nested arguments become dotted names; the run is called as in W&B; paths stay out."""
    names = []
    openrlhf.install(loggers, lambda name: names.append(name) or rows)
    loggers.TensorboardLogger(ARGS)
    assert names == ["r1"]
    assert rows.profile == "openrlhf"
    assert {"actor.eps_clip": 0.2, "actor.adam.lr": 5e-7, "algo.kl.init_coef": 0.01}.items() <= rows.config.items()
    assert not [key for key in rows.config if "path" in key or "dir" in key]


def test_installing_twice_logs_once(loggers: Any, rows: Any) -> None:
    """Ray may run the set-up function more than once in a worker."""
    openrlhf.install(loggers, lambda name: rows)
    openrlhf.install(loggers, lambda name: rows)
    loggers.WandbLogger(ARGS).log_train(1, {"a": 1.0})
    assert len(rows.rows) == 1
