"""Many logs followed at once: found by path or glob, polled, each run watched, forgotten when its rows stop for long.

Nothing here reads a clock. A `Fleet` belongs to one thread at a time; the service sees to that. Logs on disk are one fleet;
an address, whose answers take time, is one of its own.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from rltriage.arguments import unknown_facts
from rltriage.engine.feed import Feed
from rltriage.engine.intake import Intake
from rltriage.engine.reference import Reference, read_reference
from rltriage.engine.report import Alert, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.engine.rundir import RUN, End, read_end
from rltriage.engine.sources import open_source
from rltriage.engine.sources.lines import MOST_AT_ONCE
from rltriage.misnamed import Misnamed
from rltriage.places import RunNames, expand, last_changed, last_written
from rltriage.rules.config import SourceConfig, text_of
from rltriage.rules.errors import RltriageError, SourceError
from rltriage.rules.facts import Tell, by_file, by_option
from rltriage.rules.model import RulePack
from rltriage.watching import Sink, WatchedRun, use_rules

log = logging.getLogger("rltriage.service")

SHORTEST_POLL = 0.4
"""Just under the service's round, so that a log with news is read in each of them."""
SHORTEST_ASK = 1.0
"""The same for an address, where each poll is a request and a whole answer."""
LONGEST_POLL = 30.0
"""For what costs more than a look at a file, which is done in every round: a row is seen within a second."""
_CHEAP = frozenset(("jsonl", "csv", "console", "run directory"))
IDLE_SHARE = 20.0
"""A log that has been silent for a while is asked again after this fraction of the silence."""
ALERTS_OUTLIVE = 900.0
"""Seconds for which alerts of a run that is over stay open."""


@dataclass(slots=True)
class Follower:
    """One log: its feed, the ids of its runs, when it is asked next and when it last had rows (monotonic seconds).

    `news` is what a poll that was interrupted has yet to take; `took`, `read` and `refused` are what it began with.
    `untouched` is when it was last written (unix seconds) if that was before anybody followed it, None once it is alive: a
    log that was finished yesterday is read, but that no row comes is no fault of its run.
    """

    where: str
    feed: Feed
    due: float
    heard: float
    caught_up: bool = False
    all_known: bool = False
    news: Iterator[tuple[Intake, Row]] | None = None
    took: int = 0
    read: int = 0
    refused: int = 0
    untouched: float | None = None
    is_address: bool = False
    declared: frozenset[str] = frozenset()
    references: tuple[Reference, ...] = ()
    tell: Tell = by_option
    runs: set[str] = field(default_factory=set)
    misnamed: dict[str, Misnamed] = field(default_factory=dict)
    told: tuple[int | None, tuple[End, float] | None] = (None, None)


