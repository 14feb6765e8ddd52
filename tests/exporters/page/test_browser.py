"""The page in a browser: live while rows arrive, by keyboard, on a phone, in the dark, and without barriers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rltriage.exporters.report.build import build
from rltriage.exporters.report.collect import Collector
from rltriage.exporters.report.html import report_html
from rltriage.exporters.report.model import RunReport
from rltriage.recorded import read_runs
from rltriage.watching import WatchedRun

api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")
expect = api.expect
expect.set_options(timeout=20_000)
DATA = Path(__file__).parents[2] / "data"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def _live(page) -> None:
    expect(page.locator("#live")).to_have_class("live on")


def test_the_list_is_live(open_page, feed) -> None:
    """A run that begins while the list is open appears in it without a reload."""
    page = open_page("/")
    expect(page.locator(".run")).to_have_count(2)
    _live(page)
    feed.rows("fresh", 12, kl_ref=0.0)
    expect(page.locator(".run")).to_have_count(3)
    expect(page.locator(".run", has_text="fresh")).to_contain_text("ref_is_policy")


def test_the_filter_narrows_while_one_types(open_page) -> None:
    """What is typed filters at once, stays in the address, and the box keeps the focus."""
    page = open_page("/")
    _live(page)
    page.keyboard.press("/")
    page.keyboard.type("ref_is")
    expect(page.locator(".run")).to_have_count(1)
    expect(page.locator("#q")).to_be_focused()
    assert page.url.endswith("?q=ref_is")


def test_a_run_goes_from_quiet_to_alarm_before_the_reader(open_page, feed) -> None:
    """Rows arrive, the alert fires, headline, map and curves follow; what was opened stays open."""
    feed.rows("young", 2, kl_ref=0.0)
    page = open_page("/runs/young")
    _live(page)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Nothing is wrong")
    page.locator("#r-metrics summary").click()
    feed.rows("young", 10, kl_ref=0.0)
    expect(page.get_by_role("heading", level=1)).to_contain_text("ref_is_policy (fault 10")
    expect(page.locator("#r-map svg")).to_be_visible()
    expect(page.locator("#r-metrics details")).to_have_attribute("open", "")
    assert "critical" in page.title()


def test_an_alert_is_reached_from_its_run(open_page) -> None:
    """The timeline links to the alert's own address, which names the test and leads back."""
    page = open_page("/runs/broken")
    page.locator("#r-timeline a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("kl-ref-exactly-zero")
    expect(page.locator(".test")).to_contain_text("rltriage check --only 9")
    assert "/runs/broken/alerts/" in page.url
    page.get_by_role("link", name="All about this run").click()
    expect(page).to_have_url(re.compile("/runs/broken$"))


def test_everything_by_keyboard(open_page) -> None:
    """j and k walk the runs, Enter opens one, u leads back; the first Tab offers to skip the head."""
    page = open_page("/")
    _live(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="broken")).to_be_focused()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="team/healthy")).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/runs/broken$"))
    _live(page)
    page.keyboard.press("u")
    expect(page.locator(".run")).to_have_count(2)


def test_the_focus_stays_on_its_run(open_page, feed) -> None:
    """A worse run that comes in above does not move the keyboard to another run."""
    page = open_page("/")
    _live(page)
    page.get_by_role("link", name="team/healthy").focus()
    feed.rows("a-new-one", 12, kl_ref=0.0)
    expect(page.locator(".run")).to_have_count(3)
    expect(page.get_by_role("link", name="team/healthy")).to_be_focused()


def test_dark_is_dark(open_page) -> None:
    """Who prefers dark gets light text on a dark page."""
    colours = {}
    for scheme in ("light", "dark"):
        page = open_page("/runs/broken", color_scheme=scheme)
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = {name: sum(map(int, text[4:-1].split(","))) for name, text in colours.items()}
    assert brightness["dark"] < 150 < 600 < brightness["light"]


