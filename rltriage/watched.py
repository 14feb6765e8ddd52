"""A watched run inside a training script: what `rltriage.watch` returns and every hook writes into.

From the first row on nothing here raises, waits long or stops a run: what goes wrong is counted in `Watch.errors`, each
kind of it is said once, and training goes on. Source: issue 5, DESIGN sections 5, 9 and 10.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rltriage import __version__
from rltriage.arguments import DIRECTORY, WatchOptions, address, check_options, unknown_facts
from rltriage.engine.intake import Intake
from rltriage.engine.reference import read_reference
from rltriage.engine.report import EMPTY, Alert, StepReport
from rltriage.engine.rows import Record, Row, Run
from rltriage.engine.rundir import ROWS, RunDirectory, claim, safe_name
from rltriage.engine.sources.base import to_float, to_step
from rltriage.journal import Journal, in_time
from rltriage.misnamed import Misnamed
from rltriage.nonnumbers import NonNumbers, Odd, read
from rltriage.notices import Notices
from rltriage.processes import find, own
from rltriage.recalling import recall
from rltriage.reloading import RELOAD_SECONDS, RuleFiles
from rltriage.rules.errors import RltriageError
from rltriage.rules.facts import by_argument
from rltriage.rules.model import SEVERITIES
from rltriage.saying import Once, reason, warn
from rltriage.watching import Sink, WatchedRun, use_rules

if TYPE_CHECKING:
    from rltriage.exporters.gauges import Gauges
    from rltriage.exporters.http import Server
    from rltriage.rules.model import RulePack
    from rltriage.trainer.hooks import End

_log = logging.getLogger("rltriage")
OPEN_SECONDS = 5.0
"""How long the first row waits for the disk to make the run's folder; then the run is not written."""
RECALL_SECONDS = 30.0
"""How long the first row of a resumed run waits for the rows of before."""
T = TypeVar("T")


