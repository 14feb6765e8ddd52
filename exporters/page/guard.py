"""What stands before every address: who may ask, under which name, and what browsers may do with the answer.

A browser logs in with the token once: `?token=...` gives it a cookie and sends it to the same address without the token, so
that neither history nor bookmarks keep it. The cookie is derived from the token: it outlives a restart and ends when the
token is changed. It is sent along when somebody follows a link from a chat (`SameSite=Lax`), and never to scripts.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from rltriage.exporters.access import Web, same

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
COOKIE = "rltriage_page"
COOKIE_DAYS = 30
STYLES = frozenset(("/static/report.css", "/static/page.css"))
"""What needs no login, for the form that asks for it: colours and sizes, and no word of any run."""
_TEXT, _HTML = b"text/plain; charset=utf-8", b"text/html; charset=utf-8"
_LOGIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>token needed: rltriage</title>
<link rel="stylesheet" href="/static/report.css"><link rel="stylesheet" href="/static/page.css"></head>
<body><header class="top"><strong>rltriage</strong></header><main><section class="head"><h1>This page needs a token</h1>
<p>It is the one that <code>web: {token: ...}</code> names in <code>rltriage.yaml</code>.</p>%s
<form method="get" class="login"><label for="token">Token</label>
<input id="token" type="password" name="token" required autofocus autocomplete="current-password">
<button type="submit">Open</button></form></section></main></body></html>
"""

_WRONG = '\n<p role="alert" class="wrong"><strong>That is not the token.</strong> It may have been changed.</p>'


class Guard:
    """An ASGI application before another: who may ask, known host names, GET and HEAD alone, strict headers."""

    def __init__(self, app: ASGIApp, web: Web, hosts: frozenset[str] | None) -> None:
        self._app, self._web, self._hosts = app, web, hosts
        self._session = hmac.new(web.token.encode(), b"rltriage page", hashlib.sha256).hexdigest() if web.token else ""

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
            await _answer(guarded, 421, b"this page does not answer under that name\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await _answer(guarded, 405, b"only GET and HEAD\n", (b"allow", b"GET, HEAD"))
        elif self._web.token and (token := _token(scope)) is not None:
            await self._log_in(scope, token, guarded)
        elif scope["path"] in STYLES:
            await self._app(scope, receive, guarded)
        elif not self._web.admits(given.get(b"authorization", "")) and not self._known(given.get(b"cookie", "")):
            await self._ask(guarded, given.get(b"accept", ""))
        else:
            await self._app(scope, receive, guarded)

    def _known(self, cookies: str) -> bool:
        """Whether the browser has logged in."""
        # Not SimpleCookie, whose work grows with the square of some headers, and anybody may send one.
        given = dict(part.strip().partition("=")[::2] for part in cookies.split(";"))
        return bool(self._session) and same(given.get(COOKIE, ""), self._session)

    async def _log_in(self, scope: Scope, token: str, send: Send) -> None:
        """Give the browser its cookie for the right token, and the same address without it."""
        if not same(token, self._web.token):
            await self._ask(send, "text/html" if scope["method"] == "GET" else "", wrong=True)
            return
        kept = [(name, value) for name, value in _query(scope) if name != "token"]
        path = scope.get("raw_path", b"/").decode("latin-1").partition("?")[0]
        # One slash, no backslash: `//host` and `/\\host` would lead to another site.
        where = "/" + quote(path.lstrip("/\\"), safe="/%!$&'()*+,;=:@") + ("?" + urlencode(kept) if kept else "")
        cookie = f"{COOKIE}={self._session}; Path=/; HttpOnly; SameSite=Lax; Max-Age={COOKIE_DAYS * 86400}"
        cookie += "; Secure" if scope.get("scheme") == "https" else ""
        headers = ((b"location", where.encode("latin-1")), (b"set-cookie", cookie.encode()))
        await _answer(send, 303, b"", *headers)

    async def _ask(self, send: Send, accept: str, wrong: bool = False) -> None:
        """Refuse, and say how to be let in: people get a form, scripts a line. `wrong`: a token was given."""
        asked = [(b"www-authenticate", value.encode()) for value in self._web.challenges()]
        if self._web.token and "text/html" in accept:
            await _answer(send, 401, (_LOGIN % (_WRONG if wrong else "")).encode(), *asked, kind=_HTML)
        else:
            await _answer(send, 401, b"authentication needed\n", *asked)


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)


def _token(scope: Scope) -> str | None:
    """The token in the address, or None where there is none."""
    return next((value for name, value in _query(scope) if name == "token"), None)


def _name(host: str) -> str:
    """A Host header without its port."""
    return (host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]).lower()


async def _answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes], kind: bytes = _TEXT) -> None:
    start = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})
