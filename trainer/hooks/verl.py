"""verl: a tracking backend called `rltriage`, for `trainer.logger=["console","rltriage"]`.

verl has no registry of backends; a module named in `VERL_USE_EXTERNAL_MODULES` may extend its `Tracking`, and no user code
is touched. `Tracking` lives on the driver, so rows arrive once per step. What it cannot know: verl offers no way to stop a
run from a backend, and its metrics hold neither ratio extremes nor a log-probability gap (only a probability difference).
Checked against verl 0.9.1. Source: issue 5, `research/hooks.md`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rltriage.trainer.hooks.quietly import quietly

if TYPE_CHECKING:
    from rltriage.trainer.hooks import Watched

BACKEND = "rltriage"
# The parts of verl's configuration that decide between fault and normal. The rest is paths, engines and hardware.
_SECTIONS = (
    "actor_rollout_ref.actor",
    "actor_rollout_ref.rollout",
    "algorithm",
    "critic",
    "data",
    "trainer",
)
_DEPTH = 2


def config(tree: Mapping[str, Any] | None) -> dict[str, Any]:
    """verl's configuration (a plain nested mapping) as dotted names with plain values, without its engine settings."""
    found: dict[str, Any] = {}
    for section in _SECTIONS:
        node: Any = tree
        for part in section.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        _collect(section, node, _DEPTH, found)
    return found


def _collect(prefix: str, node: Any, depth: int, found: dict[str, Any]) -> None:
    if isinstance(node, Mapping):
        for key, value in node.items() if depth else ():
            _collect(f"{prefix}.{key}", value, depth - 1, found)
    elif isinstance(node, (bool, int, float)) or (isinstance(node, str) and "/" not in node):
        found[prefix] = node


class Backend:
    """What `Tracking` calls: `log(data, step)` and `finish()`."""

    def __init__(self, run: Watched) -> None:
        self._run = run

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """One row; verl calls it once per step with everything it measured."""
        self._run.log(step, data)

    def finish(self) -> None:
        """No more rows."""
        self._run.close()


def install(tracking: Any, watch: Callable[[str], Watched]) -> None:
    """Teach `tracking` (verl's class `Tracking`) the backend `rltriage`; `watch(name)` opens the run of an experiment.

    The backend is set up only where a run asks for it by name, and verl's other backends stay as they are. Installing twice
    does nothing.
    """
    if BACKEND in tracking.supported_backend:
        return
    start, finish = tracking.__init__, tracking.finish

    signature = inspect.signature(start)

    @functools.wraps(start)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        given = signature.bind(self, *arguments, **named)  # whatever else a later version takes
        given.apply_defaults()
        asked = given.arguments.get("default_backend") or ()
        backends = [asked] if isinstance(asked, str) else list(asked)
        if BACKEND in backends:
            given.arguments["default_backend"] = [name for name in backends if name != BACKEND]
        start(*given.args, **given.kwargs)
        if BACKEND in backends:
            quietly("watching the run", _open, self, watch, given.arguments)

    @functools.wraps(finish)
    def finish_all(self: Any, *arguments: Any, **more: Any) -> None:
        backend = getattr(self, "logger", {}).get(BACKEND)
        if backend is not None:
            backend.finish()
        finish(self, *arguments, **more)

    tracking.supported_backend = [*tracking.supported_backend, BACKEND]
    tracking.__init__, tracking.finish = init, finish_all


def _open(tracking: Any, watch: Callable[[str], Watched], given: Mapping[str, Any]) -> None:
    run = watch(f"{given.get('project_name')}-{given.get('experiment_name')}")
    tracking.logger[BACKEND] = Backend(run)
    run.declare(config(given.get("config")), profile="verl")
