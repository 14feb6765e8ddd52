"""Alerts in the trackers that are active in the process. Stand-ins: the calls of wandb 0.31, trackio 0.43, mlflow 3.17."""

from __future__ import annotations

import contextvars
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rltriage.trainer.hooks.trackers import _WAITING, Post, Trackers

POST = Post("critical: mask_shift suspected", "seen\n  since step 3", "critical", 3, {"fault": "mask_shift", "step": "3"})


def _deliver(modules: dict[str, Any], post: Post = POST) -> Trackers:
    trackers = Trackers(modules)
    trackers.post(post)
    trackers.close()
    return trackers


def test_wandb_gets_an_alert_of_the_right_level() -> None:
    """The open run's `alert` is called, with a title of the length that W&B takes."""
    calls: list[dict[str, Any]] = []
    run = SimpleNamespace(alert=lambda **call: calls.append(call))
    _deliver({"wandb": SimpleNamespace(run=run)}, Post("x" * 80, "text", "warning", 1))
    assert calls == [{"title": "x" * 63, "text": "text", "level": "WARN"}]


def test_trackio_gets_an_alert_in_the_context_of_its_run() -> None:
    """Trackio's current run is a context variable, which another thread would not see."""
    current: contextvars.ContextVar[str | None] = contextvars.ContextVar("current", default=None)
    calls: list[Any] = []
    level = SimpleNamespace(INFO="info", WARN="warn", ERROR="error")
    trackio = SimpleNamespace(AlertLevel=level, alert=lambda **call: calls.append((current.get(), call)))
    modules = {"trackio": trackio, "trackio.context_vars": SimpleNamespace(current_run=current)}
    _deliver(modules)
    current.set("my run")
    _deliver(modules)
    assert calls == [("my run", {"title": POST.title, "text": POST.text, "level": "error"})]


def test_mlflow_gets_tags_on_the_run_of_the_training_thread() -> None:
    """MLflow's active run is thread-local: it is looked up by the caller, the server is talked to by our thread."""
    threads: list[str] = []
    tags: list[tuple[str, str, str]] = []

    def active_run() -> Any:
        threads.append(threading.current_thread().name)
        return SimpleNamespace(info=SimpleNamespace(run_id="r7"))

    client = SimpleNamespace(set_tag=lambda run, name, value: tags.append((run, name, value)))
    _deliver({"mlflow": SimpleNamespace(active_run=active_run, MlflowClient=lambda: client)})
    assert tags == [("r7", "rltriage.fault", "mask_shift"), ("r7", "rltriage.step", "3")]
    assert threads == [threading.current_thread().name]


def test_every_open_tensorboard_writer_gets_the_text() -> None:
    """Writers are found among the objects of the process; a closed one is left closed."""

    class SummaryWriter:
        def __init__(self, file_writer: object) -> None:
            self.file_writer = file_writer
            self.texts: list[tuple[str, str, int]] = []

        def add_text(self, tag: str, text: str, step: int) -> None:
            self.texts.append((tag, text, step))

        def flush(self) -> None:
            pass

    writer, closed = SummaryWriter(object()), SummaryWriter(None)
    _deliver({"torch.utils.tensorboard.writer": SimpleNamespace(SummaryWriter=SummaryWriter)})
    assert writer.texts == [("rltriage/alert", "    seen\n      since step 3\n", 3)]
    assert closed.texts == []


def test_nothing_happens_where_no_tracker_is_active() -> None:
    """An imported tracker without a run is not active; no thread is started for nothing."""
    before = threading.active_count()
    trackers = Trackers({"wandb": SimpleNamespace(run=None), "mlflow": SimpleNamespace(active_run=lambda: None)})
    trackers.post(POST)
    assert threading.active_count() == before
    assert trackers.failures == 0


def test_a_tracker_that_fails_is_counted_and_the_next_still_hears(caplog: pytest.LogCaptureFixture) -> None:
    """A tracker that raises is said once; the others get their post."""

    def refuse(**_: Any) -> None:
        raise ConnectionError("unreachable")

    tags: list[str] = []
    client = SimpleNamespace(set_tag=lambda run, name, value: tags.append(name))
    run = SimpleNamespace(info=SimpleNamespace(run_id="r7"))
    modules = {
        "wandb": SimpleNamespace(run=SimpleNamespace(alert=refuse)),
        "mlflow": SimpleNamespace(active_run=lambda: run, MlflowClient=lambda: client),
    }
    trackers = Trackers(modules)
    trackers.post(POST)
    trackers.post(POST)
    trackers.close()
    assert trackers.failures == 2
    assert len([line for line in caplog.records if "tracker" in line.message]) == 1
    assert tags == ["rltriage.fault", "rltriage.step"] * 2


def test_a_tracker_that_hangs_does_not_make_training_wait() -> None:
    """Posts beyond what the queue holds are dropped and counted; the caller never waits."""
    release = threading.Event()
    run = SimpleNamespace(alert=lambda **_: release.wait())
    trackers = Trackers({"wandb": SimpleNamespace(run=run)})
    for _ in range(80):
        trackers.post(POST)
    dropped = trackers.failures
    release.set()
    trackers.close()
    assert 80 - 64 - 1 <= dropped <= 80 - 64


def test_a_tracker_that_hangs_fills_no_memory_and_holds_nobody_up() -> None:
    """While one post hangs, so many wait and the rest is dropped and counted; `close` waits its time and no longer."""
    goes_on = threading.Event()
    wandb = SimpleNamespace(run=SimpleNamespace(alert=lambda **_: goes_on.wait(60)))
    trackers = Trackers({"wandb": wandb})
    for step in range(200):
        trackers.post(Post("t", "text", "warning", step))
    trackers.close(timeout=0.01)
    assert 200 - _WAITING - 1 <= trackers.failures <= 200 - _WAITING
    goes_on.set()
