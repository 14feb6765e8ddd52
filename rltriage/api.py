"""`rltriage.watch` and the one-line hooks: what a training script calls.

Wrong arguments raise at once, before training starts. From then on nothing here raises, waits or stops a run: what goes
wrong is counted in `Watch.errors` and said once, and training goes on. Source: issue 5, DESIGN sections 5, 9 and 10.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from rltriage import __version__
from rltriage.arguments import WatchOptions, check_options, unknown_facts
from rltriage.engine.intake import Intake
from rltriage.engine.reference import read_reference
from rltriage.engine.report import EMPTY, Alert, StepReport
from rltriage.engine.rows import Record, Row, Run
from rltriage.engine.rundir import ROWS, RunDirectory, safe_name
from rltriage.engine.sources.base import to_float, to_step
from rltriage.engine.sources.run_directory import RunDirectorySource
from rltriage.nonnumbers import NonNumbers
from rltriage.notices import Notices
from rltriage.reloading import RELOAD_SECONDS, RuleFiles
from rltriage.rules.errors import RltriageError
from rltriage.rules.model import SEVERITIES, Severity
from rltriage.trainer.hooks.ranks import is_rank_zero
from rltriage.watching import Journal, Sink, WatchedRun, use_rules

if TYPE_CHECKING:
    from rltriage.exporters.gauges import Gauges
    from rltriage.exporters.http import Server
    from rltriage.rules.model import RulePack
    from rltriage.trainer.hooks import End

_log = logging.getLogger("rltriage")
_MOST_RECALLED = 20_000


def watch(
    name: str | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    profile: str = "auto",
    rules: str | Path | Sequence[str | Path] = ("triage",),
    reference: str | Path | Sequence[str | Path] | None = None,
    labels: Mapping[str, str] | None = None,
    listen: str | int | None = None,
    directory: str | Path | None = "runs",
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
    `on_alert` is called with every alert that fires or closes, in the training thread. `halt_on` sets `run.should_stop`
    once an alert of that severity or above fires that no other explains. Alerts from `warning` up are printed on stderr
    unless `quiet`.

    Only rank 0 of a distributed job watches; elsewhere the same object does nothing. Raises RltriageError for arguments
    that cannot be: an unknown profile or severity, a reference that cannot be read, a rule pack with mistakes (all of them
    in one message). A rule file that changes while the run goes on is read anew; with mistakes in it the old rules stay,
    and a warning is logged.
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
    return Watch(options, is_rank_zero())


class Watch:
    """One watched run; see `watch`. No method raises, and each may be called from any thread."""

    def __init__(self, options: WatchOptions, active: bool) -> None:
        check_options(options)
        halt_on, directory = options.get("halt_on"), options.get("directory", "runs")
        self._profile = options.get("profile") or "auto"
        self.id = str(options.get("name") or _default_name())
        self.should_stop = False
        self.path: Path | None = None
        self._failures = 0
        self._active = active
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._directory = None if directory is None else Path(directory)
        self._config, self._labels = dict(options.get("config") or {}), dict(options.get("labels") or {})
        self._declared = frozenset(map(str, self._config))
        self._nonnumbers = NonNumbers()
        self._halting = SEVERITIES[SEVERITIES.index(halt_on) :] if halt_on else ()
        self._intake: Intake | None = None
        self._run: WatchedRun | None = None
        self._gauges: Gauges | None = None
        self._server: Server | None = None
        self._next_look = time.monotonic() + RELOAD_SECONDS
        self._reader: threading.Thread | None = None
        self._read: RulePack | None = None
        self._notices = Notices(options.get("on_alert"), options.get("quiet", False))
        if active:
            reference = options.get("reference") or ()
            files = [reference] if isinstance(reference, (str, os.PathLike)) else reference
            self._references = [read_reference(file) for file in files]
            rules = options.get("rules") or ("triage",)
            self._rules = RuleFiles([rules] if isinstance(rules, (str, os.PathLike)) else rules)
            self._pack = self._rules.pack
            self._listen(options.get("listen"))
            atexit.register(self._at_exit)

    @property
    def errors(self) -> int:
        """How often something went wrong: a row or value that could not be read, a file or a tracker that failed."""
        failures = self._failures + self._notices.failures + self._nonnumbers.total
        return failures + (self._run.failures if self._run else 0)

    @property
    def ignored(self) -> Mapping[str, int]:
        """Names whose value was no number, and how often: texts, None, lists, objects. No rule can read them."""
        return dict(self._nonnumbers.counts)

    @property
    def url(self) -> str | None:
        """Where Prometheus scrapes this run, or None."""
        return f"{self._server.url}/metrics" if self._server is not None else None

    def declare(self, config: Mapping[str, Any], profile: str | None = None) -> None:
        """Config facts that the training script or a hook knows; those given to `watch` win. Only before the first row."""
        try:
            with self._lock:
                if self._intake is not None:
                    self._failed("config facts were declared after the first row, too late to be used")
                    return
                self._config = {**config, **self._config}
                if profile is not None and self._profile == "auto":
                    self._profile = profile
        except Exception:
            self._failed("config facts could not be read")

    def log(self, step: int | None, metrics: Mapping[str, Any], time: float | None = None) -> StepReport:
        """One step's metrics, under canonical names or the framework's own; returns what they changed.

        Values may be numbers, zero-dimensional arrays or tensors; anything else is left out, counted in `ignored` and said
        once. `step` None: the metrics say it, or steps are counted. `time` is unix seconds, now by
        default. Costs well under half a millisecond.
        """
        if not self._active or os.getpid() != self._pid:
            return EMPTY
        try:
            with self._lock:
                return self._take(step, metrics, time)
        except Exception:
            self._failed("a row could not be evaluated")
            return EMPTY

    def close(self, state: End = "finished") -> None:
        """The run is over: open alerts end, files and the endpoint close. Rows that come later are ignored."""
        if not self._active or os.getpid() != self._pid:
            return
        self._active = False
        atexit.unregister(self._at_exit)
        try:
            with self._lock:
                self._end(state)
        except Exception:
            self._failed("closing the run failed")

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close("crashed" if kind is not None and issubclass(kind, Exception) else "finished")

    def _take(self, step: int | None, metrics: Mapping[str, Any], at: float | None) -> StepReport:
        if self._intake is None:
            if "resumed_at" not in self._config:
                self.id = self._free(self.id)
            self._intake = Intake(self.id, self._profile, self._config, self._labels)
        self._look_at_rules()
        values = {str(name): value for name, value in metrics.items()}
        self._nonnumbers.look(self.id, values)
        at = to_float(at)
        number = to_step(step)
        if step is not None and number is None:
            self._failed("a step is no whole number, so its row is counted instead")
        record = Record(values, number, at if at is not None and math.isfinite(at) else time.time())
        return self._emit(self._intake.rows(record))

    def _look_at_rules(self) -> None:
        """Take rules that were read anew, and let a thread look for a change now and then: reading takes too long here."""
        if self._read is not None:
            self._pack, self._read = self._read, None
            if self._run is not None:
                use_rules(self._run.sinks, self._pack)
                self._run.reload(self._pack)
        now = time.monotonic()
        if now >= self._next_look and (self._reader is None or not self._reader.is_alive()):
            self._next_look = now + RELOAD_SECONDS
            self._reader = threading.Thread(target=self._read_rules, name="rltriage-rules", daemon=True)
            self._reader.start()

    def _read_rules(self) -> None:
        """Read the rule files anew if one changed; with mistakes in them the old rules stay, and it is said."""
        try:
            if self._rules.changed():
                self._read = self._rules.load()
                _log.info("run=%s: reloaded %d rules", self.id, len(self._read.rules))
        except RltriageError as error:
            self._failures += 1
            _log.warning("run=%s: the rules were not reloaded, the old ones stay:\n%s", self.id, error)
        except Exception:
            self._failed("the rule files could not be read")

    def _emit(self, rows: Sequence[Row]) -> StepReport:
        """Evaluate rows; there is more than one only when the profile has just been decided."""
        assert self._intake is not None
        report = EMPTY
        for row in rows:
            if self._run is None:
                self._run = self._start(self._intake)
            told = self._run.emit(row, self._intake.run)
            report = StepReport(told.step, report.alerts + told.alerts, told.incident or report.incident)
            if self._halting and not self.should_stop:
                self.should_stop = any(self._halts(alert) for alert in told.alerts)
        return report

    def _halts(self, alert: Alert) -> bool:
        return alert.state == "firing" and alert.severity in self._halting and alert.explained_by is None

    def _start(self, intake: Intake) -> WatchedRun:
        self._notices.use(self._pack)
        gauges: list[Sink] = [] if self._gauges is None else [self._gauges]
        before = self._before(intake.run.profile)
        for sentence in unknown_facts((key for key in intake.unknown_config if key in self._declared), self._pack):
            _log.warning("run=%s: %s", self.id, sentence)
        sinks = [*gauges, *self._journal(intake.run), self._notices]
        if self.path is not None:
            self._notices.introduce(f"{self.id}, read as {intake.run.profile}: rltriage report {self.path}")
        run = WatchedRun(intake.run, self._pack, sinks, self._references)
        for row in before:
            run.recall(row, gauges)
        return run

    def _before(self, profile: str) -> list[Row]:
        """The rows of a resumed run's directory: its rules go on where they were, and say nothing twice."""
        if self._directory is None or "resumed_at" not in self._config:
            return []
        folder = self._directory / safe_name(self.id)
        if not (folder / ROWS).is_file():
            return []
        reader = Intake(self.id, profile)
        rows = (reader.row(record) for record in RunDirectorySource(str(folder)).records())
        return [row for row in rows if row is not None][-_MOST_RECALLED:]

    def _journal(self, run: Run) -> list[Sink]:
        if self._directory is None:
            return []
        path = self._directory / safe_name(self.id)
        try:
            directory = RunDirectory(
                path,
                self.id,
                config=self._config,
                labels=self._labels,
                profile=run.profile,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                version=__version__,
                resume="resumed_at" in self._config,
            )
        except Exception:  # a full disk, a taken folder, a config that is no JSON: the rules work without a journal
            self._failed("the run is not written to disk")
            return []
        self.path = path
        return [Journal(directory, self._pack.catalogue)]

    def _listen(self, listen: str | int | None) -> None:
        if listen is None:
            return
        from rltriage.exporters.gauges import Gauges
        from rltriage.exporters.http import serve_metrics

        self._gauges = Gauges(self._pack.catalogue.metrics, self._pack.rules)
        try:
            self._server = serve_metrics(self._gauges, listen if isinstance(listen, str) else f"127.0.0.1:{listen}")
        except (OSError, RltriageError):
            self._failed("Prometheus cannot scrape this run")

    def _end(self, state: End) -> None:
        if self._intake is not None:
            self._emit(self._intake.finish())
        if self._run is not None:
            self._run.end(state, time.time())
        self._notices.close()
        if self._server is not None:
            self._server.close()

    def _at_exit(self) -> None:
        # The interpreter leaves an uncaught exception here; it is the only trace of a crash outside a `with`.
        self.close("crashed" if getattr(sys, "last_value", None) is not None else "finished")

    def _free(self, name: str) -> str:
        """The name, numbered where a run of that name has rows already: two runs never share a folder."""
        if self._directory is None:
            return name
        names = (name if number == 1 else f"{name}-{number}" for number in itertools.count(1))
        return next(each for each in names if not (self._directory / safe_name(each) / ROWS).exists())

    def _failed(self, what: str) -> None:
        self._failures += 1
        if self._failures == 1:
            _log.warning("run=%s: %s (said once)", self.id, what, exc_info=sys.exc_info()[0] is not None)


def _default_name() -> str:
    """The script's name and the time: readable, and new for every start."""
    script = Path(sys.argv[0] if sys.argv else "").stem
    return f"{script if script.isidentifier() else 'run'}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def trl_callback(**options: Unpack[WatchOptions]) -> Any:
    """A callback for TRL and the Hugging Face Trainer: `GRPOTrainer(..., callbacks=[rltriage.trl_callback()])`.

    Takes what `watch` takes; config facts come from the trainer's arguments. With `halt_on`, training stops by itself.
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
