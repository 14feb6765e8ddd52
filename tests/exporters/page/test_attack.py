"""What somebody hostile may send to the page: it answers, refuses, or lets go, and never breaks or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from urllib.parse import quote, urlsplit

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltriage.exporters.page import app as app_module
from rltriage.exporters.page import server as server_module
from rltriage.exporters.page.app import MAX_NAMES, make_app
from rltriage.exporters.page.server import serve_page


def _raw(url: str, target: str, method: str = "GET") -> tuple[int, bytes]:
    """The answer to a request whose target is sent as it is."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_no_path_leads_out_of_the_static_folder(server) -> None:
    """However the dots and slashes are written, only our own style and script are there."""
    for way in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "%2e%2e%2fapp.py", "....//app.py", "..\\app.py", "/etc/passwd",
                "%2fetc%2fpasswd", "..%5capp.py", "%00", "page.js%00.html", "../templates/base.html"):  # fmt: skip
        status, body = _raw(server, f"/static/{way}")
        assert status in (400, 404), way
        assert b"import" not in body
        assert b"root:" not in body


def test_head_has_the_head_and_no_body(server) -> None:
    """HEAD answers for every address, the stream included, and ends."""
    for address in ("/", "/runs/broken", "/api/runs", "/static/page.js", "/events", "/nowhere"):
        status, body = _raw(server, address, "HEAD")
        assert status == (404 if address == "/nowhere" else 200)
        assert body == b""


def test_odd_queries_are_answered(client) -> None:
    """Unknown, repeated, empty, broken and binary values filter or are ignored."""
    for query in ("?severity=nonsense", "?severity=&severity=critical", "?q=%00", "?q=%FF%FE", "?q=%ED%A0%80", "?q",
                  "?&&=&", "?q=" + "a" * 4000, "?run=%00", "?token=x"):  # fmt: skip
        for address in ("/", "/api/runs"):
            assert client.get(address + query).status_code == 200, query


def test_what_is_too_large_is_refused(server) -> None:
    """A head of 4 MB is no request, and is not read to its end; the next client is served."""
    with contextlib.suppress(ConnectionError):  # it may hang up while we are still talking
        assert _raw(server, "/?q=" + "a" * 4_000_000)[0] in (400, 414, 431)
    assert _raw(server, "/")[0] == 200


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.binary(max_size=60), query=st.binary(max_size=60), cookie=st.binary(max_size=40))
def test_any_bytes_get_an_answer(client, path: bytes, query: bytes, cookie: bytes) -> None:
    """No address, query or cookie is answered with an error of ours."""
    target = quote(path, safe="/%.") + "?" + quote(query, safe="=&%")
    sent = cookie.replace(b"\r", b"").replace(b"\n", b"")
    for place in ("/", "/api/runs/", "/runs/", "/static/"):
        assert client.get(place + target.lstrip("/"), headers={"Cookie": sent}).status_code in (200, 404)


@pytest.mark.parametrize("path", ["/runs", "/static", "/api/runs/", "/runs/"])
def test_a_query_of_any_bytes(feed, path: str) -> None:
    """Bytes that are no UTF-8 are answered like others, at addresses that a slash would complete too."""
    asgi = {"version": "3.0", "spec_version": "2.3"}
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"\xce", "headers": [], "asgi": asgi}
    sent = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    asyncio.run(make_app(feed.board)(scope, receive, send))
    assert sent[0]["status"] == 404


@pytest.fixture
def visited() -> set[str]:
    """Addresses that the examples of one test have been at."""
    return set()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(max_size=20), metric=st.text(max_size=20), value=st.floats())
def test_any_names_have_a_page(client, feed, visited, name: str, metric: str, value: float) -> None:
    """Whatever a log calls its run and its metrics, list, run page and data are whole; half a surrogate pair included."""
    for run, key in ((name, metric), (name + "\ud800", metric + "\udfff")):
        feed.rows(run, 6, kl_ref=0.0, **{f"x{key}": value})
        assert client.get("/").status_code == 200
        listed = client.get("/api/runs").json()["runs"]
        assert len(listed) == len(feed.board)
        for url in {one["url"] for one in listed} - visited:
            visited.add(url)
            assert client.get(url).status_code in (200, 404)


