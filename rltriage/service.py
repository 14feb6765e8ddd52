"""The service behind `rltriage serve` and `watch`: follow the runs, judge them, tell people, show gauges.

One scheduler runs what needs a clock: polling, overdue rows, delivery and re-sending, pruning, discovery of new logs,
reload of rule files. After a crash nothing but the outbox is read back: the logs are replayed, their alerts have the same
ids, and the outbox knows which of them were told.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rltriage.engine.report import Alert, Incident, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.delivery.dispatcher import Dispatcher
from rltriage.exporters.delivery.message import Links
from rltriage.exporters.delivery.outbox import Outbox
from rltriage.exporters.delivery.routes import routes
from rltriage.exporters.delivery.silences import Silences
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.http import Server, Web, serve_metrics
from rltriage.exporters.naming import Family, Series
from rltriage.exporters.samples import Sample
from rltriage.following import Fleet, raise_file_limit
from rltriage.places import RunNames
from rltriage.reloading import RELOAD_SECONDS, RuleFiles
from rltriage.rules.config import Config
from rltriage.rules.errors import DeliveryError, RltriageError
from rltriage.rules.model import RulePack
from rltriage.watching import Sink

log = logging.getLogger("rltriage.service")

POLL_SECONDS = 0.5
SLICE_SECONDS = 0.05
BREATH_SECONDS = 0.001
"""After each slice of rows, whoever waits for the lock or the interpreter gets it: a start reads for a while."""
FLUSH_SECONDS = 1.0
OVERDUE_SECONDS = 15.0
DISCOVER_SECONDS = 10.0
PRUNE_SECONDS = 600.0
STOP_SECONDS = 20.0
"""How long a stop waits for work in progress: shorter than an orchestrator waits."""
LAST_REQUESTS_SECONDS = 6.0
"""How long a stop begins further requests; one in progress still has its time limits, within STOP_SECONDS."""
SHORTEST_TOKEN = 16
MAX_RUNS = 20_000

SENT = Family("rltriage_notifications", "counter", "Notifications that a receiver accepted")
REMINDERS = Family("rltriage_notification_reminders", "counter", "Alerts re-sent so that a receiver goes on believing them")
FAILED = Family("rltriage_notification_attempts_failed", "counter", "Attempts to deliver that failed and will be repeated")
REFUSED = Family("rltriage_notifications_refused", "counter", "Times that a receiver refused the content of an alert")
WAITING = Family("rltriage_notifications_waiting", "gauge", "Notifications accepted and not yet delivered")
UP = Family("rltriage_receiver_up", "gauge", "1 if the receiver's last answer was good, 0 if not")
LOST = Family(
    "rltriage_notifications_dropped", "counter", "Notifications given up: too many waited, or an alert could not be queued"
)
SILENCED = Family("rltriage_alerts_silenced", "gauge", "Open alerts that a silence covers")
DISK = Family("rltriage_outbox_durable", "gauge", "1 if a crash now would lose no alert, 0 if the outbox is in memory only")
RELOADED = Family("rltriage_rules_reload_success", "gauge", "1 if the last reload of the rule files succeeded")
RELOAD_TIME = Family("rltriage_rules_last_reload_timestamp_seconds", "gauge", "Unix time of the last successful reload")
LOGS = Family("rltriage_sources_followed", "gauge", "Logs that are followed")
SOURCE_ERRORS = Family("rltriage_source_errors", "counter", "Polls of a source that failed")


class Deliveries:
    """The sink that puts transitions into the outbox, before any other sink hears of the row."""

    def __init__(self, dispatcher: Dispatcher, clock: Callable[[], float]) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._incidents: dict[str, Incident] = {}

    def use(self, pack: RulePack) -> None:
        """Word messages by other rules."""
        self._dispatcher.use(pack.catalogue)

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        """Accept the report's transitions."""
        if report.incident is not None:
            self._incidents[run.id] = report.incident
        self.offer(run, report.alerts)

    def offer(self, run: Run, alerts: Iterable[Alert]) -> None:
        """Accept alerts; those that were accepted before are not taken twice."""
        self._dispatcher.offer(alerts, self._clock(), labels=run.labels, incident=self._incidents.get(run.id))

    def end(self, run_id: str, state: str, now: float) -> None:
        """The run's alerts have ended in a report of their own."""
        self._incidents.pop(run_id, None)


