"""The receivers of a configuration, ready to be sent to."""

from __future__ import annotations

from rltriage.exporters.delivery.alertmanager import Alertmanager, endpoint
from rltriage.exporters.delivery.apprise_ import Apprise
from rltriage.exporters.delivery.base import Receiver
from rltriage.exporters.delivery.dispatcher import Route
from rltriage.exporters.delivery.http import Credentials, Poster
from rltriage.exporters.delivery.webhook import Webhook
from rltriage.rules.config import Config, ReceiverConfig, Setting, text_of


def routes(config: Config) -> list[Route]:
    """One route for each receiver, in the file's order. Raises DeliveryError if apprise is wanted and not installed."""
    return [
        Route(
            _receiver(receiver),
            receiver.min_severity,
            receiver.page,
            receiver.match,
            receiver.group_window,
        )
        for receiver in config.receivers
    ]


def _receiver(receiver: ReceiverConfig) -> Receiver:
    if receiver.kind == "apprise":
        return Apprise(receiver.name, text_of(receiver.urls[0]))
    if receiver.kind == "webhook":
        return Webhook(receiver.name, _poster(receiver, receiver.urls[0]), receiver.body)
    posters = [_poster(receiver, url, complete=True) for url in receiver.urls]
    return Alertmanager(receiver.name, posters)


def _poster(receiver: ReceiverConfig, url: Setting, complete: bool = False) -> Poster:
    auth = receiver.basic_auth
    headers = {name: text_of(value) for name, value in receiver.headers.items()}
    credentials = Credentials(headers, auth.username, auth.password) if auth else Credentials(headers)
    read = text_of(url)
    return Poster((lambda: endpoint(read())) if complete else read, credentials, ca_file=receiver.ca_file or None)