def _stream(feed, send) -> asyncio.Future:
    """Ask for the stream with one's own way of taking what is sent."""
    scope = {"type": "http", "method": "GET", "path": "/events", "raw_path": b"/events", "query_string": b"", "headers": [],
             "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http",
             "root_path": ""}  # fmt: skip

    async def receive():
        await asyncio.Event().wait()

    return asyncio.ensure_future(make_app(feed.board)(scope, receive, send))


def test_a_reader_that_reads_no_more_is_let_go(feed, monkeypatch) -> None:
    """Its place is free again after the limit, although it never hung up."""
    monkeypatch.setattr(app_module, "SEND_SECONDS", 0.05)

    async def run() -> None:
        async def send(message) -> None:
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        with pytest.raises(app_module.ClientDisconnect):
            await asyncio.wait_for(_stream(feed, send), 20)

    asyncio.run(run())
    assert not feed.board._listeners


def test_news_for_a_slow_reader_is_bounded(feed, monkeypatch) -> None:
    """While it is busy, changes of any number of runs wait as one message, which names none if they are too many."""
    monkeypatch.setattr(app_module, "GATHER_SECONDS", 0.0)
    heard: list[bytes] = []

    async def run() -> None:
        busy, told = asyncio.Event(), asyncio.Event()

        async def send(message) -> None:
            body = message.get("body", b"")
            if body.startswith(b"retry"):
                busy.set()
                for number in range(MAX_NAMES + 50):
                    feed.board._tell(f"run-{number}")
                await asyncio.sleep(0)
            elif body:
                heard.append(body)
                told.set()

        task = _stream(feed, send)
        await asyncio.wait_for(busy.wait(), 20)
        await asyncio.wait_for(told.wait(), 20)
        task.cancel()

    asyncio.run(run())
    assert heard == [b"event: changed\ndata: []\n\n"]


def test_of_many_readers_the_last_ones_are_refused(server, feed, monkeypatch) -> None:
    """A stream too many gets 503, pages are still served, and a reader who leaves makes room."""
    monkeypatch.setattr(app_module, "MAX_STREAMS", 3)
    address = urlsplit(server)
    readers = []
    for _ in range(3):
        reader = socket.create_connection((address.hostname, address.port), timeout=20)
        reader.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b": hello" in _until(reader, b": hello")
        readers.append(reader)
    assert _raw(server, "/events")[0] == 503
    assert _raw(server, "/runs/broken")[0] == 200
    for reader in readers:
        reader.close()
    for _ in range(200):  # the server hears of it with its next word to them, which a change brings about
        feed.rows("broken", kl_ref=0.0)
        if _raw(server, "/events", "HEAD")[0] == 200:
            break
    else:
        pytest.fail("no room after 200 changes")


def _until(reader: socket.socket, end: bytes) -> bytes:
    got = b""
    while end not in got:
        more = reader.recv(4096)
        assert more, got
        got += more
    return got


def test_a_client_that_says_nothing_is_let_go(feed, monkeypatch) -> None:
    """Neither silence nor half a request keeps a connection, before the first request or after one."""
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 0.05)
    with serve_page(feed.board, "127.0.0.1:0") as running:
        address = urlsplit(running.url)
        whole = b"GET /-/healthy HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        for first, words in ((b"", b""), (b"", b"GET / HTTP/1.1\r\nHost"), (whole, b"GET / HT")):
            with socket.create_connection((address.hostname, address.port), timeout=20) as client:
                client.sendall(first)
                _until(client, b"healthy\n" if first else b"")
                client.sendall(words)
                try:
                    while client.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        assert _raw(running.url, "/-/healthy") == (200, b"healthy\n")


def test_a_body_is_not_waited_for(server) -> None:
    """A GET that announces a gigabyte is answered without it."""
    address = urlsplit(server)
    with socket.create_connection((address.hostname, address.port), timeout=20) as client:
        client.sendall(b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000\r\n\r\n{")
        assert _until(client, b"}]}").startswith(b"HTTP/1.1 200")


def test_the_refused_ways_in_are_few(server) -> None:
    """Other methods, another version of HTTP and an upgrade are refused in words."""
    assert _raw(server, "/", "POST")[0] == 405
    assert _raw(server, "/", "BREW")[0] == 405
    assert json.loads(_raw(server, "/openapi.json")[1])["openapi"] == "3.1.0"
