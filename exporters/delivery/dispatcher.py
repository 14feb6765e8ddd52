"""From transitions to receivers: who is told what, when it is tried again, and what is repeated.

Time comes in as an argument and nothing here sleeps. `offer` is cheap, never raises and never touches the network; `flush`
does, one receiver a call, so that a receiver that hangs holds up only itself.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from rltriage.engine.report import CLOSED, Alert, Incident, State
from rltriage.exporters.delivery.alertmanager import AFTERLIFE_SECONDS, RESEND_SECONDS
from rltriage.exporters.delivery.base import Outcome, Receiver
from rltriage.exporters.delivery.message import NO_CATALOGUE, NO_LINKS, Links, Message, compose
from rltriage.exporters.delivery.outbox import Entry, Outbox, backoff
from rltriage.exporters.delivery.silences import Silences
from rltriage.exporters.delivery.withheld import Offer, Withheld
from rltriage.rules.model import SEVERITIES, Catalogue, Severity

log = logging.getLogger("rltriage.delivery")

LONGEST_WAIT_SECONDS = 3600.0
"""The longest that a receiver is believed when it names a wait (Retry-After)."""
GROUP_WINDOW_SECONDS = 60.0
MAX_BATCHES = 50
"""Batches of one flush; the next flush goes on, after polling and scraping had their turn on the interpreter."""


@dataclass(frozen=True, slots=True)
class Route:
    """Which alerts a receiver hears of. `match` maps a label to globs, one of which must fit.

    `page` takes only critical alerts with a named first suspect. `group_window` is how many seconds alerts of one fault are
    collected before they become one notification; 0 sends each alone. Alertmanager groups by itself and gets all at once.
    """

    receiver: Receiver
    min_severity: Severity = "warning"
    page: bool = False
    match: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    group_window: float = GROUP_WINDOW_SECONDS

    @property
    def window(self) -> float:
        """How many seconds a message may wait for others of its fault."""
        return 0.0 if self.receiver.reminded else self.group_window

    def takes(self, message: Message) -> bool:
        """Whether the receiver wants this alert at all."""
        if SEVERITIES.index(message.severity) < SEVERITIES.index(self.min_severity) or (self.page and not message.page):
            return False
        labels = message.labels
        return all(any(fnmatchcase(labels.get(name, ""), glob) for glob in globs) for name, globs in self.match.items())


@dataclass(slots=True)
class ReceiverState:
    """How a receiver is doing. `failures` counts attempts that failed in a row, `problem` is the last one's reason.

    The next attempt is at `not_before`, `wait` seconds after the last.
    """

    delivered: int = 0
    reminders: int = 0
    failed_attempts: int = 0
    refused: int = 0
    failures: int = 0
    problem: str = ""
    not_before: float = 0.0
    wait: float = 0.0
    remind_at: float = 0.0
    sending: threading.Lock = field(default_factory=threading.Lock, repr=False)


class Dispatcher:
    """Routes transitions into the outbox and delivers what is due. What `silences` cover is kept back until they end.

    `offer` and `flush` may be called from several threads.
    """

    def __init__(
        self,
        outbox: Outbox,
        routes: Iterable[Route] = (),
        *,
        catalogue: Catalogue = NO_CATALOGUE,
        silences: Silences | None = None,
        links: Links = NO_LINKS,
        seed: int | None = None,
    ) -> None:
        self.outbox = outbox
        self.routes = {route.receiver.name: route for route in routes}
        self.states = {name: ReceiverState() for name in self.routes}
        self.errors = 0
        self._catalogue = catalogue
        self._links = links
        self._silences = silences or Silences(None)
        self._withheld = Withheld(self._silences)
        self._random = random.Random(seed)
        self._windows: dict[tuple[str, str], float] = {}
        self._winding_up = False

    def use(self, catalogue: Catalogue) -> None:
        """Word messages with the titles of another catalogue."""
        self._catalogue = catalogue

    def offer(
        self,
        alerts: Iterable[Alert],
        now: float,
        *,
        labels: Mapping[str, str] | None = None,
        incident: Incident | None = None,
    ) -> int:
        """Accept transitions for every receiver that wants them; on disk before this returns. How many were new.

        A pending alert is nobody's business yet, an explained one is listed but not notified, and a receiver that was never
        told that an alert fires is not told that it ended.
        """
        with self.outbox.batch():
            return sum(self._offer(Offer(alert, labels, incident), now) for alert in alerts if alert.state != "pending")

    def _offer(self, offer: Offer, now: float) -> int:
        """Tell of a transition, unless it is old or silenced. What was kept back of an alert that ends is done with."""
        try:
            self._withheld.track(offer.alert, now)
            if not self._is_news(offer.alert) or self._withheld.keep(offer, now):
                return 0
            accepted = self._tell(offer, now)
            kept = self._withheld.drop(offer.alert.id) if offer.alert.state in CLOSED else []
            for each in [*kept, offer] if kept else []:
                self._settle(each, now)
            return accepted
        except Exception:  # an alert that cannot be worded must not stop the rows behind it
            self.errors += 1
            log.exception("the alert %s of run %s could not be queued", offer.alert.rule, offer.alert.run)
            return 0

    def _tell(self, offer: Offer, now: float) -> int:
        message = self._compose(offer, now)
        quiet = offer.alert.explained_by is not None
        return sum(self._accept(route, message, quiet, now) for route in self.routes.values())

    def _compose(self, offer: Offer, now: float) -> Message:
        return compose(
            offer.alert, now, catalogue=self._catalogue, labels=offer.labels, incident=offer.incident, links=self._links
        )

    def _settle(self, offer: Offer, now: float) -> None:
        """Nobody was told and nobody will be, also not by the replay after a restart, when the silence may be over."""
        message = self._compose(offer, now)
        for name, route in self.routes.items():
            for severity in SEVERITIES:
                self.outbox.settle(name, message, now, _key_state(route, message.state, severity))

    def _release(self, now: float) -> None:
        """Tell what silences that have ended kept back; in one batch, so that no end overtakes it."""
        self._silences.save(now)
        with self.outbox.batch():
            for offer in self._withheld.due(now):
                self._offer(offer, now)

    def silenced(self, now: float) -> int:
        """How many open alerts a silence covers."""
        return self._withheld.count(now)

    def flush(self, now: float, receiver: str | None = None) -> int:
        """Deliver what is due, to one receiver or to each in turn; how many messages were accepted. Never raises."""
        self.outbox.retry_disk()
        self._release(now)
        sent = 0
        for name in [receiver] if receiver is not None else list(self.routes):
            state = self.states[name]
            with state.sending:  # two flushes at once would both send what waits
                sent += self._flush(self.routes[name], state, now)
        return sent

    def reconcile(self, run: str, open_ids: Set[str], now: float) -> int:
        """After the replay that follows a restart: close what a receiver holds open and no rule of the run stands by.

        Rules that changed, or a log that was rewritten, leave such alerts; nothing else would ever close them.
        """
        closed = 0
        for name, route in self.routes.items():
            for entry in self.outbox.live(name):
                message = entry.message
                if message.run != run or not message.open or message.alert in open_ids:
                    continue
                if not self._told(route, message.alert, *CLOSED):  # else its end is on its way already
                    closed += self._supersede(route, message, now)
        return closed

    def open_runs(self) -> set[str]:
        """Runs that some receiver holds an open alert of."""
        return {e.message.run for name in self.routes for e in self.outbox.live(name) if e.message.open}

    def hasten(self, now: float) -> None:
        """End all windows that collect alerts: the service stops, and the next flush is the last."""
        for name in self.routes:
            self.outbox.hasten(name, now)

    def wind_up(self) -> None:
        """Begin no further request: what is sent after `close` could not be noted, and would be sent again."""
        self._winding_up = True

    def test(self, now: float) -> dict[str, Outcome]:
        """Send one made-up alert to every receiver, past the outbox; what became of it."""
        alert = Alert(
            id="test", run="rltriage-test", rule="test-notification", state="firing", severity="critical", group="liveness",
            step=0, since_step=0, segment=0, summary="This is a test: rltriage can reach this receiver.", values={},
            suspects=(), first_test="",
        )  # fmt: skip
        message = compose(alert, now)
        return {name: route.receiver.send([message], now) for name, route in self.routes.items()}

    def close(self) -> None:
        """Let go of the receivers' connections and of the outbox."""
        for route in self.routes.values():
            route.receiver.close()
        self.outbox.close()

    def _is_news(self, alert: Alert) -> bool:
        """Whether some receiver may still have to hear of it; asked first, because composing a message costs far more."""
        rank = SEVERITIES.index(alert.severity)
        return any(
            not self.outbox.knows(alert.id, _key_state(route, alert.state, alert.severity), name)
            for name, route in self.routes.items()
            if alert.state != "firing" or rank >= SEVERITIES.index(route.min_severity)
        )

    def _accept(self, route: Route, message: Message, quiet: bool, now: float) -> bool:
        name, reminded = route.receiver.name, route.receiver.reminded
        if message.state == "firing":
            if quiet or not route.takes(message):
                return False
        elif not self._told(route, message.alert, "firing"):
            return False
        elif message.state == "stale":
            return False  # it is open as before; that a run stopped is said by its liveness alert, once
        if not reminded:
            return self.outbox.put(name, message, now, self._due(route, message, now))
        accepted = self.outbox.put(name, message, now, state=_key_state(route, message.state, message.severity))
        if accepted:
            self._close_others(name, message, now)
        return accepted

    def _told(self, route: Route, alert: str, *states: State) -> bool:
        """Whether one of these transitions of an alert was ever accepted for the receiver, at any severity."""
        keys = {_key_state(route, state, severity) for state in states for severity in SEVERITIES}
        return any(self.outbox.knows(alert, key, route.receiver.name) for key in keys)

    def _close_others(self, name: str, message: Message, now: float) -> None:
        """An open alert whose severity changed, because a config fact became known, is another series: end the old one."""
        for entry in [*self.outbox.live(name), *self.outbox.waiting(name)]:
            old = entry.message
            if old.alert == message.alert and old.series != message.series and old.open:
                self._supersede(self.routes[name], old, now)

    def _supersede(self, route: Route, message: Message, now: float) -> bool:
        annotations = {**message.annotations, "state": "superseded"}
        ending = replace(message, state="superseded", observed=now, annotations=annotations)
        key_state = _key_state(route, ending.state, ending.severity)
        return self.outbox.put(route.receiver.name, ending, now, state=key_state)

    def _due(self, route: Route, message: Message, now: float) -> float:
        """The end of the window that collects the fault's alerts; the first one opens it."""
        if route.window <= 0:
            return now
        key = route.receiver.name, message.grouping
        due = self._windows.get(key, now)
        if not now < due <= now + route.window:
            due = self._windows[key] = now + route.window
        return due

    def _flush(self, route: Route, state: ReceiverState, now: float) -> int:
        # Further off than the whole wait: the clock was set back.
        if now < state.not_before <= now + state.wait:
            return 0
        sent = 0
        for _ in range(MAX_BATCHES):
            batch = self._batch(route, now)
            if not batch or self._winding_up:
                break
            outcome = route.receiver.send([entry.message for entry in batch], now)
            sent += self._record(route, state, batch, outcome, now)
            if state.failures:
                return sent
        if route.receiver.reminded:
            self._remind(route, state, now)
        return sent

    def _batch(self, route: Route, now: float) -> list[Entry]:
        """The next messages for one call: a run's in order, a series once, and one fault where alerts are grouped."""
        receiver = route.receiver
        grouped = not receiver.reminded
        size = 1 if grouped and route.window <= 0 else receiver.batch
        batch: list[Entry] = []
        passed: set[str] = set()
        series: set[str] = set()
        for entry in self.outbox.due(receiver.name, now, route.window):
            message = entry.message
            other_fault = grouped and batch and message.grouping != batch[0].message.grouping
            if message.run in passed or other_fault or (not grouped and message.series in series):
                passed.add(message.run)
                continue
            series.add(message.series)
            batch.append(entry)
            if len(batch) == size:
                break
        return batch

    def _record(self, route: Route, state: ReceiverState, batch: list[Entry], outcome: Outcome, now: float) -> int:
        name = route.receiver.name
        accepted = [entry for index, entry in enumerate(batch) if index in outcome.accepted]
        self.outbox.delivered(accepted, now, keep=route.receiver.reminded)
        state.delivered += len(accepted)
        for index, words in outcome.refused.items():
            entry = batch[index]
            self.outbox.refused(entry, now + self._wait(entry.refusals))
            state.refused += 1
            if entry.refusals == 1:
                log.error("receiver %s will not take %s of run %s: %s", name, entry.message.rule, entry.message.run, words)
        settled = len(accepted) + len(outcome.refused)
        self._judge(name, state, outcome, settled == len(batch) or (settled > 0 and not outcome.problem), now)
        return len(accepted)

    def _judge(self, name: str, state: ReceiverState, outcome: Outcome, through: bool, now: float) -> None:
        """Back off from a receiver that failed; say so when it starts and when it ends, not at every attempt."""
        if outcome.problem and outcome.problem != state.problem:
            log.warning("receiver %s: %s", name, outcome.problem)
        elif state.problem and not outcome.problem:
            log.warning("receiver %s works again", name)
        state.problem = outcome.problem
        if through:
            state.failures = 0
            state.not_before = 0.0
            return
        state.failed_attempts += 1
        state.wait = min(max(self._wait(state.failures), outcome.retry_after), LONGEST_WAIT_SECONDS)
        state.not_before = now + state.wait
        state.failures += 1

    def _wait(self, failures: int) -> float:
        """Exponential backoff, between half of it and all of it, so that many watchers do not knock together."""
        return backoff(failures) * (0.5 + self._random.random() / 2)

    def _remind(self, route: Route, state: ReceiverState, now: float) -> None:
        """Re-send what a forgetful receiver must keep believing, and for a while what has ended."""
        if now < state.remind_at <= now + RESEND_SECONDS:
            return
        name = route.receiver.name
        live = self.outbox.live(name)
        over = [e for e in live if not e.message.open and now - (e.delivered or e.created) > AFTERLIFE_SECONDS]
        self.outbox.forget(over)
        # A series whose next state already waits must not be told its old one again.
        moving = {entry.message.series for entry in self.outbox.waiting(name)} | {entry.message.series for entry in over}
        told = now - RESEND_SECONDS / 2
        entries = [e for e in live if e.message.series not in moving and not told < (e.delivered or 0.0) <= now]
        for start in range(0, len(entries), route.receiver.batch):
            if self._winding_up:
                return
            part = entries[start : start + route.receiver.batch]
            outcome = route.receiver.send([entry.message for entry in part], now)
            state.reminders += len(outcome.accepted)
            self._judge(name, state, outcome, len(outcome.accepted) + len(outcome.refused) == len(part), now)
            if state.failures:
                return
        state.remind_at = now + RESEND_SECONDS


def _key_state(route: Route, state: str, severity: str) -> str:
    """The outbox's state: with the severity where receivers tell alerts apart by labels, of which it can change."""
    return f"{state} {severity}" if route.receiver.reminded else state
