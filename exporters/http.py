"""The live endpoint: `/metrics`, `/-/healthy`, `/-/ready` and a small page at `/`, on 127.0.0.1 unless told otherwise.

The standard library's threading server: one thread a connection, at most MAX_CONNECTIONS of them, the longest idle of
which makes room for a new one; a whole request has a time limit, and so has its answer, however slowly they trickle. So
no client can hold up the training process, or keep others from being served. `access.py` says who may read.
"""

from __future__ import annotations

import io
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rltriage.exporters import exposition
from rltriage.exporters.access import Web, claim, tls_context
from rltriage.exporters.gauges import Gauges
from rltriage.rules.errors import DeliveryError

__all__ = ["MAX_CONNECTIONS", "Server", "Web", "serve_metrics"]

MAX_CONNECTIONS = 32
TIMEOUT = 30.0
"""Seconds that a request may take to arrive, the idle time before it included, and its answer to be taken; above the usual
scrape interval of 15 s."""
ROOM_SECONDS = 1.0
"""How long a new connection waits for one that makes room; the idle one ends in milliseconds."""

_log = logging.getLogger("rltriage.http")
_PAGE = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>rltriage</title>
<body style="font: 16px/1.5 system-ui; max-width: 40em; margin: 3em auto"><h1>rltriage</h1>
<ul><li><a href="metrics">Metrics</a>: newest row and alert state of every run, for Prometheus</li>
<li><a href="-/healthy">Healthy</a>: the process answers</li><li><a href="-/ready">Ready</a>: it takes rows</li></ul>
</body></html>
"""


class Server:
    """A running endpoint. `url` is where it answers; `close` stops it and waits for its accepting thread."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        host, port = server.server_address[:2]
        scheme = "https" if server.tls else "http"
        name = str(host)
        self.url = f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"
        self._thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="rltriage-http", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads
            server.server_close()
            raise DeliveryError("cannot listen: this system starts no more threads for the process") from None

    def close(self) -> None:
        """Stop answering and free the port. Closing twice does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def release(self) -> None:
        """In a forked child: let go of the parent's port and connections, which stay the parent's."""
        self._server.release()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_metrics(
    gauges: Gauges,
    listen: str = "127.0.0.1:0",
    *,
    web: Web | None = None,
    insecure: bool = False,
    ready: Callable[[], bool] = lambda: True,
) -> Server:
    """Serve `gauges` at `HOST:PORT` (port 0 takes a free one) in daemon threads.

    Raises DeliveryError when the address is malformed, in use or not local without TLS and authentication (unless
    `insecure`), or when the certificate cannot be read.
    """
    web = web or Web()
    host, port = claim(listen, web, insecure)
    tls = tls_context(web)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = _Server(family, (host, port), gauges, ready, web, tls)
    except OSError as error:
        raise DeliveryError(
            f"cannot listen on {listen}: {error.strerror or error}; choose another port, or 0 for a free one"
        ) from None
    return Server(server)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        family: socket.AddressFamily,
        address: tuple[str, int],
        gauges: Gauges,
        ready: Callable[[], bool],
        web: Web,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.address_family = family
        self.gauges, self.ready, self.web, self.tls = gauges, ready, web, tls
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._idle: dict[int, socket.socket] = {}  # the longest idle first
        self._busy: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return self.socket.accept()
        except OSError:
            # Out of file descriptors, say: the connection stays in the queue, and to ask on and on would take all time.
            threading.Event().wait(0.1)
            raise

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for connection in (*self._idle.values(), *self._busy.values()):
                _break_off(connection)

    def release(self) -> None:
        # No lock: the thread that held it is in the parent. And no shutdown, which would end the parent's connections.
        for mine in (self.socket, *self._idle.values(), *self._busy.values()):
            with suppress(OSError):
                mine.close()

    def idle(self, connection: socket.socket) -> None:
        """The connection waits for a request, and may be broken off for another."""
        with self._lock:
            self._busy.pop(id(connection), None)
            self._idle[id(connection)] = connection

    def busy(self, connection: socket.socket) -> None:
        """The connection has sent its request and gets its answer."""
        with self._lock:
            self._idle.pop(id(connection), None)
            self._busy[id(connection)] = connection

    def over(self, connection: socket.socket) -> None:
        """The connection is closed."""
        with self._lock:
            self._idle.pop(id(connection), None)
            self._busy.pop(id(connection), None)

    def _has_room(self) -> bool:
        if self._slots.acquire(blocking=False):
            return True
        with self._lock:
            if not self._idle:
                return False
            _break_off(self._idle.pop(next(iter(self._idle))))
        return self._slots.acquire(timeout=ROOM_SECONDS)

    def server_bind(self) -> None:
        # HTTPServer's own looks up the host's full name, which can take seconds without a name server.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._has_room():
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        # The handshake belongs to the connection's own thread: in the accepting one, a silent client would block all.
        request.settimeout(TIMEOUT)
        if self.tls is None:
            self._serve(request, client_address)
        else:
            with self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as wrapped:
                self._serve(wrapped, client_address)

    def _serve(self, connection: socket.socket, client_address: Any) -> None:
        self.idle(connection)
        try:
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            super().finish_request(connection, client_address)
        finally:
            self.over(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection broke off", exc_info=True)


class _Timed(io.RawIOBase):
    """A connection's bytes until a deadline: a socket's own limit starts anew with each byte that trickles in or out."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline = 0.0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._limit()
        return self._connection.recv_into(buffer)

    def write(self, data: Any) -> int:
        self._limit()
        return self._connection.send(data)

    def _limit(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the client takes too long")
        self._connection.settimeout(left)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "rltriage"
    sys_version = ""
    timeout = TIMEOUT

    def setup(self) -> None:
        self.connection = self.request
        self._timed = _Timed(self.connection)
        self.rfile = io.BufferedReader(self._timed)
        self.wfile = io.BufferedWriter(self._timed, 1 << 16)

    def handle_one_request(self) -> None:
        self.server.idle(self.connection)
        self._timed.deadline = time.monotonic() + TIMEOUT
        super().handle_one_request()

    def parse_request(self) -> bool:
        right = super().parse_request()
        self.server.busy(self.connection)
        self._timed.deadline = time.monotonic() + TIMEOUT
        if right and (self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers):
            self.close_connection = True  # nobody reads the body, and it must not be taken for the next request
        return right

    def do_GET(self) -> None:
        route = {"/metrics": self._metrics, "/": self._page, "/-/healthy": self._healthy, "/-/ready": self._ready}
        path = self.path.partition("?")[0]
        web = self.server.web
        if not web.admits(self.headers.get("Authorization", "")):
            asked = {"WWW-Authenticate": ", ".join(web.challenges())}
            self._send(HTTPStatus.UNAUTHORIZED, b"authentication needed\n", **asked)
        elif path not in route:
            self._send(HTTPStatus.NOT_FOUND, b"nothing here: try /metrics\n")
        else:
            route[path]()

    do_HEAD = do_GET

    def _metrics(self) -> None:
        openmetrics = exposition.accepts_openmetrics(self.headers.get("Accept", ""))
        gzipped = exposition.accepts_gzip(self.headers.get("Accept-Encoding", ""))
        try:
            body = self.server.gauges.render(openmetrics, gzipped)
        except Exception:
            _log.exception("could not render the metrics")
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, b"could not render the metrics: see the log\n")
            return
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if gzipped else {})
        self._send(HTTPStatus.OK, body, exposition.OPENMETRICS if openmetrics else exposition.TEXT, **headers)

    def _page(self) -> None:
        self._send(HTTPStatus.OK, _PAGE, "text/html; charset=utf-8")

    def _healthy(self) -> None:
        self._send(HTTPStatus.OK, b"healthy\n")

    def _ready(self) -> None:
        if self.server.ready():
            self._send(HTTPStatus.OK, b"ready\n")
        else:
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready\n")

    def _send(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class calls for a request that it cannot take: one line, and the connection ends."""
        status = HTTPStatus(code)
        headers = {"Connection": "close"}
        if status is HTTPStatus.NOT_IMPLEMENTED:  # it means a method without a handler
            status, headers["Allow"] = HTTPStatus.METHOD_NOT_ALLOWED, "GET, HEAD"
        self.close_connection = True
        if not self.command:  # the base class takes what it cannot read for HTTP/0.9, whose answers have no status
            self.request_version = self.protocol_version
        self._send(status, f"{status.phrase.lower()}\n".encode(), **headers)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)


def _break_off(connection: socket.socket) -> None:
    """End a connection from another thread; its own thread then sees the end and cleans up."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not SSLSocket's, which pulls TLS from under the other thread