@dataclass(frozen=True, slots=True)
class Watched:
    """A fleet, and the lock that makes it one job's at a time."""

    fleet: Fleet
    lock: threading.Lock = field(default_factory=threading.Lock)


class Service:
    """Watches what a configuration names until it is stopped.

    `open` puts everything together and `start` also sets it going; both raise RltriageError where there is nothing to
    watch, RulePackError for rules with mistakes and DeliveryError for an address or state folder that is taken. Afterwards
    nothing stops the service but `stop`. `clock` gives unix seconds, `sinks` makes those that hear of rows besides outbox
    and gauges. The jobs (`discover`, `poll`, `overdue`, `flush`, ...) may also be called one by one.
    """

    def __init__(
        self,
        config: Config,
        *,
        sinks: Callable[[RulePack], Iterable[Sink]] = lambda pack: (),
        insecure: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self._more_sinks = sinks
        self.reload_ok = True
        self._insecure = insecure
        self._clock = clock
        self._stopping = threading.Event()
        self._ready = False
        self._settled = False
        self._reloaded = 0.0
        self._lock_file: Any = None
        self._scheduler: Any = None
        self._server: Server | None = None
        self._series: dict[tuple[str, str], Series] = {}

    def start(self) -> None:
        """Open, and run the jobs until `stop`."""
        self.open()
        self._schedule()

    def open(self) -> None:
        """Load the rules, open the outbox and the endpoint, and find the logs."""
        config = self.config
        if not config.sources:
            raise RltriageError(
                "nothing to watch: name a SOURCE on the command line, or add `sources:` to the configuration"
            )
        self._rules = RuleFiles(config.packs)
        pack = self._rules.pack
        self._say_slips()
        receivers = routes(config)
        self._lock_state()
        self.dispatcher = Dispatcher(
            Outbox(config.state_dir),
            receivers,
            catalogue=pack.catalogue,
            silences=Silences(config.state_dir),
            links=Links(config.external_url, config.runbook_url),
        )
        try:
            shown = pack.rules if config.quiet_rules else ()
            self.gauges = Gauges(pack.catalogue.metrics, shown, max_runs=MAX_RUNS, more=self._samples)
            self._deliveries = Deliveries(self.dispatcher, self._clock)
            self._fleets = self._make_fleets(pack)
            self._reloaded = self._clock()
            self._server = serve_metrics(
                self.gauges, config.listen, web=web_of(config), insecure=self._insecure, ready=lambda: self._ready
            )
        except BaseException:
            self.dispatcher.close()
            self._unlock_state()
            raise
        raise_file_limit()
        self.discover()

    def _make_fleets(self, pack: RulePack) -> list[Watched]:
        """One fleet for everything on disk, one for each address: an answer that takes long holds up nothing else."""
        names, owners = RunNames(self.config.state_dir / "runs.json"), dict[str, str]()
        sources = self.config.sources
        groups = [[source for source in sources if source.kind == "path"], *([s] for s in sources if s.kind != "path")]
        return [
            Watched(
                Fleet(
                    group,
                    pack,
                    (self._deliveries, self.gauges, *self._more_sinks(pack)),
                    names=names,
                    retention=self.config.retention,
                    owners=owners,
                    open_alerts=self._open_alerts,
                )
            )
            for group in groups
        ]

    def stop(self) -> None:
        """Finish what is in progress, deliver what can be delivered, and let go. Stopping twice does nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._ready = False
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
        with suppress(Exception):
            self._last_flush()
        if self._server is not None:
            self._server.close()
        for watched in self._fleets:
            if watched.lock.acquire(timeout=STOP_SECONDS):
                watched.fleet.close()
                watched.lock.release()
        self.dispatcher.close()
        self._unlock_state()

    def run(self) -> None:
        """Start, and stop at SIGTERM or SIGINT; SIGHUP reloads the rules. For the main thread of a process."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, lambda *_: self._again(self.reload_rules))
        self.start()
        count = len(self.config.sources)
        log.info("watching %d source%s, metrics at %s/metrics", count, "" if count == 1 else "s", self.url)
        try:
            stop.wait()
        finally:
            self.stop()

    @property
    def url(self) -> str:
        """Where the endpoint answers."""
        return self._server.url if self._server is not None else ""

    @property
    def ready(self) -> bool:
        """Whether every log has been read to its end once, so that what is shown is what is so."""
        return self._ready

    def poll(self, watched: Watched | None = None) -> None:
        """Take what is new, in one fleet or in each; in slices, so that other jobs and clients have their turn between."""
        for each in [watched] if watched is not None else self._fleets:
            while not self._slice(each) and not self._stopping.wait(BREATH_SECONDS):
                pass
        # An address that does not answer is a source's error, not a reason to be taken out of service.
        self._ready = self._ready or self._fleets[0].fleet.caught_up

    def _slice(self, watched: Watched) -> bool:
        """Take rows for SLICE_SECONDS; whether that was all."""
        with watched.lock:
            until = time.monotonic() + SLICE_SECONDS
            return watched.fleet.poll(time.monotonic(), lambda: time.monotonic() > until or self._stopping.is_set())

    def discover(self, watched: Watched | None = None) -> None:
        """Look for new logs."""
        for each in [watched] if watched is not None else self._fleets:
            with each.lock:
                if not self._stopping.is_set():
                    each.fleet.discover(time.monotonic(), self._clock())

    def overdue(self) -> None:
        """Notice overdue rows, and close what nothing stands by: runs that are over, alerts of before a restart."""
        for each in self._fleets:
            with each.lock:
                if not self._stopping.is_set():
                    each.fleet.tick(self._clock())
                    each.fleet.forget(time.monotonic(), self._clock())
        if not self._settled and all(each.fleet.caught_up for each in self._fleets):
            self._settled = True
            known = {run for each in self._fleets for run in each.fleet.runs}
            for run in self.dispatcher.open_runs() - known:
                self.dispatcher.reconcile(run, frozenset(), self._clock())

    def reload_if_changed(self) -> None:
        """Reload the rules if one of their files changed since they were last read."""
        if self._rules.changed():
            self.reload_rules()

    def reload_rules(self) -> None:
        """Read the rule files anew. With mistakes in them the old rules stay, and it is said what is wrong."""
        try:
            pack = self._rules.load()
        except RltriageError as error:
            self.reload_ok = False
            log.error("the rules were not reloaded, the old ones stay:\n%s", error)
            return
        self._say_slips()
        for each in self._fleets:
            with each.lock:
                each.fleet.reload(pack)
        self.reload_ok = True
        self._reloaded = self._clock()
        log.info("reloaded %d rules", len(pack.rules))

    def _say_slips(self) -> None:
        """A rule may be off for a misspelt name; it may also be a trainer's own, so nobody is stopped."""
        for slip in self._rules.slips():
            log.warning("%s", slip)

    def flush(self, receiver: str) -> None:
        """Deliver what is due to one receiver."""
        if not self._stopping.is_set():
            self.dispatcher.flush(self._clock(), receiver)

    def _open_alerts(self, run: Run, alerts: tuple[Alert, ...], all_known: bool) -> None:
        self._deliveries.offer(run, alerts)
        if all_known:
            self.dispatcher.reconcile(run.id, {alert.id for alert in alerts}, self._clock())

    def _schedule(self) -> None:
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        # Its log says at every overrun that a job was skipped, which is what is meant to happen.
        logging.getLogger("apscheduler").setLevel(logging.ERROR)
        receivers = list(self.dispatcher.routes)
        # A thread for each receiver and address: one that hangs must not take those that poll.
        pool = ThreadPoolExecutor(4 + len(receivers) + 2 * len(self._fleets))
        defaults = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler = BackgroundScheduler(executors={"default": pool}, job_defaults=defaults, timezone="UTC")
        for watched in self._fleets:
            self._every(POLL_SECONDS, self.poll, watched)
            self._every(DISCOVER_SECONDS, self.discover, watched)
        self._every(OVERDUE_SECONDS, self.overdue)
        self._every(RELOAD_SECONDS, self.reload_if_changed)
        self._every(PRUNE_SECONDS, self.dispatcher.outbox.prune)
        for name in receivers:
            self._every(FLUSH_SECONDS, self.flush, name)
        self._scheduler.start()

    def _every(self, seconds: float, job: Callable[..., object], *arguments: object) -> None:
        self._scheduler.add_job(_guarded, "interval", (job, *arguments), seconds=seconds)

    def _again(self, job: Callable[[], object]) -> None:
        """Run a job now, in a thread of the scheduler: a signal handler must not wait for a lock."""
        if self._scheduler is not None:
            self._scheduler.add_job(_guarded, args=(job,))

    def _last_flush(self) -> None:
        """One attempt for each receiver at once, windows ended, within the time that a stop may take."""
        self.dispatcher.hasten(self._clock())
        threads = [
            threading.Thread(target=self.dispatcher.flush, args=(self._clock(), name), daemon=True)
            for name in self.dispatcher.routes
        ]
        for thread in threads:
            thread.start()
        begin = time.monotonic()
        for seconds in (LAST_REQUESTS_SECONDS, STOP_SECONDS):
            for thread in threads:
                thread.join(max(0.0, begin + seconds - time.monotonic()))
            self.dispatcher.wind_up()

    def _lock_state(self) -> None:
        """Two services on one state folder would tell everything twice."""
        folder = self.config.state_dir
        try:
            import fcntl

            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = open(folder / "lock", "a+")  # noqa: SIM115 (held while the service runs)
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock_state()
            raise DeliveryError(f"{folder} is used by another rltriage: stop it, or set another state_dir") from None
        except (ImportError, OSError) as error:
            # The outbox says for itself that it is in memory only; a full disk is no reason not to watch.
            log.warning("%s cannot be locked: %s", folder, error)

    def _unlock_state(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _samples(self) -> list[Sample]:
        """The service's own health, for the endpoint."""
        dispatcher, outbox = self.dispatcher, self.dispatcher.outbox
        found = [
            self._sample(LOST, outbox.dropped + dispatcher.errors),
            self._sample(SILENCED, dispatcher.silenced(self._clock())),
            self._sample(DISK, not outbox.degraded),
            self._sample(RELOADED, self.reload_ok),
            self._sample(RELOAD_TIME, self._reloaded),
            self._sample(LOGS, sum(each.fleet.logs for each in self._fleets)),
            self._sample(SOURCE_ERRORS, sum(each.fleet.errors for each in self._fleets)),
        ]
        for name, state in dispatcher.states.items():
            found += [
                self._sample(SENT, state.delivered, name),
                self._sample(REMINDERS, state.reminders, name),
                self._sample(FAILED, state.failed_attempts, name),
                self._sample(REFUSED, state.refused, name),
                self._sample(WAITING, len(outbox.waiting(name)), name),
                self._sample(UP, not state.problem, name),
            ]
        return found

    def _sample(self, family: Family, value: float, receiver: str = "") -> Sample:
        key = family.name, receiver
        if key not in self._series:
            self._series[key] = Series(family, (("receiver", receiver),) if receiver else ())
        return self._series[key], float(value)


def _guarded(job: Callable[..., object], *arguments: object) -> None:
    """A job that fails is logged and runs again at its next time."""
    try:
        job(*arguments)
    except Exception:
        log.exception("%s failed", getattr(job, "__name__", job))


def web_of(config: Config) -> Web:
    """The endpoint's protection with its secrets read. Raises DeliveryError for one that is missing."""
    web = config.web
    token = web.token() if web.token is not None else ""
    if 0 < len(token) < SHORTEST_TOKEN:
        raise DeliveryError(
            f"`web.token` has {len(token)} characters and could be guessed: take at least {SHORTEST_TOKEN}, as "
            "python -c 'import secrets; print(secrets.token_urlsafe())' prints them"
        )
    return Web(web.cert_file, web.key_file, {user: password() for user, password in web.users.items()} or None, token)
