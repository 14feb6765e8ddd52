"""The page when things go wrong: a restart, another token, a dead stream, a run that goes, hostile names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from rltriage.exporters.http import Web
from rltriage.exporters.page.board import Board
from rltriage.exporters.page.server import PageServer, serve_page

api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")
expect = api.expect
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
TOKEN, OTHER = "a-token-of-some-length", "another-token-of-length"
HOSTILE = {
    "markup": """<img src=x onerror="document.body.dataset.hacked=1">'&quot;""",
    "slashes": "a//b/../c?x#y%2F\\z",
    "alert": "r/alerts/abc",
    "long": "x" * 300,
    "words": "a long name " * 25,
    "right-to-left": "\u202eevil\u202c שלום مرحبا run",
}


class Service:
    """A page on one port that can stop, and start again with another token or another board."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._running = serve_page(board, "127.0.0.1:0")
        self.url = self._running.url

    def stop(self) -> None:
        self._running.close()

    def start(self, token: str = "", board: Board | None = None) -> PageServer:
        web = Web(token=token) if token else None
        self._running = serve_page(self.board if board is None else board, self.url.removeprefix("http://"), web=web)
        return self._running


@pytest.fixture
def service(feed) -> Iterator[Service]:
    """The page over the feed's board."""
    running = Service(feed.board)
    yield running
    running.stop()


@pytest.fixture
def visit(browser) -> Iterator[Callable[..., Any]]:
    """`visit(url, context)` opens an address in a tab; an error in the page's own script fails the test."""
    contexts, errors = [], []

    def make(url: str, context: Any = None, script: str = "", **options: Any) -> Any:
        if context is None:
            context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
            contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        if script:
            page.add_init_script(script)
        page.goto(url)
        return page

    yield make
    for context in contexts:
        context.close()
    assert errors == []


def _live(page) -> None:
    expect(page.locator("#live")).to_have_class("live on", timeout=30_000)
    expect(page.locator("body")).not_to_have_class(re.compile("lost"))


def _lost(page, why: str) -> None:
    expect(page.locator("#live")).to_contain_text(
        re.compile(f"^Not live: .*{why}.* What you see is of .* UTC"), timeout=30_000
    )
    expect(page.locator("body")).to_have_class("lost")
    expect(page.locator("#live")).to_be_in_viewport()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_restart_is_seen_and_survived(service, feed, visit, barriers, scheme: str) -> None:
    """Without the service nothing is shown as live, wherever one has scrolled; with it the newest values come alone."""
    page = visit(f"{service.url}/runs/broken", color_scheme=scheme, bypass_csp=True)
    _live(page)
    page.mouse.wheel(0, 1500)
    service.stop()
    _lost(page, "does not answer")
    assert barriers(page) == []
    feed.rows("broken", 5, kl_ref=0.0)
    service.start()
    _live(page)
    expect(page.locator("#r-head .state")).to_contain_text("steps 0 to 16")


def test_a_service_that_knows_nothing_yet(service, feed, pack, visit) -> None:
    """After a restart the run may not be read yet: the page says so, and shows it as soon as it is."""
    page = visit(f"{service.url}/runs/broken")
    _live(page)
    service.stop()
    empty = type(feed)(Board(pack), pack)
    service.start(board=empty.board)
    expect(page.get_by_role("heading", level=1)).to_have_text("Not here", timeout=30_000)
    assert page.locator("#r-head").count() == 0
    empty.rows("broken", 12, kl_ref=0.0)
    expect(page.get_by_role("heading", level=1)).to_contain_text("ref_is_policy (fault 10")


def test_a_changed_token_is_said_and_a_login_elsewhere_helps(service, feed, visit) -> None:
    """The old cookie is worth nothing: the page says why, and goes on once another tab has logged in."""
    service.stop()
    service.start(TOKEN)
    page = visit(f"{service.url}/?token={TOKEN}")
    _live(page)
    service.stop()
    service.start(OTHER)
    _lost(page, "the token has changed")
    feed.rows("fresh", 12, kl_ref=0.0)
    expect(page.locator(".run")).to_have_count(2)
    _live(visit(f"{service.url}/?token={OTHER}", page.context))
    _live(page)
    expect(page.locator(".run")).to_have_count(3)


