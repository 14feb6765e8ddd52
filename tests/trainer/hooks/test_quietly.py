"""What a hook meets inside a framework's callback stays there: a broken configuration, a later version, a failing group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rltriage.rules.errors import RltriageError
from rltriage.trainer.hooks import openrlhf, verl
from rltriage.trainer.hooks.quietly import quietly
from rltriage.trainer.hooks.ranks import any_rank_wants


class Broken:
    """A configuration that cannot be read."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no such thing")


def fails(*_: Any, **__: Any) -> Any:
    """Any call of ours that goes wrong."""
    raise ValueError("broken")


def test_an_exception_is_logged_and_a_wrong_option_passes(caplog: pytest.LogCaptureFixture) -> None:
    """Training goes on; what the user got wrong is said before it starts; Ctrl-C is nobody's to keep."""
    quietly("reading it", fails)
    assert "reading it failed; training goes on" in caplog.text

    def wrong(error: BaseException) -> None:
        raise error

    for error in (RltriageError("profile"), KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)):
            quietly("reading it", wrong, error)


class Raising(dict[str, Any]):
    """A mapping that cannot be read."""

    def get(self, *_: Any) -> Any:
        raise ValueError("broken")


class Logger:
    """OpenRLHF's logger in a version to come: more arguments, some by name."""

    def __init__(self, args: Any, strategy: Any = None) -> None:
        self.rows: list[int] = []

    def log_train(self, global_step: int, logs_dict: Any, *more: Any, flush: bool = False) -> int:
        self.rows.append(global_step)
        return global_step

    def log_eval(self, global_step: int, logs_dict: Any, split: str = "") -> None:
        self.rows.append(global_step)

    def close(self, code: int = 0) -> None:
        self.rows.append(-code)


def fresh(name: str) -> Any:
    """A class of its own: installing changes it."""
    return type(name, (), {key: value for key, value in vars(Logger).items() if key[:2] != "__" or key == "__init__"})


def loggers() -> Any:
    """The module of OpenRLHF that holds them."""
    return SimpleNamespace(WandbLogger=fresh("WandbLogger"), TensorboardLogger=fresh("TensorboardLogger"))


def test_a_later_openrlhf_is_still_watched(rows: Any) -> None:
    """Arguments that we do not know reach OpenRLHF's own method, and its result the caller."""
    module = loggers()
    openrlhf.install(module, lambda name: rows)
    logger = module.WandbLogger(SimpleNamespace(), strategy=3)
    assert logger.log_train(1, {"policy_loss": 0.5}, "x", flush=True) == 1
    logger.log_eval(1, {"pass1": 0.5}, split="test")
    logger.close(code=4)
    assert logger.rows == [1, 1, -4] and len(rows.rows) == 2 and rows.closed == ["finished"]


def test_openrlhf_trains_on_where_the_hook_fails(rows: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A configuration that cannot be read costs its facts; a run that cannot be opened costs the run."""
    module = loggers()
    openrlhf.install(module, lambda name: rows)
    module.WandbLogger(Broken()).log_train(1, {"policy_loss": 0.5})
    assert len(rows.rows) == 1 and "reading the configuration failed" in caplog.text
    module = loggers()
    openrlhf.install(module, fails)
    logger = module.WandbLogger(SimpleNamespace())
    assert logger.log_train(1, {"policy_loss": 0.5}) == 1 and logger.log_train(2, None) == 2
    logger.close()


class Tracking:
    """verl's class in a version to come: one argument more, and others by name alone."""

    supported_backend = ["console"]  # noqa: RUF012 (as verl has it)

    def __init__(
        self,
        project_name: str,
        experiment_name: str,
        default_backend: Any = "console",
        config: Any = None,
        *,
        group: str = "",
    ) -> None:
        self.logger: dict[str, Any] = {}
        self.given = (default_backend, config, group)

    def finish(self) -> None:
        """As verl ends."""


def tracking() -> Any:
    """A fresh class of that contract."""
    return type("Tracking", (), {**vars(Tracking), "supported_backend": ["console"]})


def test_a_later_verl_is_still_watched(rows: Any) -> None:
    """What verl itself takes is passed on as it came, but for our backend's name."""
    kind = tracking()
    verl.install(kind, lambda name: rows)
    run = kind("p", experiment_name="e", default_backend=["console", "rltriage"], config={"data": {"n": 1}}, group="g")
    assert run.given == (["console"], {"data": {"n": 1}}, "g") and list(run.logger) == ["rltriage"]
    run.logger["rltriage"].log({"a": 1.0}, 1)
    run.finish()
    assert rows.config == {"data.n": 1} and rows.closed == ["finished"]
    assert kind("p", "e", None).given[0] is None and kind("p", "e").given[0] == "console"


@pytest.mark.parametrize("broken", ["watch", "config"])
def test_verl_trains_on_where_the_hook_fails(broken: str, rows: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A run that cannot be opened is no backend; a configuration that cannot be read costs its facts."""
    kind = tracking()
    verl.install(kind, fails if broken == "watch" else lambda name: rows)
    run = kind("p", "e", ["console", "rltriage"], Raising(data=1))
    assert list(run.logger) == ([] if broken == "watch" else ["rltriage"])
    assert "watching the run failed" in caplog.text
    run.finish()


def test_sb3_learns_on_where_the_hook_fails(
    rows: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule that raises for us, a logger of another kind: `learn` ends as it would, and the run is closed."""
    pytest.importorskip("stable_baselines3")
    from rltriage.trainer.hooks import sb3

    monkeypatch.setattr(sb3, "config", fails)
    callback = sb3.callback(rows)
    callback.init_callback(SimpleNamespace(logger=SimpleNamespace(), get_env=lambda: None, num_timesteps=0))
    callback.on_training_start({}, {})
    assert callback.on_step()
    callback.on_training_end()
    assert rows.closed == ["finished"] and caplog.text.count("failed; training goes on") == 3


def test_ranks_that_cannot_tell_each_other_do_not_stop(caplog: pytest.LogCaptureFixture) -> None:
    """A backend without this device raises on every rank: none stops alone, which would hang the others, and it is said."""
    group = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, all_reduce=fails, ReduceOp=SimpleNamespace(MAX=0)
    )
    modules = {"torch.distributed": group, "torch": SimpleNamespace(tensor=lambda value, device: value)}
    assert not any_rank_wants(False, "cpu", modules) and caplog.text == ""
    assert not any_rank_wants(True, "cpu", modules) and "ranks cannot tell each other" in caplog.text