@pytest.mark.parametrize("address", ["/", "/runs/broken"])
def test_a_phone_scrolls_one_way_only(open_page, address: str) -> None:
    """At phone width nothing sticks out of the page and nothing scrolls sideways; the map is a list."""
    page = open_page(address, **PHONE)
    _open_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert _sideways(page) == []
    if address != "/":
        expect(page.locator(".map-list .node-lit").first).to_contain_text("kl-ref-exactly-zero")
        expect(page.locator(".map")).not_to_be_visible()
    expect(page.get_by_role("heading", level=1).first).to_be_in_viewport()


def test_a_metrics_name_is_not_broken_on_a_desk(open_page) -> None:
    """Where there is room, the names that somebody is to log or to look for stand in one line each."""
    page = open_page("/runs/broken")
    _open_all(page)
    lines = """[...document.querySelectorAll("td:first-child > strong")].map((one) => {
        const range = document.createRange();
        range.selectNodeContents(one);
        return [one.textContent, new Set([...range.getClientRects()].map((box) => box.top)).size];
    })"""
    found = page.evaluate(lines)
    assert len(found) > 10 and [name for name, count in found if count > 1] == []


def test_without_scripts_the_page_is_whole(open_page) -> None:
    """Only the liveness is missing."""
    page = open_page("/runs/broken", java_script_enabled=False)
    expect(page.locator("#r-map svg")).to_be_visible()
    expect(page.locator("#live")).to_have_text(re.compile("^not live: as of .* UTC, reload"))


@pytest.mark.parametrize("look", [{}, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", ["/", "/runs/broken", "alert", "/runs/nobody"])
def test_no_serious_barriers(open_page, feed, barriers, address: str, scheme: str, look: dict[str, Any]) -> None:
    """axe-core finds nothing serious or critical: names, roles, contrast, order."""
    if address == "alert":
        alert = feed.board.report("broken").standing[0]
        address = f"/runs/broken/alerts/{alert.id}"
    page = open_page(address, color_scheme=scheme, bypass_csp=True, **look)
    assert barriers(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("group", ["mask_shift", "reward_hacking", "healthy"])
def test_a_report_on_a_phone_and_on_a_desk(browser, barriers, tmp_path, pack, group: str, scheme: str) -> None:
    """Narrow, the map is a list from symptom to fault and nothing scrolls sideways; wide, it is the picture."""
    file = tmp_path / "report.html"
    file.write_text(report_html([_recorded(group, pack)]))
    for look in ({"viewport": {"width": 1200, "height": 900}}, PHONE):
        context = browser.new_context(color_scheme=scheme, bypass_csp=True, **look)
        page = context.new_page()
        page.goto(file.as_uri())
        _open_all(page)
        assert _sideways(page) == []
        narrow = look is PHONE
        if group != "healthy":
            expect(page.locator(".map")).to_be_visible(visible=not narrow)
            expect(page.locator(".map-list")).to_be_visible(visible=narrow)
            expect(page.locator(".map-list .node-lit").first).to_be_visible(visible=narrow)
        assert barriers(page) == []
        context.close()


def _recorded(group: str, pack) -> RunReport:
    """The report of a group's first recorded run."""
    recorded = read_runs(DATA / "runs", [group])[0]
    run = recorded.run()
    collector = Collector(run)
    watched = WatchedRun(run, pack, (collector,))
    for row in recorded.rows:
        watched.emit(row)
    return build(collector, pack)


def _open_all(page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def _sideways(page) -> list[str]:
    """What sticks out of the page, or scrolls sideways in a frame of its own."""
    return page.evaluate(
        """[...document.querySelectorAll("body, body *:not(svg *)")]
            .filter((one) => one.getBoundingClientRect().right > innerWidth + 1
                || (one.scrollWidth > one.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(one).overflowX)))
            .map((one) => one.outerHTML.slice(0, 120))"""
    )