def test_a_stream_that_says_nothing_is_taken_for_dead(service, visit) -> None:
    """A connection that a network has swallowed is not cut: silence for longer than the beat is enough."""
    page = visit("about:blank")
    page.clock.install()
    page.goto(f"{service.url}/runs/broken")
    _live(page)
    page.route("**/*", lambda route: route.abort())
    page.clock.fast_forward(60_000)
    _lost(page, "nothing was heard|does not answer")
    page.unroute_all()
    page.clock.fast_forward(60_000)
    _live(page)


def _time_shown(page) -> str:
    return re.search(r"What you see is of (.*) UTC", page.locator("#live").inner_text())[1]


def test_the_time_is_that_of_what_is_seen(service, visit) -> None:
    """Not that of the moment when the loss was noticed; after a night's sleep the day is told, too."""
    page = visit("about:blank")
    page.clock.install(time=datetime(2026, 1, 1, 20, 0, tzinfo=UTC))
    page.goto(f"{service.url}/runs/broken")
    _live(page)
    page.route("**/*", lambda route: route.abort())
    page.clock.fast_forward(60_000)
    _lost(page, "nothing was heard|does not answer")
    assert "20:00:00" <= _time_shown(page) < "20:00:50"
    page.clock.fast_forward(8 * 3_600_000)
    expect(page.locator("#live")).to_contain_text("What you see is of 2026-01-01 20:00:")


def test_a_beat_says_that_what_is_seen_is_right(service, visit, monkeypatch) -> None:
    """Where nothing changes for long, what is seen is as new as the last that was heard of the service."""
    monkeypatch.setattr("rltriage.exporters.page.app.QUIET_SECONDS", 0.2)
    page = visit("about:blank", bypass_csp=True)
    page.clock.install(time=datetime(2026, 1, 1, 20, 0, tzinfo=UTC))
    page.goto(f"{service.url}/runs/broken")
    _live(page)
    page.evaluate("window.beats = 0, new EventSource('/events').addEventListener('beat', () => { beats += 1; })")
    for _ in range(3):
        page.clock.fast_forward(30_000)
        beats = page.evaluate("beats")
        page.wait_for_function(f"beats > {beats + 2}", polling=50)
    service.stop()
    _lost(page, "does not answer")
    assert _time_shown(page) >= "20:01:30"


def test_words_from_before_a_sleep_do_not_revive_a_dead_stream(service, visit, monkeypatch) -> None:
    """A machine that wakes up finds beats from before it slept: they do not make what is seen look new."""
    monkeypatch.setattr("rltriage.exporters.page.app.QUIET_SECONDS", 0.1)
    page = visit("about:blank")
    page.clock.install(time=datetime(2026, 1, 1, 20, 0, tzinfo=UTC))
    page.goto(f"{service.url}/runs/broken")
    _live(page)
    page.route("**/*", lambda route: route.abort())
    page.clock.set_system_time(datetime(2026, 1, 2, 6, 0, tzinfo=UTC))
    _lost(page, "nothing was heard|does not answer")
    assert _time_shown(page).startswith("2026-01-01 20:00:")


def test_a_page_that_was_lost_for_a_moment_is_live_again_without_a_change(service, visit, monkeypatch) -> None:
    """One fetch fails while the stream goes on: the next beat makes up for it."""
    monkeypatch.setattr("rltriage.exporters.page.app.QUIET_SECONDS", 0.2)
    page = visit("about:blank")
    refused = []

    def once(route: Any) -> None:
        if route.request.resource_type == "fetch" and not refused:
            refused.append(route.request.url)
            route.abort()
        else:
            route.continue_()

    page.route("**/*", once)
    page.goto(f"{service.url}/runs/broken")
    _live(page)
    assert refused


def test_reload_reloads_whatever_the_address_ends_in(service, visit) -> None:
    """By mouse and by keyboard, also after a jump to a part of the page, and with the filter that was typed since."""
    page = visit(f"{service.url}/")
    _live(page)
    page.keyboard.press("/")
    page.keyboard.type("bro")
    expect(page).to_have_url(f"{service.url}/?q=bro")
    page.evaluate("location.hash = 'main'")
    lost = ("fetch", "eventsource")
    page.route("**/*", lambda route: route.abort() if route.request.resource_type in lost else route.continue_())
    page.clock.install()
    page.clock.fast_forward(60_000)
    for press in (lambda: page.keyboard.press("Enter"), lambda: page.get_by_role("button", name="Reload").click()):
        _lost(page, "")
        page.get_by_role("button", name="Reload").focus()
        page.evaluate("window.before = true")
        with page.expect_navigation(wait_until="load"):
            press()
        assert page.evaluate("window.before ?? null") is None
        assert page.url == f"{service.url}/?q=bro#main"
        expect(page.locator("#q")).to_have_value("bro")


