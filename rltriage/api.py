"""`rltriage.watch` and the one-line hooks: what a training script calls.

Wrong arguments raise at once, before training starts. From then on nothing raises, waits or stops a run (`watched`).
Source: issue 5, DESIGN sections 5, 9 and 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from rltriage.arguments import DIRECTORY, WatchOptions, check_options
from rltriage.engine.report import Alert
from rltriage.processes import imports_main_again
from rltriage.rules.model import Severity
from rltriage.trainer.hooks.ranks import is_rank_zero
from rltriage.watched import Watch


def watch(
    name: str | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    profile: str = "auto",
    rules: str | Path | Sequence[str | Path] = ("triage",),
    reference: str | Path | Sequence[str | Path] | None = None,
    labels: Mapping[str, str] | None = None,
    listen: str | int | None = None,
    directory: str | Path | None = DIRECTORY,
    on_alert: Callable[[Alert], object] | None = None,
    halt_on: Severity | None = None,
    quiet: bool = False,
) -> Watch:
    """Watch one training run: `with rltriage.watch(...) as run:`, then `run.log(step, {...})` once per step.

    `name` is the run's id and its folder in `directory` (None: nothing is written). `config` are config facts, under
    canonical names or the framework's own; `profile` says how the metrics are called (`auto` decides by the first rows).
    `rules` are packs: shipped names, files or folders. `reference` is a healthy reference, or several, of which the first
    that fits is used; the directory of an earlier run makes incidents say what has changed in the configuration since.
    `listen` is HOST:PORT or a port of 127.0.0.1 for Prometheus.
    `on_alert` is called with every alert that fires or closes, by the thread that logged it and after everything else: a
    SystemExit or KeyboardInterrupt that it raises passes, because somebody who writes `sys.exit` means it, while any other
    exception is counted. `halt_on` sets `run.should_stop` once an alert of that severity or above fires that no other
    explains. Alerts from `warning` up are printed on stderr unless `quiet`.

    Only rank 0 of a distributed job watches; elsewhere the same object does nothing, as in forked children and in copies
    of it that other processes get. Raises RltriageError for arguments that cannot be: an unknown profile or severity, a
    reference that cannot be read, a rule pack with mistakes (all of them in one message). A rule file that changes while
    the run goes on is read anew; with mistakes in it the old rules stay, and a warning is logged.
    """
    options = WatchOptions(
        name=name,
        config=config,
        profile=profile,
        rules=rules,
        reference=reference,
        labels=labels,
        listen=listen,
        directory=directory,
        on_alert=on_alert,
        halt_on=halt_on,
        quiet=quiet,
    )
    return Watch(options, is_rank_zero() and not imports_main_again())


def trl_callback(**options: Unpack[WatchOptions]) -> Any:
    """A callback for TRL and the Hugging Face Trainer: `GRPOTrainer(..., callbacks=[rltriage.trl_callback()])`.

    Takes what `watch` takes; config facts come from the trainer's arguments, and the name from their `run_name`. With
    `halt_on`, training stops by itself.
    """
    from rltriage.trainer.hooks import trl

    return trl.callback(Watch(options, is_rank_zero()), halting=options.get("halt_on") is not None)


def sb3_callback(**options: Unpack[WatchOptions]) -> Any:
    """A callback for Stable-Baselines3: `model.learn(..., callback=rltriage.sb3_callback())`. Takes what `watch` takes."""
    from rltriage.trainer.hooks import sb3

    return sb3.callback(Watch(options, is_rank_zero()), halting=options.get("halt_on") is not None)


def verl_backend(**options: Unpack[WatchOptions]) -> None:
    """Teach verl the tracking backend `rltriage`, for `trainer.logger=["console","rltriage"]`. Takes what `watch` takes.

    To be called in the process that holds verl's `Tracking`: by a module named in `VERL_USE_EXTERNAL_MODULES`, of which
    `rltriage.verl` is one with the default options. Raises ImportError where verl is missing.
    """
    check_options(options)
    from verl.utils.tracking import Tracking

    from rltriage.trainer.hooks import verl

    verl.install(Tracking, lambda name: _driver(name, options))


def openrlhf_logger(**options: Unpack[WatchOptions]) -> None:
    """Let OpenRLHF's W&B and TensorBoard loggers pass their rows on. Takes what `watch` takes.

    To be called in the process of its PPO trainer: Ray's `worker_process_setup_hook` takes it by name, as
    `"rltriage.api.openrlhf_logger"`. Raises ImportError where OpenRLHF is missing.
    """
    check_options(options)
    from openrlhf.utils import logging_utils

    from rltriage.trainer.hooks import openrlhf

    openrlhf.install(logging_utils, lambda name: _driver(name, options))


def _driver(name: str, options: WatchOptions) -> Watch:
    """The run of a framework that logs from one process only, whatever rank that has; an explicit name wins."""
    named = options.copy()
    named["name"] = options.get("name") or name
    return Watch(named, True)
