"""Who may read the page: a token in a header, or once in the address and then in a cookie that scripts do not see."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from fuzzing.bounds import bounded
from starlette.testclient import TestClient

from rltriage.exporters.gauges import Gauges
from rltriage.exporters.http import Web, serve_metrics
from rltriage.exporters.page.app import make_app
from rltriage.exporters.page.guard import COOKIE
from rltriage.rules.config import parse_config
from rltriage.rules.errors import DeliveryError, RulePackError
from rltriage.service import web_of

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def reader(feed):
    """A browser before the page that a token protects; it follows no redirect."""
    return TestClient(make_app(feed.board, Web(token=TOKEN)), base_url="http://127.0.0.1", follow_redirects=False)


def test_without_the_token_nothing_is_told(reader) -> None:
    """Every address asks, and so does a wrong token, in whichever place."""
    for address in ("/", "/api/runs", "/events", "/static/page.js", "/openapi.json", "/?token=", f"/?token={TOKEN}x"):
        answer = reader.get(address)
        assert answer.status_code == 401
        assert "broken" not in answer.text
        assert answer.headers["www-authenticate"] == 'Bearer realm="rltriage"'
        assert "set-cookie" not in answer.headers
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    for header in ("Bearer", "Bearer x", "Basic Og==", f"Basic {TOKEN}", f"Bearer {TOKEN} {TOKEN}", "Bearer \xff"):
        assert reader.get("/", headers={"Authorization": header.encode("latin-1")}).status_code == 401
    for cookie in ("", TOKEN, "0" * 64, '"', "\xff"):
        assert reader.get("/", headers={"Cookie": f"{COOKIE}={cookie}".encode("latin-1")}).status_code == 401


@pytest.mark.parametrize(
    "cookie", ["=" * 16_000 + "\xff", "a=" * 8000 + "\x00", "a=b" * 5000 + "\xff c", "a;" * 8000, '"' * 16_000]
)
def test_no_cookie_holds_up_the_page(reader, cookie: str) -> None:
    """Whoever is not logged in may send any cookie: looking at 16 KiB of it takes no time that others would wait for."""

    def ask(_: bytes) -> None:
        assert reader.get("/", headers={"Cookie": cookie.encode("latin-1")}).status_code == 401

    bounded(ask, seconds=1.0)(b"")


def test_the_cookie_is_found_among_others(reader) -> None:
    """Other programs of the same host name have cookies of their own, well-formed or not."""
    mine = reader.get(f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    reader.cookies.clear()
    for others in ("{}", "a=1; {}", "{}; b={{c}}", 'x;; =; "q=; {} ; z'):
        assert reader.get("/", headers={"Cookie": others.format(mine)}).status_code == 200, others


def test_people_get_a_form_and_scripts_a_line(reader) -> None:
    """A browser shows where the token goes; the form needs no script, and sends it to the address that was asked for."""
    form = reader.get("/runs/broken", headers={"Accept": "text/html"}).text
    assert '<input id="token" type="password" name="token"' in form
    assert "action" not in form
    assert reader.get("/api/runs").text == "authentication needed\n"
    for sheet in re.findall(r'href="([^"]+)"', form):
        assert reader.get(sheet).headers["content-type"].startswith("text/css"), (
            "the form is dressed before anybody is let in"
        )
    assert form.count("/static/") == 2


def test_a_bearer_header_opens_the_page(reader) -> None:
    """Scripts send the token with each request and get no cookie."""
    answer = reader.get("/api/runs", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers


def test_one_visit_with_the_token_logs_in(reader) -> None:
    """The token leaves the address at once; the cookie is kept from scripts and foreign pages, and is not the token."""
    first = reader.get(f"/runs/team%2Fhealthy?q=a%26b&token={TOKEN}")
    assert (first.status_code, first.headers["location"]) == (303, "/runs/team%2Fhealthy?q=a%26b")
    cookie = first.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert reader.get(first.headers["location"]).status_code == 200
    assert reader.get("/api/runs").status_code == 200


def test_another_token_ends_all_logins(reader, feed) -> None:
    """A cookie is good for the token that it was given for alone."""
    reader.get(f"/?token={TOKEN}")
    other = TestClient(make_app(feed.board, Web(token=TOKEN[::-1])), base_url="http://127.0.0.1")
    other.cookies = reader.cookies
    assert other.get("/").status_code == 401


def test_the_way_back_stays_on_this_page(reader) -> None:
    """No address makes a login lead to another site."""
    for path in ("//evil.example/", "/\\evil.example", "/%2F/evil.example", "///evil.example", "/\\/evil.example"):
        response = reader.get(f"http://127.0.0.1{path}?token={TOKEN}")
        where = response.headers["location"]
        assert where.startswith("/")
        assert not where.startswith(("//", "/\\"))


def test_the_cookie_is_for_tls_where_there_is_tls(feed) -> None:
    """Over https the cookie never travels in the clear."""
    client = TestClient(make_app(feed.board, Web(token=TOKEN)), base_url="https://127.0.0.1", follow_redirects=False)
    assert "Secure" in client.get(f"/?token={TOKEN}").headers["set-cookie"]


def test_users_and_token_stand_beside_each_other(feed) -> None:
    """With both configured, either is enough."""
    client = TestClient(make_app(feed.board, Web(users={"eve": "sesame"}, token=TOKEN)))
    assert client.get("/", auth=("eve", "sesame")).status_code == 200
    assert client.get("/", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/", headers={"Authorization": "Bearer sesame"}).status_code == 401


def test_the_gauges_take_the_token_too() -> None:
    """Prometheus sends it as `authorization: {credentials_file: ...}`."""
    import urllib.error
    import urllib.request

    with serve_metrics(Gauges({}, ()), web=Web(token=TOKEN)) as server:
        asked = urllib.request.Request(server.url + "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(asked, timeout=20) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(server.url + "/metrics", timeout=20)


def test_the_token_comes_from_the_configuration(monkeypatch, tmp_path) -> None:
    """As {env: NAME} or {file: PATH}; one that could be guessed is refused, a plain one never repeated."""
    text = "version: 1\nsources: [{path: runs}]\nweb: {token: %s}\n"
    (tmp_path / "token").write_text(TOKEN + "\n")
    monkeypatch.setenv("PAGE_TOKEN", TOKEN)
    for given in ("{env: PAGE_TOKEN}", "{file: token}"):
        assert web_of(parse_config(text % given, folder=tmp_path)).token == TOKEN
    monkeypatch.setenv("PAGE_TOKEN", "short")
    with pytest.raises(DeliveryError, match="at least 16") as refused:
        web_of(parse_config(text % "{env: PAGE_TOKEN}"))
    assert "short" not in str(refused.value)
    with pytest.raises(RulePackError) as plain:
        parse_config(text % TOKEN)
    assert TOKEN not in str(plain.value)
    assert TOKEN not in repr(Web(token=TOKEN))
