"""The live endpoint: what it answers, whom it lets in, and that a client can hold up nothing."""

import base64
import gzip
import socket
import ssl
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from shutil import which

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltriage.engine.report import EMPTY
from rltriage.engine.rows import Row, Run
from rltriage.exporters import http
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.http import Web, serve_metrics
from rltriage.rules.errors import DeliveryError

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"


@pytest.fixture
def server(gauges):
    """A server of one run on a free port."""
    gauges.publish(Run("demo"), Row(1, {"reward": 0.5}), EMPTY)
    with serve_metrics(gauges) as running:
        yield running


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and its key."""
    if which("openssl") is None:
        pytest.skip("openssl makes the certificate and is not installed")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(
        [*command, "-addext", "subjectAltName=IP:127.0.0.1", "-out", cert, "-keyout", key], check=True, capture_output=True
    )
    return cert, key


def get(url, context=None, method="GET", **headers):
    """Status, headers and body of a request; an error status is an answer too."""
    request = urllib.request.Request(
        url, headers={name.replace("_", "-"): value for name, value in headers.items()}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers, answer.read()


def test_metrics_are_text_unless_openmetrics_is_preferred(server, gauges):
    """Content negotiation as Prometheus does it."""
    status, headers, body = get(server.url + "/metrics")
    assert (status, body) == (200, gauges.render())
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    _, headers, body = get(server.url + "/metrics?name[]=x", Accept=OPENMETRICS)
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text; version=1.0.0; q=0.2, text/plain;q=0.9", False),
        ("application/openmetrics-text;version=1.0.0;q=0", False),
        ("application/openmetrics-text;version=1.0.0;q=bad", False),
        ('Application/OpenMetrics-Text; version="1.0.0"', True),
        ("*/*", False),
    ],
)
def test_what_an_accept_header_gets(server, accept, openmetrics):
    """Weights, versions and junk in the header."""
    _, headers, _ = get(server.url + "/metrics", Accept=accept)
    assert ("openmetrics" in headers["Content-Type"]) is openmetrics


@pytest.mark.parametrize(
    ("accept", "zipped"), [("gzip", True), ("deflate, gzip;q=0.5", True), ("gzip;q=0", False), ("br", False)]
)
def test_gzip_on_request(server, gauges, accept, zipped):
    """A body is compressed only for a client that asked."""
    _, headers, body = get(server.url + "/metrics", Accept_Encoding=accept)
    assert (headers["Content-Encoding"] == "gzip") is zipped
    assert (gzip.decompress(body) if zipped else body) == gauges.render()


def test_health_readiness_page_and_unknown_paths(gauges):
    """Readiness is the caller's word; the page links to the rest."""
    state = {"ready": False}
    with serve_metrics(gauges, ready=lambda: state["ready"]) as server:
        assert get(server.url + "/-/healthy")[0] == 200
        assert get(server.url + "/-/ready")[0] == 503
        state["ready"] = True
        assert get(server.url + "/-/ready")[0] == 200
        assert b'href="metrics"' in get(server.url + "/")[2]
        assert get(server.url + "/nothing")[0] == 404
        assert get(server.url + "/metrics", method="HEAD")[2] == b""


def test_a_port_in_use_is_one_sentence(server, gauges):
    """The error names the address and the way out."""
    with pytest.raises(DeliveryError, match=r"cannot listen on 127.0.0.1:\d+: Address already in use; choose another port"):
        serve_metrics(gauges, server.url.removeprefix("http://"))


@pytest.mark.parametrize("listen", ["", "9464x", "94640", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "a:b:1"])
def test_a_malformed_address_is_refused(gauges, listen):
    """The error shows what an address looks like."""
    with pytest.raises(DeliveryError, match="write HOST:PORT"):
        serve_metrics(gauges, listen)


def test_a_port_alone_is_one_of_this_machine(gauges):
    """As `rltriage.watch(listen=9464)` takes it; nobody else reaches it."""
    with serve_metrics(gauges, "0") as server:
        assert server.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("listen", ["0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0"])
