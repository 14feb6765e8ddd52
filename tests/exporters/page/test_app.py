"""The page's addresses: what they show, what they refuse, and that their JSON is as described."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
import urllib.request
from urllib.parse import quote

import jsonschema
import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from rltriage.exporters.http import Web
from rltriage.exporters.page.app import make_app
from rltriage.exporters.page.board import Board
from rltriage.exporters.page.server import _names, serve_page
from rltriage.rules.errors import DeliveryError


def _alert(client) -> dict:
    return client.get("/api/alerts").json()["alerts"][0]


def test_the_list_puts_the_worst_first(client) -> None:
    """A broken run stands above a healthy one, with its fault in words."""
    page = client.get("/").text
    assert page.index("broken") < page.index("team/healthy")
    assert "ref_is_policy (fault 10," in page


def test_the_list_is_filtered(client) -> None:
    """By text in id or headline, and by the worst alert."""
    names = lambda query: [run["run"] for run in client.get("/api/runs" + query).json()["runs"]]  # noqa: E731
    assert names("?q=REF_IS") == ["broken"]
    assert names("?severity=quiet") == ["team/healthy"]
    assert names("?q=zzz") == []
    assert "No run matches" in client.get("/?q=zzz").text


def test_a_run_has_an_address_whatever_its_name(server, feed) -> None:
    """Slashes, spaces, percent signs and question marks in ids survive the way through an address."""
    for name in ("team/healthy", "a b%2F?#&", "../x"):
        feed.rows(name)
        with urllib.request.urlopen(f"{server}/runs/{quote(name, safe='')}", timeout=20) as page:
            assert page.status == 200
        with urllib.request.urlopen(f"{server}/api/runs/{quote(name, safe='')}", timeout=20) as data:
            assert json.load(data)["run"] == name


def test_an_alerts_address_lasts(client, feed) -> None:
    """The permalink of an alert holds while the run goes on and after it is over; one that is unknown says why."""
    alert = _alert(client)
    address = f"/runs/broken/alerts/{alert['id']}"
    for change in (lambda: feed.rows("broken", 3, kl_ref=0.0), lambda: feed.end("broken")):
        change()
        page = client.get(address)
        assert page.status_code == 200
        assert alert["rule"] in page.text
        assert "rltriage check --only 9" in re.sub("<[^>]+>", "", page.text)
    gone = client.get("/runs/broken/alerts/0000")
    assert gone.status_code == 404
    assert "is not here" in gone.text


def test_everything_is_escaped(client, feed) -> None:
    """Ids, metric names and queries of others never become markup."""
    bad = '"><script>alert(1)</script>'
    feed.rows(bad, 12, kl_ref=0.0, **{bad: 1.0})
    alert = next(one for one in client.get("/api/alerts").json()["alerts"] if one["run"] == bad)
    run = quote(bad, safe="")
    for address in ("/", f"/?q={run}", f"/runs/{run}", f"/runs/{run}/alerts/{alert['id']}", f"/runs/{run}x"):
        assert "<script>alert" not in client.get(address).text


def test_headers_forbid_what_the_page_does_not_need(client) -> None:
    """Every answer, refusals included, has the policy: own scripts and styles alone, no frames, no storing."""
    for address in ("/", "/api/runs", "/static/page.js", "/nowhere"):
        headers = client.get(address).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
    page = client.get("/runs/broken").text
    assert "style=" not in page
    assert re.findall(r"<script[^>]*>", page) == ['<script src="/static/page.js" defer>']


def test_nothing_can_be_changed(client) -> None:
    """Only GET and HEAD are answered."""
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/runs/broken").status_code == 405


def test_a_foreign_name_is_refused(feed) -> None:
    """A page of elsewhere that points its own name at this machine learns nothing."""
    client = TestClient(make_app(feed.board, hosts=frozenset({"localhost"})), base_url="http://evil.example")
    assert client.get("/").status_code == 421
    assert client.get("/", headers={"host": "localhost:8321"}).status_code == 200
    assert _names("127.0.0.1", Web(), "https://watch.example/x") >= {"127.0.0.1", "localhost", "watch.example"}
    assert _names("0.0.0.0", Web(), "") is None


def test_users_must_give_their_password(feed) -> None:
    """With users every address asks, the stream and the scripts too; a wrong password is none."""
    client = TestClient(make_app(feed.board, Web(users={"eve": "sesame"})))
    for address in ("/", "/api/runs", "/events", "/static/page.js", "/openapi.json"):
        assert client.get(address).status_code == 401
    wrong = base64.b64encode(b"eve:password").decode()
    assert client.get("/", headers={"Authorization": f"Basic {wrong}"}).status_code == 401
    assert client.get("/", auth=("eve", "sesame")).status_code == 200


def test_an_open_address_needs_protection() -> None:
    """An address that others reach is refused without TLS and users, as for the gauges; one that is taken is said."""
    with pytest.raises(DeliveryError, match="--insecure"):
        serve_page(Board(), "0.0.0.0:0")
    with serve_page(Board(), "127.0.0.1:0") as running, pytest.raises(DeliveryError, match="cannot listen"):
        serve_page(Board(), running.url.removeprefix("http://"))


def test_without_a_thread_there_is_no_page_and_no_port_is_held(feed, monkeypatch) -> None:
    """A system that starts no more threads is one clear error, and the port is free again."""

    class Exhausted(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    with monkeypatch.context() as patched:
        patched.setattr("rltriage.exporters.page.server.threading.Thread", Exhausted)
        with pytest.raises(DeliveryError, match="no more threads"):
            serve_page(feed.board, f"127.0.0.1:{port}")
    with serve_page(feed.board, f"127.0.0.1:{port}") as running:
        assert running.url.endswith(f":{port}")


def test_answers_are_as_described(client) -> None:
    """Each address of the description exists, and what it gives fits its schema."""
    document = client.get("/openapi.json").json()
    alert = _alert(client)["id"]
    for path, item in document["paths"].items():
        for status, run in (("200", "broken"), ("404", "nobody")):
            answer = item["get"]["responses"].get(status)
            if answer is not None:
                got = client.get(path.replace("{run}", run).replace("{alert}", alert))
                assert got.status_code == int(status)
                schema = {**answer["content"]["application/json"]["schema"], "components": document["components"]}
                jsonschema.validate(got.json(), schema)


def test_the_stream_tells_which_run_changed(server, feed) -> None:
    """A reader hears of the runs that have a new row, and of the one it asked for alone."""
    with urllib.request.urlopen(f"{server}/events?run=broken", timeout=20) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        assert stream.readline().startswith(b"retry:")
        assert stream.readline() == b": hello\n"
        feed.rows("team/healthy", kl_ref=0.02)
        feed.rows("broken", kl_ref=0.0)
        lines = [stream.readline() for _ in range(3)]
    assert lines[1:] == [b"event: changed\n", b'data: ["broken"]\n']


def test_a_page_that_stops_ends_its_streams(feed, caplog) -> None:
    """A reader's connection ends in an orderly way, at once, and nothing of it is an error in the log."""
    running = serve_page(feed.board, "127.0.0.1:0")
    with urllib.request.urlopen(f"{running.url}/events", timeout=20) as stream:
        assert stream.readline().startswith(b"retry:")
        running.close()
        assert stream.read().endswith(b"\n\n")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_silent_stream_beats(server, monkeypatch) -> None:
    """Where nothing changes a reader still hears something, as an event: comments never reach a page's script."""
    monkeypatch.setattr("rltriage.exporters.page.app.QUIET_SECONDS", 0.01)
    with urllib.request.urlopen(f"{server}/events", timeout=20) as stream:
        assert [stream.readline() for _ in range(5)][3:] == [b"event: beat\n", b"data: -\n"]


