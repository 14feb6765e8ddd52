"""Requests at the endpoint of the gauges and at the on-call page."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fuzzing.bounds import SECONDS, Target
from fuzzing.seeds import pack, sample
from rltriage.engine.report import EMPTY
from rltriage.engine.rows import Row, Run
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.http import Web, serve_metrics
from rltriage.exporters.page.board import Board
from rltriage.watching import WatchedRun

REQUESTS = (
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip;q=0.5, br\r\n\r\n",
    b"HEAD / HTTP/1.0\r\nAuthorization: Basic cHJvbTpzZWNyZXQ=\r\n\r\n",
    b"POST /-/healthy HTTP/1.1\r\nHost: [::1]:1\r\nContent-Length: 5\r\n\r\nabcde",
    b"GET /-/ready?x=%00&y HTTP/1.1\r\nAuthorization: Bearer token\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"GET /runs/team%2Fbroken?token=secret HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
    b'GET /api/runs?q=%ff&severity=critical HTTP/1.1\r\nHost: localhost\r\nCookie: rltriage_page=0; a="b"\r\n\r\n',
    b"GET /api/runs/broken/alerts/broken.kl-ref-exactly-zero.1.1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /static/../page.css HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-5,9999-\r\nIf-Modified-Since: x\r\n\r\n",
    b"GET /openapi.json HTTP/1.1\r\nHost: localhost:80:80\r\n\r\n",
)


def endpoint(folder: Path) -> Target:
    """Bytes at the endpoint of the gauges, with and without a login, on a pair of sockets."""
    gauges = Gauges({}, clock=lambda: 0.0)
    gauges.publish(Run("demo"), Row(1, {"reward": 0.5}), EMPTY)
    servers = [serve_metrics(gauges, web=web)._server for web in (Web(), Web(users={"prom": "secret"}, token="token"))]
    for server in servers:
        server.shutdown()

    def judge(data: bytes) -> None:
        oldest = b"HTTP/0.9" in data or any(len(line.split()) <= 2 for line in data.split(b"\n"))
        for server, asks in zip(servers, (False, True), strict=True):
            ours, theirs = socket.socketpair()
            with ours, theirs, ThreadPoolExecutor(1) as reading:
                ours.sendall(data)
                ours.shutdown(socket.SHUT_WR)
                answer = reading.submit(_received, ours)
                server.finish_request(theirs, ("127.0.0.1", 1))
                theirs.shutdown(socket.SHUT_RDWR)
                got = answer.result()
            assert not got or got.startswith(b"HTTP/1.1 ") or oldest, got[:50]
            assert b"HTTP/1.1 500" not in got and b"Traceback" not in got
            assert not asks or b"rltriage_" not in got or _LOGIN.search(data), "metrics without a login"

    return Target([*REQUESTS], judge)


_LOGIN = re.compile(rb"(?i)authorization:.*(cHJvbTpzZWNyZXQ=|token)")


def _received(connection: socket.socket) -> bytes:
    """All that comes until the other side has ended."""
    found = bytearray()
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            found += part
    return bytes(found)


def page(folder: Path) -> Target:
    """Requests at the on-call page, open and with a token: an answer below 500, and none of it without the token."""
    from rltriage.exporters.page.app import make_app

    board = Board(pack())
    for name in ("broken", "team/broken", "a<b>"):
        watched = WatchedRun(Run(name), pack(), (board,))
        for row in sample():
            watched.emit(Row(row.pop("step"), row))
    local = frozenset({"localhost", "127.0.0.1"})
    apps = [make_app(board, None, local), make_app(board, Web(users={"u": "p"}, token="secret"), None)]

    thread = ThreadPoolExecutor(1)  # in this one somebody else's loop may run, as a browser test's does

    def judge(data: bytes) -> None:
        for app in apps:
            thread.submit(_answer, app, data).result()

    return Target([*REQUESTS], judge)


def _answer(app: Any, data: bytes) -> None:
    asyncio.run(_ask(app, data))


async def _ask(app: Any, data: bytes) -> None:
    """A request as uvicorn hands it on: what its own parser refuses is not given."""
    head, _, body = data.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    method, target, *_ = [*line.split(b" "), b"GET", b"/"]
    path, _, query = target.partition(b"?")
    if path.startswith(b"/events") or b"/events" in unquote(path.decode("latin-1")).encode():
        return
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (field.partition(b":") for field in fields)]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method.decode("latin-1").upper(),
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "root_path": "",
        "query_string": query,
        "headers": headers,
        "server": ("127.0.0.1", 1),
        "client": ("1.2.3.4", 5),
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await asyncio.wait_for(app(scope, receive, send), SECONDS)
    assert sent[0]["type"] == "http.response.start" and sent[0]["status"] < 500, sent[0]
    for name, value in sent[0]["headers"]:
        assert b"\n" not in name + value and b"\r" not in name + value, (name, value)