class Fleet:
    """Every run that a service watches. `sinks` get each row and report, in their order.

    `open_alerts` is called with a run and its open alerts after each report that changed any, and once (`all_known` True)
    after a log has been read to its end for the first time and the clock was asked, too. `owners` says which log each run
    is read from, in all fleets of a service. Raises RltriageError for a source's reference that cannot be read.
    """

    def __init__(
        self,
        sources: Iterable[SourceConfig],
        pack: RulePack,
        sinks: Iterable[Sink],
        *,
        names: RunNames,
        retention: float,
        owners: dict[str, str],
        open_alerts: Callable[[Run, tuple[Alert, ...], bool], None],
    ) -> None:
        self.pack = pack
        self.runs: dict[str, WatchedRun] = {}
        self.rows = 0
        self.errors = 0
        self._sources = tuple(sources)
        self._references = {file: read_reference(file) for source in self._sources for file in source.references}
        self._shortest = SHORTEST_POLL if all(source.kind == "path" for source in self._sources) else SHORTEST_ASK
        self._sinks = tuple(sinks)
        self._names = names
        self._retention = retention
        self._open_alerts = open_alerts
        self._followers: dict[str, Follower] = {}
        self._turn: deque[Follower] = deque()
        self._owners = owners
        self._said: set[tuple[str, str]] = set()
        self._forgotten: dict[str, float] = {}
        self._newest: dict[str, tuple[int, float]] = {}

    @property
    def logs(self) -> int:
        """How many logs are followed."""
        return len(self._followers)

    @property
    def caught_up(self) -> bool:
        """Whether every log has been read to its end at least once, and every address has answered."""
        addresses = sum(source.kind != "path" for source in self._sources)
        return len(self._followers) >= addresses and all(follower.caught_up for follower in self._followers.values())

    def discover(self, now: float, wall: float) -> int:
        """Open what has appeared. Logs that were last written longer ago than `retention` are over and left alone."""
        opened = 0
        fresh: dict[str, SourceConfig] = {}
        for number, source in enumerate(self._sources):
            if source.kind != "path":
                opened += f"{source.kind} {number}" not in self._followers and self._follow_address(number, source, now)
                continue
            found = expand(str(source.where))
            if not found:
                self._say(str(source.where), "nothing there yet; waiting for it, in case it is still to come")
            for path in found:
                if path in self._followers:
                    continue
                if self._is_recent(path, wall):
                    fresh.setdefault(path, source)
                elif found == [str(source.where)] and path not in self._forgotten:
                    self._say(path, "its run is over, it was last written long ago; `rltriage replay` reads it")
        known = {path for path in fresh if self._names.knows(path)}
        names = self._names.name(fresh)
        for path, source in fresh.items():
            opened += self._follow(path, path, names[path], source, now)
            if path in self._followers and path not in known:
                self._followers[path].untouched = last_written(path)
        return opened

    def poll(self, now: float, pause: Callable[[], bool] = lambda: False) -> bool:
        """Take what is new in every log that is due, until `pause` says so; whether that was all.

        The next call goes on where this one stopped. A log that fails is asked again later.
        """
        if not self._turn:
            self._turn.extend(follower for follower in self._followers.values() if follower.due <= now)
        while self._turn:
            follower = self._turn.popleft()
            if self._followers.get(follower.where) is follower and not self._poll(follower, now, pause):
                self._turn.append(follower)  # the others first: a long log must not hold up the short ones
            if pause():
                return not self._turn
        return True

    def tick(self, wall: float) -> None:
        """Let overdue rows be noticed, and runs that say that they are over, where the log has been read to its end.

        A run that is over is not overdue. What it leaves open stays open for `ALERTS_OUTLIVE`, for a receiver that collects
        before it tells (Alertmanager's group_wait) would drop an alert that ends at once, as where it stopped the run. A
        page shows at once that it is over.
        A run whose rows have stopped is stale, and may be overdue all the same; what it leaves open stays so.
        """
        for follower in self._followers.values():
            if not follower.caught_up:
                continue
            if follower.untouched is not None and last_written(follower.where) != follower.untouched:
                follower.untouched = None
            over = _over(follower)
            for watched in self._watched(follower):
                if over is not None and (not watched.monitor.open_alerts or wall - over[1] > ALERTS_OUTLIVE):
                    self._after(watched, watched.end(over[0], wall))
                elif over is not None:
                    watched.say_over(over[0])
                elif over is None:
                    if follower.untouched is None:
                        self._after(watched, watched.tick(wall))
                    if watched.is_stale(wall - self._newest_of(follower, watched, wall)):
                        self._after(watched, watched.end("stale", wall))
                if not follower.all_known:
                    self._open_alerts(watched.run, watched.monitor.open_alerts, True)
            follower.all_known = True

    def reload(self, pack: RulePack) -> None:
        """Take other rules. Unchanged ones keep their state."""
        self.pack = pack
        use_rules(self._sinks, pack)
        for watched in self.runs.values():
            self._after(watched, watched.reload(pack))

    def forget(self, now: float, wall: float) -> int:
        """End runs whose log has had no rows for `retention` seconds; how many logs."""
        over = [follower for follower in self._followers.values() if now - follower.heard > self._retention]
        for follower in over:
            told = _over(follower)
            for watched in self._watched(follower):
                watched.end(told[0] if told is not None else "stale", wall)
                watched.leave()
                del self.runs[watched.run.id], self._owners[watched.run.id]
                self._newest.pop(watched.run.id, None)
            follower.feed.source.close()
            del self._followers[follower.where]
            self._forgotten[follower.where] = last_written(follower.where) or 0.0
        return len(over)

    def close(self) -> None:
        """Let go of the files. Runs go on without us, so no alert ends here."""
        for follower in self._followers.values():
            follower.feed.source.close()

    def _is_recent(self, path: str, wall: float) -> bool:
        written = last_written(path)
        return written is not None and wall - written <= self._retention and written > self._forgotten.get(path, 0.0)

    def _follow_address(self, number: int, source: SourceConfig, now: float) -> bool:
        """An address may be a secret, so it is called by its place in the configuration."""
        where = f"{source.kind} {number}"
        try:
            url = text_of(source.where)()
        except RltriageError as error:
            self._say(where, str(error))
            return False
        if source.query:
            url += ("&" if urlsplit(url).query else "?") + urlencode({"query": source.query})
        return self._follow(where, url, urlsplit(url).netloc.rpartition("@")[2], source, now)

    def _follow(self, where: str, path: str, name: str, source: SourceConfig, now: float) -> bool:
        try:
            feed = Feed(open_source(path, follow=True), name, source.profile, source.config, source.labels)
        except RltriageError as error:
            self.errors += 1
            self._say(where, "it does not answer as it should" if source.kind != "path" else str(error))
            return False
        references = tuple(self._references[file] for file in source.references)
        declared = frozenset(source.config)
        tell = by_file(source.file) if source.file else by_option
        self._followers[where] = Follower(
            where,
            feed,
            due=now,
            heard=now,
            is_address=source.kind != "path",
            declared=declared,
            references=references,
            tell=tell,
        )
        return True

    def _say(self, where: str, what: str) -> None:
        if (where, what) not in self._said:
            self._said.add((where, what))
            log.warning("%s: %s (said once)", where, what)

    def _poll(self, follower: Follower, now: float, pause: Callable[[], bool]) -> bool:
        """Take what is new in one log; False if `pause` came first, or if there may be more than one poll gives."""
        stats = follower.feed.source.stats
        if follower.news is None:
            follower.news, follower.took = follower.feed.news(), 0
            follower.read, follower.refused = stats.records, stats.bad
        failed = False
        try:
            for intake, row in follower.news:
                follower.took += 1
                self._take(follower, intake.run, row)
                self._say_misnamed(follower, intake)
                if pause():
                    return False
        except Exception as error:  # one log must not end the service; the next poll may do better
            self._say(follower.where, f"it cannot be read: {_why(follower, error)}")
            failed = True
        follower.news = None
        stats = follower.feed.source.stats  # an awaited log has its own only once it is there
        failed = failed or (not follower.took and stats.bad != follower.refused)
        self.errors += failed
        if follower.took:
            follower.heard = now
        longest = self._shortest if follower.feed.source.kind in _CHEAP else LONGEST_POLL
        follower.due = now + min(max(self._shortest, (now - follower.heard) / IDLE_SHARE), longest)
        if stats.records - follower.read >= MOST_AT_ONCE:
            return False
        follower.caught_up = follower.caught_up or not failed
        return True

    def _take(self, follower: Follower, run: Run, row: Row) -> None:
        try:
            watched = self._run(follower, run)
            if watched is not None:
                self.rows += 1
                self._after(watched, watched.emit(row, run))
        except Exception:  # a row that breaks the rules must not take those behind it with it
            self.errors += 1
            if (follower.where, "row") not in self._said:
                self._said.add((follower.where, "row"))
                log.exception("%s: a row of run %s cannot be judged (said once)", follower.where, run.id)

    def _run(self, follower: Follower, run: Run) -> WatchedRun | None:
        if self._owners.setdefault(run.id, follower.where) != follower.where:
            # Two logs of one id are two loggers of one run, or a copy: rows of both in turn would look like rewinds.
            self._say(follower.where, f"its run {run.id} is read from {self._owners[run.id]} already and ignored here")
            return None
        watched = self.runs.get(run.id)
        if watched is None:
            watched = self.runs[run.id] = WatchedRun(run, self.pack, self._sinks, follower.references, follower.tell)
            self._say_unknown(follower, run)
            follower.runs.add(run.id)
        return watched

    def _say_unknown(self, follower: Follower, run: Run) -> None:
        """A config fact that was declared for a log and that nobody knows is kept, but it may be a slip."""
        intake = next((one for one in follower.feed.intakes.values() if one.run.id == run.id), None)
        unknown = [key for key in intake.unknown_config if key in follower.declared] if intake is not None else []
        for sentence in unknown_facts(unknown, self.pack):
            self._say(run.id, sentence)

    def _say_misnamed(self, follower: Follower, intake: Intake) -> None:
        """A name that no rule reads though it is near a metric's. An address may be a secret, and is not shown."""
        names = follower.misnamed.setdefault(intake.run.id, Misnamed())
        if sentence := names.sentence(intake, self.pack, "" if follower.is_address else follower.where):
            self._say(intake.run.id, sentence)

    def _newest_of(self, follower: Follower, watched: WatchedRun, wall: float) -> float:
        """When the run's newest row came (unix seconds), to a round of the clock; or when the run was resumed, if later.

        Of rows that were there before, the row says it or the file: whichever is later, for a row's time may be local, or
        count from the start. Rows that come while we look need no clock but ours.
        """
        rows, newest = self._newest.get(watched.run.id, (0, wall))
        if rows != watched.monitor.counters.rows:
            known = (wall,) if rows else (watched.monitor.newest, last_written(follower.where))
            newest = min(wall, max((time for time in known if time is not None), default=wall))
            self._newest[watched.run.id] = watched.monitor.counters.rows, newest
        opened = follower.told[0]
        return newest if opened is None else max(newest, opened / 1e9)

    def _watched(self, follower: Follower) -> Iterator[WatchedRun]:
        return (self.runs[run] for run in sorted(follower.runs))

    def _after(self, watched: WatchedRun, report: StepReport) -> None:
        """What a report does not say: that an alert is no longer explained by another, and so is somebody's business."""
        if report.alerts:
            self._open_alerts(watched.run, watched.monitor.open_alerts, False)


def _over(follower: Follower) -> tuple[End, float] | None:
    """How and when the run of a run directory ended, by its own account; its file is read only when it has changed."""
    changed = last_changed(os.path.join(follower.where, RUN))
    if changed != follower.told[0]:
        follower.told = changed, read_end(follower.where) if changed is not None else None
    return follower.told[1]


def _why(follower: Follower, error: Exception) -> str:
    """What went wrong, in words where we have some; what an address answers, and it itself, may be a secret."""
    if isinstance(error, RltriageError) and not (follower.is_address and isinstance(error, SourceError)):
        return str(error)
    return type(error).__name__ if follower.is_address else f"{type(error).__name__}: {error}".rstrip(": ")


def raise_file_limit() -> None:
    """Thousands of logs are kept open; allow as many files as the system lets this process have."""
    try:
        import resource
    except ImportError:  # not on this system, where files have no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("at most %d files can be open: %s", soft, error)
