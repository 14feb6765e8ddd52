"""What a silence keeps back: the transitions of open alerts, told when the silence ends before the alert does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from rltriage.engine.report import CLOSED, OPEN, Alert, Incident, State
from rltriage.exporters.delivery.silences import Silence, Silences


@dataclass(frozen=True, slots=True)
class Offer:
    """A transition as it was offered, with the run's labels and its incident at that moment."""

    alert: Alert
    labels: Mapping[str, str] | None = field(default=None)
    incident: Incident | None = None


class Withheld:
    """Knows the open alerts and keeps what silences cover, the newest transition of each state. Thread-safe.

    Only in memory: a restart replays the logs, and what is silenced then is kept back again.
    """

    def __init__(self, silences: Silences) -> None:
        self._silences = silences
        self._open: dict[str, tuple[str, str]] = {}
        self._held: dict[str, dict[State, Offer]] = {}
        self._lock = threading.Lock()

    def track(self, alert: Alert, now: float) -> None:
        """Take note of an alert that opens or ends; the end of the last one that it covers ends an acknowledgement.

        An end from before the acknowledgement is one that a replay repeats: it ends nothing.
        """
        with self._lock:
            if alert.state in OPEN:
                self._open[alert.id] = alert.run, alert.rule
            if alert.state not in CLOSED or self._open.pop(alert.id, None) is None:
                return
            ended = now if alert.time is None else alert.time
            for silence in self._silences.active(now):
                meant = silence.until is None and silence.created <= ended and silence.covers(alert.run, alert.rule)
                if meant and not any(silence.covers(*other) for other in self._open.values()):
                    self._silences.over(silence)

    def keep(self, offer: Offer, now: float) -> bool:
        """Keep an open alert's transition back if a silence covers it; whether one does."""
        alert = offer.alert
        if alert.state not in OPEN or not _covered(self._silences.active(now), alert.run, alert.rule):
            return False
        with self._lock:
            self._held.setdefault(alert.id, {})[alert.state] = offer
        return True

    def drop(self, alert: str) -> list[Offer]:
        """What was kept back of an alert that has ended: nobody needs to hear of it any more."""
        with self._lock:
            return list(self._held.pop(alert, {}).values())

    def due(self, now: float) -> list[Offer]:
        """What no silence covers any more, no longer kept: to be told now."""
        with self._lock:
            silences = self._silences.active(now) if self._held else ()
            heads = {alert: next(iter(offers.values())).alert for alert, offers in self._held.items()}
            ready = [alert for alert, head in heads.items() if not _covered(silences, head.run, head.rule)]
            return [offer for alert in ready for offer in self._held.pop(alert).values()]

    def count(self, now: float) -> int:
        """How many open alerts a silence covers."""
        silences = self._silences.active(now)
        with self._lock:
            found = list(self._open.values()) if silences else []
        return sum(_covered(silences, run, rule) for run, rule in found)


def _covered(silences: tuple[Silence, ...], run: str, rule: str) -> bool:
    return any(silence.covers(run, rule) for silence in silences)