def test_an_address_that_others_reach_needs_tls_and_authentication(gauges, listen):
    """Metrics of a private run are not published by a slip."""
    for web in (Web(), Web(users={"a": "b"})):
        with pytest.raises(DeliveryError, match="without TLS and authentication"):
            serve_metrics(gauges, listen, web=web)


def test_insecure_is_a_choice(gauges):
    """Asked for, the endpoint listens everywhere."""
    with serve_metrics(gauges, "0.0.0.0:0", insecure=True) as server:
        port = server.url.rpartition(":")[2]
        assert get(f"http://127.0.0.1:{port}/-/healthy")[0] == 200


def test_basic_authentication_guards_every_path(gauges):
    """No, wrong and malformed credentials get 401, right ones the metrics; the password is not in the repr."""
    web = Web(users={"prom": "pässword:x"})

    def basic(text):
        return "Basic " + base64.b64encode(text.encode()).decode()

    with serve_metrics(gauges, web=web) as server:
        for path in ("/metrics", "/", "/-/ready", "/nothing"):
            assert get(server.url + path)[0] == 401
        for header in (
            basic("prom:wrong"),
            basic("nobody:"),
            basic("prom"),
            "Basic ???",
            "Bearer pässword".encode().decode("latin-1"),
        ):
            assert get(server.url + "/metrics", Authorization=header)[0] == 401
        assert get(server.url + "/metrics", Authorization=basic("prom:pässword:x"))[0] == 200
    assert "word" not in repr(web)


def test_tls_with_a_certificate(gauges, certificate):
    """The endpoint speaks TLS, and a client that sends plain text or nothing does not stop the next one."""
    cert, key = certificate
    with serve_metrics(gauges, web=Web(cert, key)) as server:
        host, port = "127.0.0.1", int(server.url.rpartition(":")[2])
        silent = socket.create_connection((host, port))
        with socket.create_connection((host, port)) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert server.url.startswith("https://")
            assert get(server.url + "/-/healthy", ssl.create_default_context(cafile=cert))[0] == 200
        silent.close()


def test_a_bad_certificate_is_one_sentence(gauges, tmp_path):
    """A path that is wrong and a file that is no certificate."""
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    for path in (str(tmp_path / "missing.pem"), str(junk)):
        with pytest.raises(DeliveryError, match="give two PEM files that match"):
            serve_metrics(gauges, web=Web(path, path))


def address_of(server):
    """Host and port to connect to."""
    return "127.0.0.1", int(server.url.rpartition(":")[2])


def ask(address, data, timeout=10.0):
    """Send bytes and read until the server closes the connection; a reset is an end, too."""
    with socket.create_connection(address, timeout=timeout) as client:
        found = b""
        with suppress(ConnectionError):
            client.sendall(data)
            while part := client.recv(65536):
                found += part
        return found


