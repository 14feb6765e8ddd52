"""OpenRLHF: rows are taken where its trainer hands them to W&B or TensorBoard.

OpenRLHF has no callbacks. Its PPO trainer is a Ray actor that writes through `WandbLogger` and `TensorboardLogger` of
`openrlhf.utils.logging_utils`, so one of the two must be on, and the classes must be taught in the actor's own process:
Ray's `worker_process_setup_hook` runs a function by name there. What it cannot know: with no logger configured OpenRLHF
logs nothing; it offers no way to stop. Checked against OpenRLHF 0.11.2. Source: issue 5.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rltriage.trainer.hooks.quietly import quietly

if TYPE_CHECKING:
    from rltriage.trainer.hooks import Watched

_LOGGERS = ("WandbLogger", "TensorboardLogger")


def config(args: Any) -> dict[str, Any]:
    """OpenRLHF's arguments (nested namespaces) as dotted names with plain values."""
    found: dict[str, Any] = {}
    _collect("", args, found, 4)
    return found


def _collect(prefix: str, node: Any, found: dict[str, Any], depth: int) -> None:
    tree = node if isinstance(node, Mapping) else getattr(node, "__dict__", None)
    if isinstance(tree, Mapping):
        for key, value in tree.items() if depth else ():
            _collect(f"{prefix}{key}.", value, found, depth - 1)
    elif isinstance(node, (bool, int, float)) or (isinstance(node, str) and "/" not in node):
        found[prefix[:-1]] = node


def install(logging_utils: Any, watch: Callable[[str], Watched]) -> None:
    """Teach OpenRLHF's loggers (the module `openrlhf.utils.logging_utils`) to pass their rows on as well.

    `watch(name)` opens the run when the first logger is built; where both are on, that one speaks. Installing twice does
    nothing.
    """
    tap = _Tap(watch)
    for name in _LOGGERS:
        logger = getattr(logging_utils, name)
        if not hasattr(logger.log_train, "__wrapped__"):
            _teach(logger, tap)


class _Tap:
    """The run of this process, fed by one of its loggers."""

    def __init__(self, watch: Callable[[str], Watched]) -> None:
        self._watch = watch
        self._owner: object = None
        self._run: Watched | None = None

    def opened(self, logger: object, args: Any) -> None:
        if self._run is None:
            settings: dict[str, Any] = {}
            quietly("reading the configuration", lambda: settings.update(config(args)))
            self._run, self._owner = self._watch(str(settings.get("logger.wandb.run_name", "openrlhf"))), logger
            self._run.declare(settings, profile="openrlhf")

    def row(self, logger: object, prefix: str, step: int, values: Mapping[str, Any]) -> None:
        if self._run is not None and logger is self._owner:
            self._run.log(step, {f"{prefix}/{name}": value for name, value in values.items()})

    def closed(self, logger: object) -> None:
        if self._run is not None and logger is self._owner:
            self._run.close()


def _teach(logger: Any, tap: _Tap) -> None:
    def after(name: str, call: Callable[..., None]) -> None:
        method = getattr(logger, name)

        @functools.wraps(method)
        def both(self: Any, *arguments: Any, **named: Any) -> Any:
            result = method(self, *arguments, **named)
            quietly("passing on a row", call, self, *arguments, **named)
            return result

        setattr(logger, name, both)

    # More arguments than these may come in a later version.
    after("__init__", lambda self, args, *_, **__: tap.opened(self, args))
    after("log_train", lambda self, global_step, logs_dict, *_, **__: tap.row(self, "train", global_step, logs_dict))
    after("log_eval", lambda self, global_step, logs_dict, *_, **__: tap.row(self, "eval", global_step, logs_dict))
    after("close", lambda self, *_, **__: tap.closed(self))
