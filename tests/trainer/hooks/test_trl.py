"""TRL's GRPOTrainer with the hook, for real: what it passes on and how it stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rltriage.trainer.hooks import trl


def test_rows_and_configuration_of_a_run_reach_the_watch(grpo: Any, rows: Any) -> None:
    """Every logged row arrives with the trainer's step, the configuration before it, the end once, no summary row."""
    grpo([trl.callback(rows)], max_steps=4, num_iterations=2, beta=0.04, warmup_steps=0.5).train()
    assert [step for step, _ in rows.rows] == [1, 2, 3, 4]
    assert {"loss", "grad_norm", "learning_rate", "kl", "reward"} <= rows.rows[0][1].keys()
    assert "reward" not in rows.rows[1][1], "a reused batch logs no reward, and none must be made up"
    expected = {"beta": 0.04, "num_iterations": 2, "steps": 4, "warmup_steps": 2, "algorithm": "grpo", "precision": "fp32"}
    assert expected.items() <= rows.config.items()
    assert "resumed_at" not in rows.config
    assert rows.profile == "trl"
    assert rows.closed == ["finished"]


def test_a_run_stops_at_the_row_that_asks_for_it(grpo: Any, rows: Any) -> None:
    """With `halting`, training ends with the step whose row set `should_stop`."""
    rows.stop_at = 3
    trainer = grpo([trl.callback(rows, halting=True)])
    trainer.train()
    assert trainer.state.global_step == 3


def test_a_run_goes_on_where_nobody_asked_for_a_stop(grpo: Any, rows: Any) -> None:
    """Without `halting` the same alert changes nothing."""
    rows.stop_at = 3
    trainer = grpo([trl.callback(rows)], max_steps=5)
    trainer.train()
    assert trainer.state.global_step == 5


def test_other_ranks_stay_silent(rows: Any) -> None:
    """A process that is not the main one declares nothing, logs nothing and closes nothing."""
    hook = trl.callback(rows)
    state = SimpleNamespace(is_world_process_zero=False, global_step=1, max_steps=4)
    control = SimpleNamespace(should_training_stop=False)
    hook.on_train_begin(SimpleNamespace(), state, control)
    hook.on_log(SimpleNamespace(), state, control, logs={"loss": 1.0})
    hook.on_train_end(SimpleNamespace(), state, control)
    assert (rows.config, rows.rows, rows.closed) == ({}, [], [])


@pytest.mark.parametrize(
    ("given", "name"),
    [("my-run", "my-run"), (None, None), ("", None), ("out", None)],
)
def test_a_run_is_called_as_the_arguments_call_it(rows: Any, given: str | None, name: str | None) -> None:
    """`run_name`, unless it is `output_dir`: that is what older versions of transformers put there."""
    args = SimpleNamespace(run_name=given, output_dir="out")
    trl._declare(rows, args, SimpleNamespace(max_steps=4, global_step=0))
    assert rows.name == name


def test_arguments_that_cannot_be_read_do_not_end_training(rows: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An exception in a callback would end training: it is logged instead."""

    class Hostile:
        @property
        def warmup_steps(self) -> float:
            raise RuntimeError("no such thing")

    state = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=4)
    trl.callback(rows).on_train_begin(Hostile(), state, None)
    assert "configuration failed" in caplog.text


def test_a_resumed_run_says_so() -> None:
    """A trainer that starts at a later step declares where it resumed."""
    assert trl.config(SimpleNamespace(beta=0.0), max_steps=10, start_step=6)["resumed_at"] == 6


@pytest.mark.parametrize(("steps", "expected"), [(0, 0), (3, 3), (0.1, 10), (1, 1)])
def test_warm_up_is_in_steps(steps: float, expected: int) -> None:
    """transformers 5 takes a number of steps or a share of the run in one field; the fact is always in steps."""
    assert trl.config(SimpleNamespace(warmup_steps=steps), max_steps=100)["warmup_steps"] == expected


@pytest.mark.parametrize(
    ("trainer", "profile"), [("GRPOConfig", "trl"), ("RLOOConfig", "trl/rloo"), ("AsyncGRPOConfig", "trl/async")]
)
def test_each_trainer_has_its_profile(rows: Any, trainer: str, profile: str) -> None:
    """`kl` means another quantity in each of TRL's trainers, so the class of the arguments decides the profile."""
    state = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=4)
    trl.callback(rows).on_train_begin(type(trainer, (), {})(), state, None)
    assert rows.profile == profile