def wait_until(condition):
    """Wait for threads of the server to get to something; fails when they do not."""
    pause = threading.Event()
    for _ in range(1000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen within ten seconds")


@pytest.fixture
def threads():
    """How many threads serve connections; all of them must be gone at the end."""

    def count():
        return sum("process_request_thread" in thread.name for thread in threading.enumerate())

    before = count()
    yield lambda: count() - before
    wait_until(lambda: count() == before)


def test_the_longest_idle_connection_makes_room_for_a_new_one(gauges, monkeypatch, threads):
    """Idle and trickling connections, however many, keep nobody from being served."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    with serve_metrics(gauges) as server:
        first, second = (socket.create_connection(address_of(server), timeout=10) for _ in range(2))
        first.sendall(b"GET /-/healthy HTTP/1.1\r\nX: ")
        second.sendall(b"HEAD /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        assert second.recv(4096).startswith(b"HTTP/1.1 200")
        wait_until(lambda: threads() == 2)
        for _ in range(5):
            assert get(server.url + "/-/healthy")[0] == 200
        assert first.recv(4096) == b""
        assert get(server.url + "/metrics")[0] == 200
        assert threads() <= 2
        first.close()
        second.close()


def test_without_an_idle_connection_a_new_one_is_closed(gauges, monkeypatch, threads):
    """A scrape in progress is not broken off for another."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)
    started, goes_on = threading.Event(), threading.Event()
    render = gauges.render

    def slow(*given):
        started.set()
        goes_on.wait(10)
        return render(*given)

    monkeypatch.setattr(gauges, "render", slow)
    with serve_metrics(gauges) as server, socket.create_connection(address_of(server), timeout=10) as scrape:
        scrape.sendall(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        started.wait(10)
        assert ask(address_of(server), b"GET /-/healthy HTTP/1.1\r\n\r\n") == b""
        goes_on.set()
        assert scrape.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("tls", [False, True])
def test_a_request_that_trickles_in_is_given_up(gauges, monkeypatch, certificate, threads, tls):
    """A byte now and then does not prolong its time: request line, headers, or a TLS handshake."""
    monkeypatch.setattr(http, "TIMEOUT", 0.3)
    drip = threading.Event()
    with serve_metrics(gauges, web=Web(*certificate) if tls else Web()) as server:
        starts = (b"GET /metr", b"GET /metrics HTTP/1.1\r\nX: ")
        for start in (b"\x16\x03\x01\x02\x00",) if tls else starts:
            with socket.create_connection(address_of(server), timeout=10) as client:
                client.sendall(start)
                sent = 0
                with suppress(ConnectionError):
                    while (sent < 200 and threads() > 0) or sent < 5:
                        client.sendall(b"a")
                        sent += 1
                        drip.wait(0.05)
                assert sent < 100


def test_an_answer_that_is_taken_in_bytes_is_given_up(gauges, monkeypatch, threads):
    """A slow reader does not hold its thread for longer than the time limit."""
    monkeypatch.setattr(http, "TIMEOUT", 0.5)
    monkeypatch.setattr(gauges, "render", lambda *_: b"x" * 30_000_000)
    drip = threading.Event()
    with serve_metrics(gauges) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(10)
        client.connect(address_of(server))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        taken = 0
        with suppress(ConnectionError):
            while taken < 200 and (threads() or taken < 5):
                client.recv(1)
                taken += 1
                drip.wait(0.05)
        assert taken < 100


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\r\n", b""),
        (b"\0\xff\xfe garbage\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /metrics HTTP/1.1.1\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431"),
        (b"OPTIONS * HTTP/1.1\r\n\r\n", b"405"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", b"405"),
        (b"BREW /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"__class__ /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /../../etc/passwd HTTP/1.0\r\n\r\n", b"404"),
        (b"GET http://other/metrics HTTP/1.0\r\n\r\n", b"404"),
        (b"GET /metrics%00 HTTP/1.0\r\n\r\n", b"404"),
        (b"GET /-/healthy HTTP/1.1\r\nContent-Length: 30\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /-/healthy HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", b"200"),
        (b"GET /-/healthy HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx", b"100"),
    ],
)
def test_what_is_no_right_request_gets_one_line_and_an_end(server, threads, capfd, request_bytes, status):
    """Never a traceback, a page of HTML or a second answer; a body is not taken for the next request."""
    answer = ask(address_of(server), request_bytes if status else request_bytes * 3 + b"GET / HTTP/1.0\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split(b" ")[1:2] == [status] or not status
    if status[:1] == b"4":
        assert body.count(b"\n") == 1 and b"<" not in body
    if status == b"405":
        assert b"Allow: GET, HEAD" in head
    assert answer.count(b"HTTP/1.1 ") <= 1 + (status == b"100")
    assert get(server.url + "/-/healthy")[0] == 200
    assert capfd.readouterr().err == ""


def test_plain_text_at_a_tls_port_and_tls_at_a_plain_one(gauges, certificate, threads, capfd):
    """Handshakes that fail, in either direction, end that connection alone."""
    cert, key = certificate
    hello = ssl.create_default_context(cafile=cert)
    with serve_metrics(gauges, web=Web(cert, key)) as server:
        assert b"HTTP/1.1 200" not in ask(address_of(server), b"GET /metrics HTTP/1.1\r\n\r\n")
        assert ask(address_of(server), b"\x16\x03\x01" + b"\xff" * 500) is not None
        untrusting = ssl.create_default_context()
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            get(server.url + "/metrics", untrusting)
        assert get(server.url + "/metrics", hello)[0] == 200
    with serve_metrics(gauges) as server:
        with pytest.raises(OSError), socket.create_connection(address_of(server), timeout=10) as plain:
            hello.wrap_socket(plain, server_hostname="127.0.0.1")
        assert get(server.url + "/metrics")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_connection_that_is_reset_is_nothing(server, threads, capfd):
    """In the middle of a request and of an answer."""
    for data in (b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"):
        client = socket.create_connection(address_of(server))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(data)
        client.close()
    assert get(server.url + "/-/healthy")[0] == 200 and capfd.readouterr().err == ""


def test_a_server_that_closes_ends_its_connections(gauges, threads):
    """No thread stays behind for an idle client."""
    server = serve_metrics(gauges)
    with socket.create_connection(address_of(server), timeout=10) as idle:
        idle.sendall(b"HEAD / HTTP/1.1\r\n\r\n")
        assert idle.recv(4096).startswith(b"HTTP/1.1 200")
        server.close()
        assert idle.recv(4096) == b""


lines = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda method, path, version: method + b" " + path + b" " + version,
        st.sampled_from([b"GET", b"HEAD", b"POST", b"get", b""]),
        st.one_of(st.sampled_from([b"/metrics", b"/", b"/-/ready", b"//", b"*"]), st.binary(max_size=60)),
        st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2", b"HTTP/1.-1", b""]),
    ),
)
headers = st.builds(
    lambda name, value: name + b": " + value,
    st.sampled_from(
        [
            b"Accept",
            b"Accept-Encoding",
            b"Authorization",
            b"Content-Length",
            b"Connection",
            b"Transfer-Encoding",
            b"Expect",
            b"\xff",
        ]
    ),
    st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [OPENMETRICS.encode(), b"gzip;q=nan", b"*;q=inf", b"Basic \xff", b"Basic Og==", b"keep-alive", b"-1"]
        ),
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=lines, given_headers=st.lists(headers, max_size=6), body=st.binary(max_size=100), users=st.booleans())
def test_no_bytes_break_the_endpoint(fuzzed, line, given_headers, body, users):
    """Whatever a client sends: an answer of HTTP or an end in time, no traceback, and the next client is served."""
    server, errors = fuzzed[users]
    data = b"\r\n".join([line, *given_headers]) + b"\r\n\r\n" + body
    with socket.create_connection(address_of(server), timeout=10) as client:
        answer = b""
        with suppress(ConnectionError):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(65536):
                answer += part
    oldest = b"HTTP/0.9" in line or len(line.split()) <= 2
    assert not answer or answer.startswith(b"HTTP/1.1 ") or oldest, "only HTTP/0.9 has no status"
    if users:
        assert b"rltriage_" not in answer, "metrics without authentication"
    assert not errors, errors


@pytest.fixture(scope="module")
def fuzzed():
    """A server without and one with authentication, and what broke in their threads."""
    gauges, errors = Gauges({}, clock=lambda: 0.0), []
    gauges.publish(Run("demo"), Row(1, {"reward": 0.5}), EMPTY)
    with serve_metrics(gauges) as one, serve_metrics(gauges, web=Web(users={"prom": "secret"})) as other:
        for server in (one, other):
            server._server.handle_error = lambda *_: _note(errors)
        yield {False: (one, errors), True: (other, errors)}
        for server in (one, other):
            assert get(server.url + "/-/healthy")[0] in (200, 401)


def _note(errors):
    """A connection that ends is no error; anything else that reaches the top of a thread is."""
    error = sys.exc_info()[1]
    if not isinstance(error, OSError):
        errors.append(repr(error))


def test_a_failing_render_is_an_answer(gauges, monkeypatch):
    """A scrape gets 500, the process goes on."""
    with serve_metrics(gauges) as server:
        monkeypatch.setattr(gauges, "render", lambda *_: 1 / 0)
        assert get(server.url + "/metrics")[0] == 500
        assert get(server.url + "/-/healthy")[0] == 200


def test_closing_twice_frees_the_port_once(gauges):
    """close() is safe to call again, and the port can be taken."""
    server = serve_metrics(gauges)
    server.close()
    server.close()
    serve_metrics(gauges, server.url.removeprefix("http://")).close()
