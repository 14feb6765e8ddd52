"""Chat, mail and pagers through apprise (the extra `notify`): one URL a receiver.

One URL only: of two, the second may fail after the first has sent, and trying both again would tell the first twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rltriage.exporters.delivery.base import Outcome
from rltriage.exporters.delivery.http import CONNECT_SECONDS, READ_SECONDS, Text
from rltriage.exporters.delivery.message import Message
from rltriage.exporters.delivery.webhook import leading, text, title
from rltriage.rules.errors import DeliveryError


class Apprise:
    """Sends one notification for all messages that it is handed. Raises DeliveryError if apprise is not installed."""

    batch = 200
    reminded = False

    def __init__(self, name: str, url: Text) -> None:
        try:
            import apprise
        except ImportError as error:
            hint = "pip install 'rltriage[notify]'"
            raise DeliveryError(f"receiver {name} needs apprise, which is not installed: {hint}") from error
        self.name = name
        self._url = url
        self._apprise: Any = apprise

    def send(self, messages: Sequence[Message], now: float) -> Outcome:
        lead = leading(messages)
        kind = "success" if not lead.open else {"critical": "failure", "warning": "warning", "info": "info"}[lead.severity]
        try:
            client = self._apprise.Apprise()
            if not client.add(_bounded(self._url())):
                return Outcome(problem="its URL is none that apprise knows")
            sent = client.notify(title=title(messages), body=text(messages), notify_type=kind)
        except Exception as error:  # plugins may raise anything, and the text may quote the URL and its secrets
            return Outcome(problem=f"apprise failed with {type(error).__name__}")
        if not sent:
            return Outcome(problem="apprise could not deliver it")
        return Outcome(accepted=frozenset(range(len(messages))))

    def close(self) -> None:
        """Nothing is kept open between notifications."""


def _bounded(url: str) -> str:
    """The URL with apprise's time limits: without them a hanging server holds the notification (measured)."""
    if "cto=" in url or "rto=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}cto={CONNECT_SECONDS}&rto={READ_SECONDS}"
