"""A board with two runs, rows that can be added, and the page over it, in process, on a port, or in a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rltriage.engine.rows import Fact, Row, Run
from rltriage.exporters.page.board import Board
from rltriage.rules.loader import load_rules
from rltriage.rules.model import RulePack
from rltriage.watching import WatchedRun

pytest.importorskip("starlette", reason="the page needs the extra 'web'")
pytest.importorskip("uvicorn", reason="the page needs the extra 'web'")
AXE = Path(__file__).parents[3] / ".cache" / "axe-core" / "axe.min.js"
CHROMIUM = os.environ.get("RLTRIAGE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


class Feed:
    """Adds rows to the runs of a board."""

    def __init__(self, board: Board, pack: RulePack) -> None:
        self.board, self._pack = board, pack
        self._runs: dict[str, WatchedRun] = {}
        self._steps: dict[str, int] = {}

    def rows(self, name: str, count: int = 1, **metrics: float) -> None:
        """`count` further rows; kl_ref 0 with a gradient is fault 10, for the runs declare a KL term."""
        if name not in self._runs:
            run = Run(name, facts={"kl_coef": Fact(0.1, "declared", "kl_coef")})
            self._runs[name] = WatchedRun(run, self._pack, (self.board,))
        for _ in range(count):
            step = self._steps[name] = self._steps.get(name, -1) + 1
            values = {"reward": 0.2 + 0.01 * (step % 7), "grad_norm": 0.2, "lr": 1e-3, "entropy": 0.5, **metrics}
            self._runs[name].emit(Row(step, values, 1_700_000_000.0 + step))

    def end(self, name: str) -> None:
        """The run is over."""
        self._runs[name].end("finished", 0.0)


@pytest.fixture(scope="session")
def pack() -> RulePack:
    """The shipped rules."""
    return load_rules("triage")


@pytest.fixture
def feed(pack: RulePack) -> Feed:
    """One run with fault 10 and one without a fault."""
    feed = Feed(Board(pack), pack)
    feed.rows("broken", 12, kl_ref=0.0)
    feed.rows("team/healthy", 12, kl_ref=0.02)
    return feed


@pytest.fixture
def client(feed: Feed):
    """The page without a port."""
    pytest.importorskip("httpx", reason="the in-process client needs it")
    from starlette.testclient import TestClient

    from rltriage.exporters.page.app import make_app

    return TestClient(make_app(feed.board), base_url="http://127.0.0.1")


@pytest.fixture
def server(feed: Feed) -> Iterator[str]:
    """The page on a free port; gives its address."""
    from rltriage.exporters.page.server import serve_page

    with serve_page(feed.board, "127.0.0.1:0") as running:
        yield running.url


@pytest.fixture(scope="session")
def browser(missing):
    """One headless Chromium for all tests."""
    api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")
    if CHROMIUM is None:
        missing("browser tests need a chromium: apt-get install chromium, or set RLTRIAGE_CHROMIUM")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM)
        yield running
        running.close()


def _against(line: Any) -> bool:
    """Whether the console says something against the page; that an address is not there is what the test asked for."""
    return line.type == "error" and "404" not in line.text


@pytest.fixture
def barriers(missing) -> Callable[[Any], list[tuple[str, str, str]]]:
    """What axe-core finds that is serious or critical on a page, which was opened with `bypass_csp=True`."""
    if not AXE.exists():
        missing("axe-core is missing: python tests/fetch.py axe-core")

    def find(page) -> list[tuple[str, str, str]]:
        page.add_script_tag(path=AXE)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        told = [(one["id"], one["impact"], one["nodes"][0]["html"][:200]) for one in found]
        return [one for one in told if one[1] in ("serious", "critical")]

    return find


@pytest.fixture
def open_page(browser, server: str):
    """`open_page("/", color_scheme="dark")` opens an address; what the console says against the page fails the test."""
    contexts, complaints = [], []

    def make(path: str, **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda line: complaints.append(line.text) if _against(line) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server + path)
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []
