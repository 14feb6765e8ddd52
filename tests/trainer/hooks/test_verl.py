"""verl's tracking backend: against verl's own `Tracking` where verl is installed, and against its contract everywhere."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rltriage.engine.feed import Feed
from rltriage.engine.sources import open_source
from rltriage.trainer.hooks import verl

CONFIG = {
    "actor_rollout_ref": {
        "actor": {
            "ppo_epochs": 2,
            "ppo_mini_batch_size": 64,
            "use_kl_loss": True,
            "kl_loss_coef": 0.001,
            "loss_agg_mode": "token-mean",
            "optim": {"lr": 1e-6},
            "fsdp_config": {"wrap_policy": {"min_num_params": 0}},
        },
        "model": {"path": "/models/base"},
        "rollout": {"temperature": 0.7, "n": 8, "engine_kwargs": {"vllm": {"swap_space": None}}},
    },
    "algorithm": {"adv_estimator": "grpo", "kl_ctrl": {"kl_coef": 0.002}},
    "data": {"train_batch_size": 256, "train_files": "/data/train.parquet"},
    "trainer": {"logger": ["file", "rltriage"], "project_name": "p"},
}


class Tracking:
    """The contract of verl 0.9.1's class: a closed list of backends, a dict of those that are on."""

    supported_backend = ["console", "file"]  # noqa: RUF012 (as verl has it)

    def __init__(self, project_name: str, experiment_name: str, default_backend: Any = "console", config: Any = None):
        for backend in [default_backend] if isinstance(default_backend, str) else default_backend:
            assert backend in self.supported_backend
        self.logger: dict[str, Any] = {}
        self.names = (project_name, experiment_name)

    def log(self, data: Any, step: int, backend: Any = None) -> None:
        for name, logger in self.logger.items():
            if backend is None or name in backend:
                logger.log(data=data, step=step)

    def finish(self, exit_code: int = 0) -> None:
        self.exit_code = exit_code


@pytest.fixture
def tracking() -> Any:
    """A fresh class of that contract: installing changes it."""
    return type("Tracking", (Tracking,), {"__init__": Tracking.__init__, "finish": Tracking.finish})


def test_a_run_that_names_the_backend_is_watched(tracking: Any, rows: Any) -> None:
    """Rows arrive with verl's step, the name is project and experiment, `finish` closes and reaches verl's own."""
    names = []
    verl.install(tracking, lambda name: names.append(name) or rows)
    run = tracking("maths", "grpo-7b", ["console", "rltriage"], CONFIG)
    run.log({"actor/pg_loss": 0.25}, step=3)
    run.finish(exit_code=4)
    assert names == ["maths-grpo-7b"]
    assert rows.rows == [(3, {"actor/pg_loss": 0.25})]
    assert (rows.profile, rows.closed, run.exit_code) == ("verl", ["finished"], 4)


def test_a_run_that_does_not_name_it_is_left_alone(tracking: Any, rows: Any) -> None:
    """Nothing is watched because a module was imported."""
    verl.install(tracking, lambda name: pytest.fail("opened"))
    run = tracking("maths", "grpo-7b", "console", CONFIG)
    run.finish()
    assert run.logger == {}


def test_installing_twice_watches_once(tracking: Any, rows: Any) -> None:
    """verl imports external modules in every process and some modules import each other."""
    verl.install(tracking, lambda name: rows)
    verl.install(tracking, lambda name: rows)
    run = tracking("maths", "grpo-7b", ["rltriage"], CONFIG)
    run.log({"a": 1.0}, step=1)
    run.finish()
    assert (len(rows.rows), rows.closed) == (1, ["finished"])


def test_configuration_is_flat_and_holds_no_paths() -> None:
    """The facts that decide between fault and normal are there by verl's names; paths and engine settings are not."""
    found = verl.config(CONFIG)
    expected = {
        "actor_rollout_ref.actor.ppo_epochs": 2,
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "actor_rollout_ref.rollout.temperature": 0.7,
        "algorithm.kl_ctrl.kl_coef": 0.002,
        "data.train_batch_size": 256,
    }
    assert expected.items() <= found.items()
    assert not [key for key in found if "path" in key or "files" in key or "wrap_policy" in key]
    assert verl.config(None) == {}


@pytest.fixture
def verl_file(framework_file: Callable[[str], Any]) -> Callable[[str], Any]:
    """Loads one file of verl 0.9.1."""
    pytest.importorskip("orjson", reason="orjson is not installed")
    return lambda name: framework_file(f"verl/utils/{name}")


def test_verls_own_tracking_takes_the_backend(
    verl_file: Callable[[str], Any], rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With verl's real class, beside its file backend: both get the row, and the file is read back with its NaN."""
    module = verl_file("tracking.py")
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "rows.jsonl"))
    verl.install(module.Tracking, lambda name: rows)
    run = module.Tracking("maths", "grpo-7b", ["file", "rltriage"], CONFIG)
    run.log({"actor/pg_loss": 0.5, "actor/grad_norm": 1.0}, step=0)
    run.log({"actor/pg_loss": 0.25, "actor/grad_norm": float("nan")}, step=1)
    run.finish()
    run.finish()
    assert rows.rows[1][0] == 1 and rows.rows[1][1]["actor/grad_norm"] != rows.rows[1][1]["actor/grad_norm"]
    assert rows.closed[0] == "finished"
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert lines[1] == {"step": 1, "data": {"actor/pg_loss": 0.25, "actor/grad_norm": None}}
    feed = Feed(open_source(str(tmp_path / "rows.jsonl")), "run")
    metrics = [row.metrics for _, row in feed.rows()]
    assert feed.intakes["run"].run.profile == "verl" and metrics[1]["grad_norm"] != metrics[1]["grad_norm"]


def test_verls_own_console_lines_are_read(verl_file: Callable[[str], Any], tmp_path: Path) -> None:
    """What verl's console backend prints, Python and numpy numbers, text and arrays among the values."""
    pytest.importorskip("torch", reason="torch is not installed")
    import numpy

    module = verl_file("logger/aggregate_logger.py")
    values = {"actor/pg_loss": -0.25, "actor/ppo_kl": numpy.float64(1e-05), "critic/score/mean": numpy.float32(0.5)}
    values |= {"training/global_step": 3, "val-core/openai/gsm8k/acc/mean@8": 0.75, "note": "text", "list": [1, 2]}
    values |= {"actor/grad_norm": float("nan"), "actor/lr": 1e-06}
    text = "".join(f"(TaskRunner pid=7) {module.concat_dict_to_str(values, step)}\n" for step in (3, 4))
    (tmp_path / "log").write_text(text)
    feed = Feed(open_source(str(tmp_path / "log")), "run")
    rows = [row for _, row in feed.rows()]
    assert [row.step for row in rows] == [3, 4] and feed.source.stats.bad == 0
    expected = {"loss": -0.25, "approx_kl": 1e-05, "reward": 0.5, "eval_pass": 0.75, "lr": 1e-06}
    assert expected.items() <= rows[0].metrics.items() and rows[0].metrics["grad_norm"] != rows[0].metrics["grad_norm"]


def test_the_stand_in_is_like_verls_own(verl_file: Callable[[str], Any]) -> None:
    """The class that the other tests use has the real one's signatures."""
    real = verl_file("tracking.py").Tracking
    for name in ("__init__", "log", "finish"):
        ours, theirs = (list(inspect.signature(getattr(kind, name)).parameters) for kind in (Tracking, real))
        assert ours == theirs, name