class Watch:
    """One watched run; see `watch`. No method raises, and each may be called from any thread."""

    # What a forked child may ask of a run whose opening failed half way.
    _server: Server | None = None
    _journal: Journal | None = None

    def __init__(self, options: WatchOptions, active: bool) -> None:
        check_options(options)
        halt_on, directory = options.get("halt_on"), options.get("directory", DIRECTORY)
        self._profile = _wherever(options.get("profile") or "auto")
        self._named = bool(options.get("name"))
        self.id = str(options.get("name") or _default_name())
        self.should_stop = False
        self.path: Path | None = None
        self._where = ""  # the same as the user gave the directory, for a command line
        self._failures = 0
        self._said = Once()
        self._mistakes = ""
        self._active = active
        self._closed = not active
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._given = None if directory is None else Path(directory)
        self._directory = self._given
        with suppress(OSError):  # of a working directory that is gone; a script may also change it while it runs
            self._directory = self._given and self._given.absolute()
        self._config, self._labels = dict(options.get("config") or {}), dict(options.get("labels") or {})
        self._declared = frozenset(map(str, self._config))
        self._nonnumbers = NonNumbers()
        self._misnamed = Misnamed()
        self._halting = SEVERITIES[SEVERITIES.index(halt_on) :] if halt_on else ()
        self._intake: Intake | None = None
        self._run: WatchedRun | None = None
        self._gauges: Gauges | None = None
        self._next_look = time.monotonic() + RELOAD_SECONDS
        self._reader: threading.Thread | None = None
        self._read: RulePack | None = None
        self._notices = Notices(options.get("on_alert"), options.get("quiet", False))
        self._token = own(self, Watch._leave) if active else ""
        if active:
            reference = options.get("reference") or ()
            files = [reference] if isinstance(reference, (str, os.PathLike)) else reference
            self._references = [read_reference(file) for file in files]
            rules = options.get("rules") or ("triage",)
            packs = [rules] if isinstance(rules, (str, os.PathLike)) else rules
            self._rules = RuleFiles([_wherever(os.fspath(pack), os.sep, "/") for pack in packs])
            self._pack = self._rules.pack
            self._say_slips()
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

    def declare(self, config: Mapping[str, Any], profile: str | None = None, name: str | None = None) -> None:
        """Config facts that the training script or a hook knows, and how the framework calls the run; what was given to
        `watch` wins. Only before the first row.
        """
        if not self._active or os.getpid() != self._pid:
            return
        try:
            with self._lock:
                if self._intake is not None:
                    self._failed("config facts were declared after the first row, too late to be used")
                    return
                self._config = {**config, **self._config}
                if profile is not None and self._profile == "auto":
                    self._profile = profile
                if name and not self._named:
                    self.id = name
        except Exception:
            self._failed("config facts could not be read")

    @overload
    def log(self, step: int | None, metrics: Mapping[str, Any], time: float | None = None) -> StepReport: ...
    @overload
    def log(self, metrics: Mapping[str, Any], step: int | None = None, time: float | None = None) -> StepReport: ...
    def log(self, *given: Any, **named: Any) -> StepReport:
        """One step's metrics, under canonical names or the framework's own; returns what they changed.

        `log(step, metrics)` and, as trackers have it, `log(metrics, step=step)` are the same.
        Values may be numbers, zero-dimensional arrays or tensors; anything else is left out, counted in `ignored` and said
        once. `step` None: the metrics say it, or steps are counted. `time` is unix seconds, now by
        default. Costs well under half a millisecond.
        """
        if not self._active or os.getpid() != self._pid:
            return EMPTY
        report = EMPTY
        try:
            # Other people's code runs here, in tensors and names: outside the lock, and once for each value.
            step, metrics, at = _ordered(given, named)
            values, odd = read(metrics)
            record = self._record(step, values, to_float(at))
            with self._lock:
                report = self._take(record, odd)
        except Exception:
            self._failed("a row could not be evaluated")
        self._notices.tell()
        return report

    def close(self, state: End = "finished") -> None:
        """The run is over: open alerts end, files and the endpoint close. Rows that come later are ignored.

        Waits for a disk, a tracker and the endpoint that hang, some seconds for each at most.
        """
        if self._closed or os.getpid() != self._pid:
            return
        self._active = False
        with self._lock:
            if not self._closed:
                self._end(state)
                self._closed = True  # not before: what Ctrl-C interrupts is done at the script's end
                atexit.unregister(self._at_exit)
        self._notices.tell()

    def _leave(self) -> None:
        """What a forked child does with it by itself: it lets go of the parent's files and port, and of rows to come."""
        self._active, self._closed = False, True
        for mine in (self._server, self._journal):
            with suppress(Exception):
                if mine is not None:
                    mine.release()

    def __reduce__(self) -> tuple[Callable[[str, str], Watch], tuple[str, str]]:
        """A copy is the run itself, or in another process one that does nothing."""
        return _copied, (self._token, self.id)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close("crashed" if kind is not None and issubclass(kind, Exception) else "finished")

    def _record(self, step: int | None, values: dict[str, Any], at: float | None) -> Record:
        number = to_step(step)
        if step is not None and number is None:
            self._failed("a step is no whole number, so its row is counted instead")
        return Record(values, number, at if at is not None and math.isfinite(at) else time.time())

    def _take(self, record: Record, odd: Sequence[Odd]) -> StepReport:
        if not self._active:  # closed while this row waited
            return EMPTY
        if self._intake is None:
            folder = self._directory
            if folder is not None and "resumed_at" not in self._config:
                self.id = self._of_disk(lambda: claim(folder, self.id), OPEN_SECONDS, self.id)
            self._intake = Intake(self.id, self._profile, self._config, self._labels)
        self._look_at_rules()
        self._nonnumbers.note(self.id, odd)
        return self._emit(self._intake.rows(record))

    def _of_disk(self, job: Callable[[], T], seconds: float, otherwise: T) -> T:
        """What the disk says, in time; where it cannot, the run is watched without being written."""
        try:
            return in_time(job, seconds)
        except Exception:  # full, read-only, hanging, a taken folder, a config that is no JSON
            self._directory = None
            self._failed("the run is not written to disk")
            return otherwise

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
            with suppress(RuntimeError):  # no more threads: the rules stay as they are
                self._reader.start()

    def _read_rules(self) -> None:
        """Read the rule files anew if one changed; with mistakes in them the old rules stay, and it is said."""
        try:
            if self._rules.changed():
                self._read = self._rules.load()
                self._say_slips()
                self._said.forget(self._mistakes)
                _log.info("run=%s: reloaded %d rules", self.id, len(self._read.rules))
        except RltriageError as error:
            self._failures += 1
            self._mistakes = str(error)
            if self._said.first(self._mistakes):
                warn("run=%s: the rules were not reloaded, the old ones stay:\n%s", self.id, error)
        except Exception:
            self._failed("the rule files could not be read")

    def _say_slips(self) -> None:
        """A rule may be off for a misspelt name; it may also be the trainer's own, so nobody is stopped."""
        for slip in self._rules.slips():
            warn("run=%s: %s", self.id, slip)

    def _emit(self, rows: Sequence[Row]) -> StepReport:
        """Evaluate rows; there is more than one only when the profile has just been decided."""
        assert self._intake is not None
        report = EMPTY
        for row in rows:
            if self._run is None:
                self._run = self._start(self._intake)
            self._say_misnamed(self._intake)
            told = self._run.emit(row, self._intake.run)
            report = StepReport(told.step, report.alerts + told.alerts, told.incident or report.incident)
            if self._halting and not self.should_stop:
                self.should_stop = any(self._halts(alert) for alert in told.alerts)
        return report

    def _say_misnamed(self, intake: Intake) -> None:
        if sentence := self._misnamed.sentence(intake, self._pack, self._where):
            warn("run=%s: %s", self.id, sentence)

    def _halts(self, alert: Alert) -> bool:
        return alert.state == "firing" and alert.severity in self._halting and alert.explained_by is None

    def _start(self, intake: Intake) -> WatchedRun:
        self._notices.use(self._pack)
        gauges: list[Sink] = [] if self._gauges is None else [self._gauges]
        before = self._before()
        for sentence in unknown_facts((key for key in intake.unknown_config if key in self._declared), self._pack):
            warn("run=%s: %s", self.id, sentence)
        self._journal = self._journal or self._write(intake.run)  # a start that Ctrl-C interrupted has one
        sinks = [*gauges, *([] if self._journal is None else [self._journal]), self._notices]
        if self._where:
            self._notices.introduce(self.id, intake.run.profile, self._where)
        run = WatchedRun(intake.run, self._pack, sinks, self._references, by_argument)
        for row in before:
            run.recall(row, gauges)
        return run

    def _before(self) -> list[Row]:
        """The rows of a resumed run's directory: its rules go on where they were, and say nothing twice."""
        if self._directory is None or "resumed_at" not in self._config:
            return []
        file = self._directory / safe_name(self.id) / ROWS
        try:
            return in_time(lambda: recall(file), RECALL_SECONDS)
        except Exception:  # the folder may still take the rows to come
            self._failed("the rows of before could not be read: its rules start anew")
            return []

    def _write(self, run: Run) -> Journal | None:
        if self._directory is None:
            return None
        path = self._directory / safe_name(self.id)

        def make() -> RunDirectory:
            return RunDirectory(
                path,
                self.id,
                config=self._config,
                labels=self._labels,
                profile=run.profile,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                version=__version__,
                resume="resumed_at" in self._config,
            )

        directory = self._of_disk(make, OPEN_SECONDS, None)
        if directory is None:
            return None
        self.path = path
        self._where = str(self._given / path.name) if self._given is not None else ""
        return Journal(directory, self._pack.catalogue)

    def _listen(self, listen: str | int | None) -> None:
        if listen is None:
            return
        from rltriage.exporters.gauges import Gauges
        from rltriage.exporters.http import serve_metrics

        self._gauges = Gauges(self._pack.catalogue.metrics, self._pack.rules)
        try:
            self._server = serve_metrics(self._gauges, address(listen))
        except RltriageError as error:
            self._failures += 1
            warn("run=%s: Prometheus cannot scrape this run: %s", self.id, error)
        except OSError:
            self._failed("Prometheus cannot scrape this run")

    def _end(self, state: End) -> None:
        for part in (self._emit_held, lambda: self._end_run(state), self._notices.close, self._stop_serving):
            try:
                part()
            except Exception:
                self._failed("closing the run failed")

    def _emit_held(self) -> None:
        if self._intake is not None:
            self._emit(self._intake.finish())

    def _end_run(self, state: End) -> None:
        if self._run is not None:
            self._run.end(state, time.time())

    def _stop_serving(self) -> None:
        if self._server is not None:
            self._server.close()

    def _at_exit(self) -> None:
        # The interpreter leaves an uncaught exception here; it is the only trace of a crash outside a `with`.
        with suppress(BaseException):  # an `on_alert` that exits: the process is about to
            self.close("crashed" if getattr(sys, "last_value", None) is not None else "finished")

    def _failed(self, what: str) -> None:
        self._failures += 1
        if self._said.first(what):
            error = sys.exc_info()[1]
            why = reason(error)
            warn("run=%s: %s%s (said once)", self.id, what, why, exc_info=error is not None and not why)


def _copied(token: str, name: str) -> Watch:
    """A run where its copy arrives."""
    run = find(token)
    return run if isinstance(run, Watch) else Watch({"name": name}, False)


def _default_name() -> str:
    """The script's name and the time: readable, and new for every start."""
    script = Path(next(iter(getattr(sys, "argv", ())), "")).stem  # an embedded interpreter has none
    return f"{script if script.isidentifier() else 'run'}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def _wherever(name: str, *separators: str) -> str:
    """What is a file's name, in full: it is read again later, when the script may be in another folder."""
    if name.endswith((".yaml", ".yml")) or any(separator in name for separator in separators):
        with suppress(OSError, ValueError):
            return os.path.abspath(name)
    return name


def _ordered(given: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Step, metrics and time of a row, whichever of the first two came first. Raises KeyError where no metrics came."""
    trackers = bool(given) and isinstance(given[0], Mapping) and not isinstance(given[1:2] and given[1], Mapping)
    order = ("metrics", "step", "time") if trackers else ("step", "metrics", "time")
    values = {**dict(zip((name for name in order if name not in named), given, strict=False)), **named}
    return values.get("step"), values["metrics"], values.get("time")
