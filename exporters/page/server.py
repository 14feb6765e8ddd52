"""The page in a thread of its own: uvicorn on an address that is claimed before anything starts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rltriage.exporters.access import Web, claim, is_local
from rltriage.exporters.page.board import Board
from rltriage.rules.errors import DeliveryError, RltriageError

if TYPE_CHECKING:
    from rltriage.exporters.page.app import Streams

STOP_SECONDS = 5.0
HEAD_SECONDS = 15.0
"""How long a client may take to send its request: connections that say nothing must not take the places of readers."""
UNREAD_SECONDS = 30.0
"""How long a client may leave what was sent to it unread (Linux)."""


class PageServer:
    """A running page: `url` is where it answers."""

    def __init__(self, server: object, thread: threading.Thread, url: str, streams: Streams) -> None:
        self.url = url
        self._streams = streams
        self._server = server
        self._thread = thread

    def close(self) -> None:
        """Stop answering; open streams end. Closing twice does nothing."""
        self._streams.close()
        self._server.should_exit = True  # type: ignore[attr-defined]
        self._thread.join(STOP_SECONDS)

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_page(
    board: Board, listen: str, *, web: Web | None = None, insecure: bool = False, external_url: str = ""
) -> PageServer:
    """Serve `board` at `HOST:PORT` (port 0 takes a free one), protected as the gauges' endpoint is.

    Raises DeliveryError when the address is malformed, in use, or not local without TLS and authentication (unless
    `insecure`), or when no thread can be started; RltriageError when the extra `web` is missing.
    """
    try:
        import uvicorn

        from rltriage.exporters.page.app import Streams, make_app
    except ImportError as error:
        raise RltriageError(
            f"the page needs the extra 'web' ({error.name} is missing): pip install 'rltriage[web]'"
        ) from None

    web = web or Web()
    host, port = claim(listen, web, insecure)
    bound = _bind(host, port, listen)
    streams = Streams()
    config = uvicorn.Config(
        make_app(board, web, _names(host, web, external_url), streams),
        http=_hasty(),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=200,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
        ssl_certfile=web.cert_file or None,
        ssl_keyfile=web.key_file or None,
    )
    try:
        config.load()
    except OSError as error:
        bound.close()
        raise DeliveryError(f"cannot use the certificate {web.cert_file} with its key: {error}") from None
    server = uvicorn.Server(config)
    thread = threading.Thread(target=_serve, args=(server, bound), name="rltriage-page", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads
        bound.close()
        raise DeliveryError(f"cannot listen on {listen}: this system starts no more threads for the process") from None
    shown, number = bound.getsockname()[:2]
    scheme = "https" if web.cert_file else "http"
    return PageServer(server, thread, f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{number}", streams)


def _hasty() -> type[asyncio.Protocol]:
    """uvicorn's protocol, which waits for a request for ever, with a limit on that wait."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Hasty(H11Protocol):
        _limit: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            self._time_it()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._time_it()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._limit is not None:
                self._limit.cancel()
            super().connection_lost(exc)

        def _time_it(self) -> None:
            """Start the limit where half a request is there; end it where a whole one is being answered."""
            if self.cycle is not None and not self.cycle.response_complete:
                if self._limit is not None:
                    self._limit.cancel()
                self._limit = None
            elif self._limit is None:
                self._limit = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    return Hasty


def _serve(server: object, bound: socket.socket) -> None:
    with contextlib.closing(bound):
        server.run(sockets=[bound])  # type: ignore[attr-defined]


def _bind(host: str, port: int, listen: str) -> socket.socket:
    """A listening socket. It is bound here, so that an address that is taken is said before anything else starts."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNREAD_SECONDS * 1000))
        bound.bind((host, port))
        bound.listen(128)
    except OSError as error:
        bound.close()
        why = error.strerror or error
        raise DeliveryError(f"cannot listen on {listen}: {why}; choose another port, or 0 for a free one") from None
    return bound


def _names(host: str, web: Web, external_url: str) -> frozenset[str] | None:
    """The host names that a page on this machine alone answers under; None (any) where others reach it or users log in."""
    if web.asks or not is_local(host):
        return None
    own = f"[{host}]" if ":" in host else host.lower()
    return frozenset({"localhost", "127.0.0.1", "[::1]", own, (urlsplit(external_url).hostname or own).lower()})
