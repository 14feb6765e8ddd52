"""The live endpoint: what it answers, whom it lets in, and that a client can hold up nothing."""

import base64
import gzip
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from shutil import which

import pytest

from rltriage.engine.report import EMPTY
from rltriage.engine.rows import Row, Run
from rltriage.exporters import http
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
        assert get(server.url + "/metrics", method="POST")[0] == 501
        assert get(server.url + "/metrics", method="HEAD")[2] == b""


def test_a_port_in_use_is_one_sentence(server, gauges):
    """The error names the address and the way out."""
    with pytest.raises(DeliveryError, match=r"cannot listen on 127.0.0.1:\d+: Address already in use; choose another port"):
        serve_metrics(gauges, server.url.removeprefix("http://"))


@pytest.mark.parametrize("listen", ["", "9464", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "a:b:1"])
def test_a_malformed_address_is_refused(gauges, listen):
    """The error shows what an address looks like."""
    with pytest.raises(DeliveryError, match="write HOST:PORT"):
        serve_metrics(gauges, listen)


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


def test_connections_beyond_the_limit_are_closed_and_the_rest_still_served(gauges, monkeypatch):
    """Idle connections cannot take every thread of a training process."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 2)
    with serve_metrics(gauges) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        first, second = socket.create_connection(address), socket.create_connection(address)
        for held in (first, second):
            held.sendall(b"HEAD /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
            assert held.recv(4096).startswith(b"HTTP/1.1 200")
        with socket.create_connection(address) as third:
            third.settimeout(10)
            assert third.recv(4096) == b""
        first.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while first.recv(4096):
            pass
        second.sendall(b"HEAD /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        assert second.recv(4096).startswith(b"HTTP/1.1 200")
        first.close()
        second.close()


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
