"""`train --config` and `--seed`: what the trainer cannot have is refused before anything is made."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from rltriage.cli.train_config import train_config
from rltriage.rules.errors import RltriageError
from rltriage.trainer.config import TrainConfig


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("lr=abc", "a number from 0 to"),
        ("lr=-1", "a number from 0 to"),
        ("lr=.nan", "a number from 0 to"),
        ("lr=.inf", "a number from 0 to"),
        ("lr=1e38", "a number from 0 to"),
        ("lr=true", "a number from 0 to"),
        ("lr=", "a number from 0 to"),
        ("epochs=0", "a whole number from 1 to"),
        ("group_size=0", "a whole number from 1 to"),
        ("group_size=2.5", "a whole number from 1 to"),
        ("group_size=true", "a whole number from 1 to"),
        ("eval_every=0", "a whole number from 1 to"),
        ("tasks_per_step=21", "a whole number from 1 to 20"),
        ("max_turns=60", "a whole number from 1 to 42"),
        ("minibatches=65", "a step has 64 episodes"),
        ("temperature=0", "a number from 1e-06 to"),
        ("reward=foo", "hidden or public"),
        ("reward=1", "hidden or public"),
        ("loss_mode=foo", "token_mean or seq_mean_token_mean"),
    ],
)
@pytest.mark.parametrize("seeds", [(), ("--seeds", "0-1")])
def test_a_value_that_the_trainer_cannot_have_is_refused_before_anything_is_made(
    rltriage, tmp_path: Path, value: str, wanted: str, seeds: tuple[str, ...]
) -> None:
    """One sentence with the field, the value and what to write; no folder is left behind."""
    pytest.importorskip("torch")
    ran = rltriage("train", "--steps", 1, "--runs", tmp_path / "runs", *seeds, "--config", value)
    assert ran.code == 2 and not (tmp_path / "runs").exists()
    message = ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err and ran.err.count("Error: ") == 1
    assert f"{value.partition('=')[0]}=" in message and "cannot be: " in message and wanted in message


@pytest.mark.parametrize("seed", [("--seed", 2**70), ("--seed", -1), ("--seeds", f"{2**70}")])
def test_a_seed_that_no_generator_takes_is_refused(rltriage, tmp_path: Path, seed: tuple[object, ...]) -> None:
    """Before a folder is made, like any other wrong number."""
    pytest.importorskip("torch")
    ran = rltriage("train", "--steps", 1, "--runs", tmp_path / "runs", *seed)
    assert ran.code == 2 and "Traceback" not in ran.err and not (tmp_path / "runs").exists()


def test_every_field_of_the_trainer_takes_its_own_default_and_no_text() -> None:
    """What is checked follows the dataclass: a field that is new there is checked, too."""
    defaults = asdict(TrainConfig())
    assert train_config(defaults) == TrainConfig()
    for name in defaults:
        with pytest.raises(RltriageError, match=name):
            train_config({name: "nothing like it"})
    whole = train_config({"lr": 1})
    assert (whole.lr, type(whole.lr)) == (1.0, float)
