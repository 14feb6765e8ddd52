"""One POST of JSON with bounded time and a bounded answer.

urllib3, because it is what the larger clients are built on and brings no other package, separates the time to connect from
the time to answer, and does nothing on its own that an outbox must do itself: retries and redirects are off here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import urllib3

from rltriage import __version__
from rltriage.rules.errors import DeliveryError

CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
SHOWN_ANSWER = 500

Text = Callable[[], str]
"""Gives a text that may be a secret, read at the moment of use so that a rotated one works without a restart."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `status` is 0 where nothing did; `detail` says why, without any part of the URL but its host."""

    status: int
    detail: str
    retry_after: float = 0.0

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def refuses_content(self) -> bool:
        """The receiver understood the request and will not have this body: another body might pass."""
        return self.status in (400, 413, 422)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Headers and basic authentication, with every secret behind a function and out of the repr."""

    headers: Mapping[str, Text] = field(default_factory=dict, repr=False)
    username: str = ""
    password: Text | None = field(default=None, repr=False)

    def resolve(self) -> dict[str, str]:
        """The headers to send. Raises DeliveryError or OSError where a secret cannot be read."""
        found = {name: text() for name, text in self.headers.items()}
        if self.password is not None:
            found |= urllib3.make_headers(basic_auth=f"{self.username}:{self.password()}")
        return found


class Poster:
    """Posts JSON to one URL. Thread-safe; connections are kept alive."""

    def __init__(
        self,
        url: Text,
        credentials: Credentials | None = None,
        *,
        connect: float = CONNECT_SECONDS,
        read: float = READ_SECONDS,
        ca_file: str | None = None,
    ) -> None:
        self._url = url
        self._credentials = credentials or Credentials()
        timeout = urllib3.Timeout(connect=connect, read=read)
        self._pool = urllib3.PoolManager(timeout=timeout, retries=False, ca_certs=ca_file)

    def post(self, payload: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """Send `payload` as JSON. Never raises: whatever goes wrong is an Answer with status 0."""
        host = "the receiver"
        try:
            url = self._url()
            host = urlsplit(url).hostname or host
            sent = {"Content-Type": "application/json", "User-Agent": f"rltriage/{__version__}"}
            sent |= self._credentials.resolve() | dict(headers or {})
            body = json.dumps(payload, ensure_ascii=True).encode()
            # Read by hand, and once: an answer without an end must not fill memory or hold us.
            response = self._pool.request("POST", url, body=body, headers=sent, redirect=False, preload_content=False)
            data = response.read1(SHOWN_ANSWER)
            if len(data) == int(response.headers.get("Content-Length", "-1")):
                response.release_conn()
            else:
                response.close()
            text = data.decode("utf-8", "replace")
            return Answer(response.status, " ".join(text.split()), _seconds(response.headers.get("Retry-After")))
        except urllib3.exceptions.NewConnectionError:
            return Answer(0, f"{host} refused the connection or cannot be found")
        except urllib3.exceptions.ConnectTimeoutError:
            return Answer(0, f"{host} did not accept a connection in time")
        except urllib3.exceptions.ReadTimeoutError:
            return Answer(0, f"{host} did not answer in time")
        except urllib3.exceptions.SSLError:
            return Answer(0, f"{host}: the TLS handshake failed; set ca_file for a certificate of your own")
        except DeliveryError as error:  # a secret that is not where it should be
            return Answer(0, str(error))
        except Exception as error:  # a receiver must never take its flush down; texts of errors may quote the URL
            return Answer(0, f"{host}: {type(error).__name__}")

    def close(self) -> None:
        self._pool.clear()


def _seconds(text: str | None) -> float:
    """Retry-After in seconds; dates are not worth trusting two clocks for."""
    return float(text) if text and text.isdigit() else 0.0