def test_a_run_may_be_called_like_an_alert(client, feed) -> None:
    """What follows `/alerts/` may belong to the run's id."""
    feed.rows("a/alerts/b", 12, kl_ref=0.0)
    address = quote("a/alerts/b", safe="")
    assert "<h1>ref_is_policy" in client.get(f"/runs/{address}").text
    assert client.get(f"/api/runs/{address}").json()["run"] == "a/alerts/b"
    alert = next(one for one in client.get("/api/alerts").json()["alerts"] if one["run"] == "a/alerts/b")
    assert "kl-ref-exactly-zero" in client.get(f"/runs/{address}/alerts/{alert['id']}").text


@pytest.mark.parametrize("name", [".", "..", "~..", "~../alerts/x", "..."])
def test_a_run_that_is_called_like_a_step_through_folders(client, feed, name: str) -> None:
    """Clients resolve `.` and `..` before they ask, and encoding does not help: such a run has an address that lasts."""
    feed.rows(name, 12, kl_ref=0.0)
    url = next(one["url"] for one in client.get("/api/runs").json()["runs"] if one["run"] == name)
    assert not {".", ".."} & set(url.split("/"))
    assert url == f"/runs/{quote(name, safe='')}" or name in (".", "..")
    assert client.get(f"/api{url}").json()["run"] == name
    alert = next(one for one in client.get("/api/alerts").json()["alerts"] if one["run"] == name)
    assert client.get(f"/api{url}/alerts/{alert['id']}").json()["alert"]["run"] == name
    assert f'href="{url}/alerts/{alert["id"]}"' in client.get(url).text
    assert "kl-ref-exactly-zero" in client.get(f"{url}/alerts/{alert['id']}").text


