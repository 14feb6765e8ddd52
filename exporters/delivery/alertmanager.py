"""Alertmanager, API v2: the contract is in its docs/alerts_api.md, the traps were measured on 0.25 (DESIGN section 8).

A 400 for a batch does not mean that nothing was stored: valid alerts of it are. So a refused batch is halved until the bad
alert is alone; posting the good ones again is harmless, because an alert is its labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rltriage.exporters.delivery.base import Outcome, send_halving
from rltriage.exporters.delivery.http import Poster
from rltriage.exporters.delivery.message import Message

PATH = "/api/v2/alerts"
RESEND_SECONDS = 60.0
LIFE_SECONDS = 4 * RESEND_SECONDS
"""How long Alertmanager believes an open alert without hearing of it again: three re-sends may be lost."""
AFTERLIFE_SECONDS = 300.0
"""How long a resolved alert is re-sent: an Alertmanager that was down or restarted has not seen it resolve."""


class Alertmanager:
    """Posts to every one of `posters`: replicas of a cluster share notifications, not alerts, so each must hear each alert.

    Accepted means that at least one replica took it; the others catch up at the next re-send.
    """

    batch = 100
    reminded = True

    def __init__(self, name: str, posters: Sequence[Poster]) -> None:
        self.name = name
        self._posters = tuple(posters)

    def send(self, messages: Sequence[Message], now: float) -> Outcome:
        alerts = [self.alert(message, now) for message in messages]
        outcomes = [_send_to(poster, alerts) for poster in self._posters]
        accepted = frozenset().union(*(outcome.accepted for outcome in outcomes))
        refused = {index: text for outcome in outcomes for index, text in outcome.refused.items() if index not in accepted}
        problems = [outcome.problem for outcome in outcomes if outcome.problem]
        wait = max((outcome.retry_after for outcome in outcomes), default=0.0)
        return Outcome(accepted, refused, "; ".join(problems), wait)

    def close(self) -> None:
        for poster in self._posters:
            poster.close()

    def alert(self, message: Message, now: float) -> dict[str, Any]:
        """One element of the array. An open alert carries its expiry, so that it ends by itself if we die."""
        found: dict[str, Any] = {"labels": dict(message.labels), "annotations": dict(message.annotations)}
        if message.open:
            found["startsAt"] = _rfc3339(min(message.starts, now))
            found["endsAt"] = _rfc3339(now + LIFE_SECONDS)
        else:
            # Without startsAt, Alertmanager keeps the earlier one that it knows.
            found["endsAt"] = _rfc3339(min(message.observed, now))
        # Anything but an absolute URL is answered with 422.
        if "page_url" in message.annotations:
            found["generatorURL"] = message.annotations["page_url"]
        return found


def _send_to(poster: Poster, alerts: Sequence[Mapping[str, Any]]) -> Outcome:
    return send_halving(lambda part: poster.post([alerts[index] for index in part]), range(len(alerts)))


def endpoint(url: str) -> str:
    """The address to post to, for an Alertmanager given as `http://host:9093` or with the path already there."""
    return url if url.rstrip("/").endswith(PATH) else url.rstrip("/") + PATH


def _rfc3339(seconds: float) -> str:
    """UTC with its zone: a time without one is taken as UTC, wrong by the offset and silently so (measured)."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
