"""OpenRLHF's loggers, as its 0.11.2 has them: `log_train(global_step, logs_dict)` and `log_eval` on two classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rltriage.engine.feed import Feed
from rltriage.engine.sources import open_source
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


@pytest.fixture
def real_loggers(framework_file: Callable[[str], Any]) -> Any:
    """OpenRLHF 0.11.2's own module."""
    return framework_file("openrlhf/utils/logging_utils.py")


def test_openrlhfs_own_tensorboard_logger(real_loggers: Any, rows: Any, tmp_path: Path) -> None:
    """With its real class: the rows arrive, its event file is written, and reading that file gives the same rows."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    logger_args = SimpleNamespace(wandb=SimpleNamespace(run_name="r1", key=None), tensorboard_dir=str(tmp_path))
    openrlhf.install(real_loggers, lambda name: rows)
    logger = real_loggers.TensorboardLogger(SimpleNamespace(**vars(ARGS) | {"logger": logger_args}))
    for step in (1, 2, 3):
        status = {"policy_loss": -0.01, "ppo_kl": 1e-4, "ppo_clip_ratio": 0.02, "rollout/reward_mean": step / 4}
        logger.log_train(step, status | {"generated_samples": ("text", 1.0)})
        logger.log_eval(step, {"eval_maths_pass1": 0.25, "eval_none": None})
    logger.close()
    assert [step for step, _ in rows.rows] == [1, 1, 2, 2, 3, 3] and rows.closed == ["finished"]
    feed = Feed(open_source(str(tmp_path)), "run")
    read = [(intake.run.profile, row.step, row.metrics["reward"], row.metrics["eval_pass"]) for intake, row in feed.rows()]
    assert read == [("openrlhf", step, step / 4, 0.25) for step in (1, 2, 3)]


def test_the_stand_in_is_like_openrlhfs_own(real_loggers: Any, loggers: Any) -> None:
    """The classes that the other tests use have the real ones' signatures."""
    for kind in ("WandbLogger", "TensorboardLogger"):
        for name in ("__init__", "log_train", "log_eval", "close"):
            ours, theirs = (
                list(inspect.signature(getattr(getattr(module, kind), name)).parameters)
                for module in (loggers, real_loggers)
            )
            assert ours == theirs, f"{kind}.{name}"