def test_whoever_is_let_go_is_told(pack) -> None:
    """Readers of a run that had to make room hear of it."""
    from rltriage.engine.report import EMPTY
    from rltriage.engine.rows import Row, Run

    board, heard = Board(pack, max_runs=1), list[str]()
    board.publish(Run("old"), Row(0, {"reward": 0.1}), EMPTY)
    with board.listening(heard.append):
        board.publish(Run("new"), Row(0, {"reward": 0.1}), EMPTY)
    assert heard == ["old", "new"]
    assert ("old" in board, "new" in board) == (False, True)


def test_a_run_that_comes_back_has_its_own_references(pack, monkeypatch) -> None:
    """Whoever had to make room while it ran is drawn with its alerts' healthy ranges; what is kept is bounded."""
    from rltriage.engine.reference import Range, Reference
    from rltriage.engine.report import EMPTY
    from rltriage.engine.rows import Fact, Row, Run

    monkeypatch.setattr("rltriage.exporters.page.board.MAX_COMPARED", 2)
    ours = Reference("ours", ((0, 99),), {"kl_ref": (Range(0.01, 0.002, 0.001, 0.005, 0.02),)}, {"kl_coef": 0.1}, ("a",))
    runs = {name: Run(name, facts={"kl_coef": Fact(0.1, "declared")}) for name in ("old", "other", "third")}
    board = Board(pack, max_runs=1)

    def banded(name: str) -> list[str]:
        board.publish(runs[name], Row(0, {"kl_ref": 0.01, "reward": 0.5}), EMPTY)
        return [line.metric for line in board.report(name).metrics if line.band]

    board.compare(runs["old"], [ours])
    board.compare(runs["other"], ())
    assert (banded("other"), "old" in board) == ([], False)
    assert banded("old") == ["kl_ref"]
    for name in ("other", "third"):
        board.compare(runs[name], [ours])
    assert (banded("third"), banded("old")) == (["kl_ref"], [])
    board.compare(runs["third"], ())
    assert (banded("old"), banded("third")) == ([], [])


def test_a_board_is_bounded(pack) -> None:
    """Of too many runs those that are over go first."""
    from rltriage.engine.report import EMPTY
    from rltriage.engine.rows import Row, Run

    board = Board(pack, max_runs=3)
    for name in "abcde":
        board.publish(Run(name), Row(0, {"reward": 0.1}), EMPTY)
        if name == "b":
            board.end("b", "finished", 0.0)
    assert [one.outlook.id for one in board.summaries()] == ["c", "d", "e"]
