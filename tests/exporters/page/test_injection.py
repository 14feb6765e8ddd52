"""Text of others in a real browser: wherever it can come from, nothing of it runs, on the page and in the report."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from rltriage.engine.feed import Feed as LogFeed
from rltriage.engine.sources import open_source
from rltriage.exporters.page.board import Board
from rltriage.exporters.page.server import serve_page
from rltriage.exporters.report.html import report_html
from rltriage.rules.loader import load_rules
from rltriage.watching import WatchedRun

pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")

# Closes what text may stand in: an attribute of either quote, an element, a title, a style, a comment.
BAD = """x'"></title></style>--><img src=x onerror="document.body.dataset.hacked='1'"><script>hacked=1</script>{{7*7}}"""
IN_A_FILE_NAME = BAD.replace("/", "")

PACK = """version: 1
pack: hostile
extends: triage
faults:
  bad_fault: {title: %(bad)s, summary: %(bad)s, signature: %(bad)s, look_alikes: [%(bad)s], fix: %(bad)s,
    sources: [%(bad)s], action: stop, first_test: bad_test}
first_tests:
  bad_test: {title: %(bad)s, tier: rows, how: %(bad)s, command: %(command)s}
metrics: {hostile: {help: %(bad)s, flags: %(bad)s, unit: %(bad)s}}
rules:
  - id: hostile-rule
    summary: %(bad)s
    group: outcome
    severity: critical
    when: {threshold: {metric: hostile, above: 0}}
    suspects: {bad_fault: 0.9}
    first_test: bad_test
    why: %(bad)s
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Board:
    """A run in which every text that others give is hostile: file, run id, labels, metrics, facts, rules, faults, tests."""
    import json

    folder = tmp_path_factory.mktemp("hostile")
    pack_file = folder / "hostile.yaml"
    pack_file.write_text(PACK % {"bad": json.dumps(BAD), "command": json.dumps(f"echo {BAD} {{run}}")})
    pack = load_rules(str(pack_file))
    board = Board(pack)
    rows = [
        {"step": step, "hostile": 1.0, BAD: step, f"check_{BAD}": 0.0, "kl_ref": 0.0, "grad_norm": 0.1} for step in range(8)
    ]
    for name, more in ((f"{IN_A_FILE_NAME[:200]}.jsonl", {}), ("other.jsonl", {"run": BAD})):
        log = Path(folder, name)
        log.write_text("".join(json.dumps({**row, **more}) + "\n" for row in rows))
        config = {"loss_mode": BAD, BAD: BAD}
        feed = LogFeed(open_source(str(log)), log.stem, config=config, labels={"team": BAD, BAD: "x"})
        watched = None
        for intake, row in feed.rows():
            watched = watched or WatchedRun(intake.run, pack, (board,))
            watched.emit(row, intake.run)
    return board


def _harmless(page, markup: str) -> None:
    """Nothing ran, and no element came of the text."""
    page.wait_for_timeout(0)
    assert page.evaluate("document.body.dataset.hacked ?? window.hacked ?? null") is None
    assert page.locator("img").count() == 0
    assert page.locator("script:not([src])").count() == 0
    assert "49" not in page.locator("h1").first.inner_text()
    assert markup in page.content()


def test_nothing_of_it_runs_on_the_page(hostile, browser) -> None:
    """List, run, alert, what is missing, and the filter's own text, each also after the page has refreshed itself."""
    listed = {one.outlook.id: one.outlook for one in hostile.summaries()}
    assert len(listed) == 2
    assert BAD in listed
    with serve_page(hostile, "127.0.0.1:0") as running:
        context = browser.new_context()
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        for name, now in listed.items():
            run = f"/runs/{quote(name, safe='')}"
            alerts = [f"{run}/alerts/{alert.id}" for alert in now.standing]
            assert any(alert.rule == "hostile-rule" for alert in now.standing)
            for address in ("/", f"/?q={quote(BAD)}&severity={quote(BAD)}", run, *alerts, f"{run}/alerts/x", f"{run}x"):
                answer = page.goto(running.url + address)
                assert "script-src 'self'" in answer.headers["content-security-policy"]
                page.locator("#live.on").wait_for()
                _harmless(page, "&lt;img src=x" if answer.status == 200 or run in address else "")
        for address in ("/api/runs", "/api/alerts", f"/api/runs/{quote(BAD, safe='')}"):
            answer = page.goto(running.url + address)
            assert answer.headers["content-type"] == "application/json"
            assert page.evaluate("document.images.length") == 0
        context.close()
    assert not [line for line in complaints if "404" not in line]


def test_nothing_of_it_runs_in_the_report(hostile, browser, tmp_path) -> None:
    """The file that is sent around is as safe, without the server's headers."""
    reports = [hostile.report(one.outlook.id) for one in hostile.summaries()]
    file = tmp_path / "report.html"
    file.write_text(report_html(reports, BAD))
    page = browser.new_page()
    page.goto(file.as_uri())
    _harmless(page, "&lt;img src=x")
    page.close()
