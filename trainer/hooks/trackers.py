"""Alerts where people look already: the experiment trackers that are active in this process.

A tracker counts as active when it is imported and has a run open; nothing is ever imported for it. What is active is found
in the training thread (their current run is often thread-local), the posting is done by a thread of ours: W&B and Trackio
only queue, but MLflow talks to its server. Checked against wandb 0.31, trackio 0.43, mlflow 3.17. Source: issue 5.
"""

from __future__ import annotations

import contextvars
import gc
import logging
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

_log = logging.getLogger(__name__)
_WAITING = 64
_WANDB_TITLE = 63
_WRITERS = (("torch.utils.tensorboard.writer", "SummaryWriter"), ("tensorboardX.writer", "SummaryWriter"))


@dataclass(frozen=True, slots=True)
class Post:
    """One alert as a tracker shows it. `severity` is info, warning or critical; `tags` are for trackers that tag runs."""

    title: str
    text: str
    severity: str
    step: int
    tags: Mapping[str, str] = field(default_factory=dict)


class Trackers:
    """Posts to every active tracker, in order, and never makes the caller wait. `failures` counts what did not arrive."""

    def __init__(self, modules: Mapping[str, Any] = sys.modules) -> None:
        self.failures = 0
        self._modules = modules
        # Its put never waits, and may be interrupted by a signal's handler that puts, too.
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def post(self, post: Post) -> None:
        """Hand the alert over; never waits, never raises. A full queue drops it and counts it as a failure."""
        try:
            for deliver in active(post, self._modules):
                if self._queue.qsize() >= _WAITING:
                    raise queue.Full
                self._queue.put(deliver)
                self._start()
        except Exception:
            self._failed()

    def close(self, timeout: float = 5.0) -> None:
        """Wait until everything was posted, `timeout` seconds at most. More can be posted later."""
        thread, self._thread = self._thread, None
        if thread is None or not thread.is_alive():
            return
        self._queue.put(None)
        thread.join(timeout)

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="rltriage-trackers", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (deliver := self._queue.get()) is not None:
            try:
                deliver()
            except Exception:
                self._failed()

    def _failed(self) -> None:
        self.failures += 1
        if self.failures == 1:
            with suppress(Exception):
                _log.warning("an alert did not reach an experiment tracker (said once)", exc_info=True)


def active(post: Post, modules: Mapping[str, Any] = sys.modules) -> Iterator[Callable[[], None]]:
    """What delivers `post` to each tracker that is active now; to be called in the thread that opened the tracker's run."""
    for find in (_wandb, _trackio, _mlflow, _tensorboard):
        try:
            deliver = find(post, modules)
        except Exception:  # a module half imported, or of another version: not active for us
            _log.debug("looking for a tracker failed", exc_info=True)
            continue
        if deliver is not None:
            yield deliver


def _wandb(post: Post, modules: Mapping[str, Any]) -> Callable[[], None] | None:
    run = getattr(modules.get("wandb"), "run", None)
    if run is None:
        return None
    level = {"critical": "ERROR", "warning": "WARN"}.get(post.severity, "INFO")
    return lambda: run.alert(title=post.title[:_WANDB_TITLE], text=post.text, level=level)


def _trackio(post: Post, modules: Mapping[str, Any]) -> Callable[[], None] | None:
    trackio, variables = modules.get("trackio"), modules.get("trackio.context_vars")
    if trackio is None or variables is None or variables.current_run.get() is None:
        return None
    levels = trackio.AlertLevel
    level = {"critical": levels.ERROR, "warning": levels.WARN}.get(post.severity, levels.INFO)
    context = contextvars.copy_context()  # the current run is a context variable of the training thread
    return lambda: context.run(trackio.alert, title=post.title, text=post.text, level=level)


def _mlflow(post: Post, modules: Mapping[str, Any]) -> Callable[[], None] | None:
    mlflow = modules.get("mlflow")
    run = mlflow.active_run() if mlflow is not None else None
    if mlflow is None or run is None:
        return None

    def deliver() -> None:
        client = mlflow.MlflowClient()
        for name, value in post.tags.items():
            client.set_tag(run.info.run_id, f"rltriage.{name}", value)

    return deliver


def _tensorboard(post: Post, modules: Mapping[str, Any]) -> Callable[[], None] | None:
    kinds = tuple(getattr(modules[name], kind) for name, kind in _WRITERS if name in modules)
    if not kinds:
        return None

    def deliver() -> None:
        # TensorBoard has no current writer: open ones are found among all objects, once per alert, in our thread.
        for thing in gc.get_objects():
            if issubclass(type(thing), kinds) and getattr(thing, "file_writer", None) is not None:
                thing.add_text("rltriage/alert", "".join(f"    {line}\n" for line in post.text.splitlines()), post.step)
                thing.flush()

    return deliver