def test_two_tabs_show_the_same(service, feed, visit) -> None:
    """Both follow, each on its own address."""
    first = visit(f"{service.url}/")
    second = visit(f"{service.url}/runs/broken", first.context)
    _live(first)
    _live(second)
    feed.rows("broken", 3, kl_ref=0.0)
    expect(second.locator("#r-head .state")).to_contain_text("steps 0 to 14")
    expect(first.locator(".run", has_text="broken")).to_contain_text("step 14")


def test_many_tabs_do_not_starve_each_other(service, feed, visit) -> None:
    """A browser has six connections to a host: tabs that nobody sees keep none, and catch up when they are seen."""
    unseen = "Object.defineProperty(document, 'hidden', { get: () => !window.seen, configurable: true });"
    hidden = visit(f"{service.url}/runs/broken", script=unseen)
    for _ in range(7):
        visit(f"{service.url}/runs/broken", hidden.context, script=unseen)
    last = visit(f"{service.url}/runs/broken", hidden.context)
    _live(last)
    expect(hidden.locator("#live")).to_contain_text("not live")
    feed.rows("broken", 3, kl_ref=0.0)
    expect(last.locator("#r-head .state")).to_contain_text("steps 0 to 14")
    hidden.evaluate("window.seen = true; document.dispatchEvent(new Event('visibilitychange'))")
    _live(hidden)
    expect(hidden.locator("#r-head .state")).to_contain_text("steps 0 to 14")


def test_a_run_that_is_let_go_disappears(feed, pack, visit) -> None:
    """Of a run that the board has dropped no value stays on the screen; if it comes back, it is there again."""
    small = type(feed)(Board(pack, max_runs=2), pack)
    small.rows("old", 3, kl_ref=0.0)
    with serve_page(small.board, "127.0.0.1:0") as running:
        page = visit(f"{running.url}/runs/old")
        _live(page)
        small.rows("new", 1)
        small.rows("newer", 1)
        expect(page.get_by_role("heading", level=1)).to_have_text("Not here")
        assert page.locator("main").inner_text().count("step") == 0
        small.rows("old", 1, kl_ref=0.0)
        expect(page.locator("#r-head .run-id")).to_have_text("old")


@pytest.mark.parametrize("look", [{}, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_name_is_only_a_name(service, feed, visit, barriers, name: str, look: dict[str, Any]) -> None:
    """In list, run and alert: it is reached by its link, nothing runs, nothing sticks out, no barrier."""
    feed.rows(name, 12, kl_ref=0.0)
    page = visit(f"{service.url}/", bypass_csp=True, color_scheme="dark" if look else "light", **look)
    _live(page)
    link = page.locator(f'a[href="/runs/{quote(name, safe="")}"]')
    for step in (lambda: None, link.click, lambda: page.locator("#r-timeline a").first.click()):
        step()
        _live(page)
        assert page.evaluate("document.body.dataset.hacked ?? null") is None
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert "\u202e" not in page.locator("body").inner_text() + page.title()
        assert barriers(page) == []
    assert f"/runs/{quote(name, safe='')}/alerts/" in page.url
    expect(page.get_by_role("heading", level=1)).to_contain_text("kl-ref-exactly-zero")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_form_for_the_token(service, visit, barriers, scheme: str) -> None:
    """It has the focus, says when a token was wrong, opens the page with the right one, and has no barriers."""
    service.stop()
    service.start(TOKEN)
    page = visit(f"{service.url}/runs/broken", color_scheme=scheme, bypass_csp=True, **PHONE)
    field = page.get_by_label("Token")
    expect(field).to_be_focused()
    assert page.get_by_role("alert").count() == 0
    assert barriers(page) == []
    field.fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    assert barriers(page) == []
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{service.url}/runs/broken")
    _live(page)
