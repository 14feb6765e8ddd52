"""What stands before every address: who may ask, under which name, and what browsers may do with the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rltriage.exporters.http import allowed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """An ASGI application before another: basic authentication, known host names, GET and HEAD alone, strict headers."""

    def __init__(self, app: ASGIApp, users: Mapping[str, str], hosts: frozenset[str] | None) -> None:
        self._app, self._users, self._hosts = app, users, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = {name: value.decode("latin-1") for name, value in scope["headers"]}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        if self._hosts is not None and _name(given.get(b"host", "")) not in self._hosts:
            await _refuse(guarded, 421, b"this page does not answer under that name\n")
        elif not allowed(self._users, given.get(b"authorization", "")):
            await _refuse(guarded, 401, b"authentication needed\n", (b"www-authenticate", b'Basic realm="rltriage"'))
        elif scope["method"] not in ("GET", "HEAD"):
            await _refuse(guarded, 405, b"only GET and HEAD\n", (b"allow", b"GET, HEAD"))
        else:
            await self._app(scope, receive, guarded)


def _name(host: str) -> str:
    """A Host header without its port."""
    return (host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]).lower()


async def _refuse(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    start = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
