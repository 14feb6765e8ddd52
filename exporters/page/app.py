"""The page's addresses: list, run, alert, their JSON under `/api/`, its description, and the stream of changes.

Everything is read-only. Pages refresh themselves when the stream says that a run has changed; without a script they are
whole, only not live.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from rltriage.engine.rows import writable
from rltriage.exporters.access import Web
from rltriage.exporters.jsonlines import alert_json, dumps
from rltriage.exporters.page.address import run_at, run_path
from rltriage.exporters.page.board import Board, Summary
from rltriage.exporters.page.guard import Guard
from rltriage.exporters.page.openapi import document
from rltriage.exporters.report import words
from rltriage.exporters.report.html import STYLE, environment, utc
from rltriage.exporters.report.plain import report_json
from rltriage.rules.model import SEVERITIES

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message, Send

HERE = Path(__file__).parent
QUIET_SECONDS = 15.0
"""How often a silent stream says that it is alive: below the usual 30 to 60 s after which proxies close a connection."""
GATHER_SECONDS = 0.5
"""Changes of so long are told at once, so that a fast run does not flood its readers."""
MAX_STREAMS = 100
MAX_NAMES = 1000
"""Changed runs that wait for a reader; of more the reader is told that anything may have changed."""
SEND_SECONDS = 20.0
"""A reader that takes no more for so long is let go: it has stopped reading, or is gone without a word."""


class Streams:
    """The streams that are open. A server that waits for them would wait for ever, so `close`, on any thread, ends them."""

    def __init__(self) -> None:
        self.closed = False
        self._wakers: set[Callable[[], object]] = set()

    def __len__(self) -> int:
        return len(self._wakers)

    @contextmanager
    def opened(self, wake: Callable[[], object]) -> Iterator[None]:
        """One more, which `wake` makes look whether it is to end."""
        self._wakers.add(wake)
        try:
            yield
        finally:
            self._wakers.discard(wake)

    def close(self) -> None:
        """End them all."""
        self.closed = True
        for wake in tuple(self._wakers):
            with suppress(RuntimeError):  # its loop is closed already
                wake()


def make_app(
    board: Board, web: Web | None = None, hosts: frozenset[str] | None = None, streams: Streams | None = None
) -> Guard:
    """The page over a board as an ASGI application.

    `web` holds users and token; `hosts` are the names under which browsers may ask for it (None: any), so that a foreign
    page cannot read it by pointing its own name at this machine. `streams` will hold the streams that are open.
    """
    return Guard(_Pages(board, Streams() if streams is None else streams).application(), web or Web(), hosts)


class _Pages:
    """One method per address."""

    def __init__(self, board: Board, streams: Streams) -> None:
        self._board = board
        self._environment = environment(HERE / "templates")
        self._streams = streams

    def application(self) -> Starlette:
        routes: list[BaseRoute] = [
            Route("/", self.all_runs),
            Route("/events", self.events),
            Route("/openapi.json", self.openapi),
            Route("/api/runs", self.api_runs),
            Route("/api/alerts", self.api_alerts),
            Route("/api/runs/{run:path}/alerts/{alert}", self.api_alert),
            Route("/api/runs/{run:path}", self.api_run),
            Route("/runs/{run:path}/alerts/{alert}", self.alert),
            Route("/runs/{run:path}", self.run),
            Route("/-/healthy", self.healthy),
            Route("/static/report.css", self.style),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ]
        app = Starlette(routes=routes, exception_handlers={404: self.nothing_here})
        app.router.redirect_slashes = False  # no address here has one at its end, and the redirection takes UTF-8 alone
        return app

    # Pages.

    async def all_runs(self, request: Request) -> Response:
        wanted, severity = request.query_params.get("q", ""), request.query_params.get("severity", "")
        runs = await asyncio.to_thread(self._chosen, wanted, severity)
        total = await asyncio.to_thread(len, self._board)
        severities = (*reversed(SEVERITIES), "quiet")
        found = [one.outlook.severity or "quiet" for one in runs]
        counts = [(found.count(name), name) for name in severities if name in found]
        return self._html(
            "list.html", runs=runs, total=total, counts=counts, q=wanted, severity=severity, severities=severities
        )

    async def run(self, request: Request) -> Response:
        return await self._run(self._asked(request))

    async def _run(self, name: str) -> Response:
        report = await asyncio.to_thread(self._board.report, name)
        if report is None:
            why = "it is over for long, it is not watched, or the service has only just started"
            return self._missing(f"There is no run {name!r} here: {why}. It appears by itself as soon as it has a row.")
        return await asyncio.to_thread(self._html, "live.html", report=report)

    async def alert(self, request: Request) -> Response:
        name, alert = self._asked(request), request.path_params["alert"]
        found = await asyncio.to_thread(self._board.alert, name, alert)
        report = await asyncio.to_thread(self._board.report, name)
        if not found or report is None:
            whole = f"{request.path_params['run']}/alerts/{alert}"
            if whole in self._board:  # a run that is called like an alert's address
                return await self._run(whole)
            why = "the run started over, or it is over for long"
            return self._missing(f"The alert {alert!r} of run {name!r} is not here: {why}.")
        charts = [one for one in report.symptoms if found[-1].rule in one.rules]
        return await asyncio.to_thread(
            self._html, "alert.html", report=report, alert=found[-1], transitions=found, charts=charts
        )

    # Data.

    async def api_runs(self, request: Request) -> Response:
        given = request.query_params
        runs = await asyncio.to_thread(self._chosen, given.get("q", ""), given.get("severity", ""))
        return _json({"runs": [_summary_json(one) for one in runs]})

    async def api_run(self, request: Request) -> Response:
        return await self._api_run(self._asked(request))

    async def _api_run(self, name: str) -> Response:
        report = await asyncio.to_thread(self._board.report, name)
        if report is None:
            return _json({"error": "no such run"}, 404)
        return await asyncio.to_thread(lambda: _json(report_json(report)))

    async def api_alert(self, request: Request) -> Response:
        name, alert = self._asked(request), request.path_params["alert"]
        found = await asyncio.to_thread(self._board.alert, name, alert)
        if not found:
            whole = f"{request.path_params['run']}/alerts/{alert}"
            if whole in self._board:
                return await self._api_run(whole)
            return _json({"error": "no such alert"}, 404)
        catalogue = self._board.pack.catalogue
        return _json({"alert": alert_json(found[-1], catalogue), "transitions": [alert_json(a, catalogue) for a in found]})

    async def api_alerts(self, request: Request) -> Response:
        runs = await asyncio.to_thread(self._board.summaries)
        catalogue = self._board.pack.catalogue
        return _json({"alerts": [alert_json(alert, catalogue) for one in runs for alert in one.outlook.standing]})

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(document())

    async def events(self, request: Request) -> Response:
        if len(self._streams) >= MAX_STREAMS:
            return PlainTextResponse("too many readers\n", 503)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        stream = self._changes(request.query_params.get("run", ""))
        return _Stream(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def healthy(self, request: Request) -> Response:
        return PlainTextResponse("healthy\n")

    async def style(self, request: Request) -> Response:
        return Response(STYLE.read_bytes(), media_type="text/css")

    async def nothing_here(self, request: Request, error: Exception) -> Response:
        return self._missing("There is nothing at this address.")

    # Parts.

    def _asked(self, request: Request) -> str:
        """The id of the run that an address names."""
        return run_at(request.path_params["run"], self._board)

    async def _changes(self, run: str) -> AsyncIterator[str]:
        """Server-sent events: the ids of runs that changed (none: too many to name), `run` alone if it is given."""
        loop, changed, woken = asyncio.get_running_loop(), set[str](), asyncio.Event()

        def note(name: str) -> None:
            if len(changed) <= MAX_NAMES:
                changed.add(name)
            woken.set()

        def listener(name: str) -> None:
            if not run or name == run:
                loop.call_soon_threadsafe(note, name)

        with self._streams.opened(lambda: loop.call_soon_threadsafe(woken.set)), self._board.listening(listener):
            yield "retry: 3000\n: hello\n\n"
            while not self._streams.closed:
                try:
                    await asyncio.wait_for(woken.wait(), QUIET_SECONDS)
                except TimeoutError:
                    yield "event: beat\ndata: -\n\n"  # no comment: scripts must hear it, too
                    continue
                names = sorted(changed) if len(changed) <= MAX_NAMES else []
                changed.clear()
                woken.clear()
                yield f"event: changed\ndata: {json.dumps(names)}\n\n"
                await asyncio.sleep(0 if self._streams.closed else GATHER_SECONDS)

    def _chosen(self, wanted: str, severity: str) -> list[Summary]:
        """Runs whose id, fault or headline holds the text, of one severity if one is given."""
        text = wanted.casefold().strip()
        return [
            one
            for one in self._board.summaries()
            if (not severity or (one.outlook.severity or "quiet") == severity)
            and (not text or text in f"{one.outlook.id} {words.headline(one.outlook)}".casefold())
        ]

    def _html(self, template: str, status: int = 200, **given: Any) -> HTMLResponse:
        page = self._environment.get_template(template)
        return HTMLResponse(writable(page.render(path=run_path, isolated=isolated, now=utc(time.time()), **given)), status)

    def _missing(self, why: str) -> HTMLResponse:
        return self._html("missing.html", 404, why=why)


class _Stream(StreamingResponse):
    """A stream that does not wait for a reader who has stopped reading: the connection ends and its place is free."""

    async def stream_response(self, send: Send) -> None:
        async def hasty(message: Message) -> None:
            await asyncio.wait_for(send(message), SEND_SECONDS)

        try:
            await super().stream_response(hasty)
        except TimeoutError:
            raise ClientDisconnect from None


def isolated(run: str) -> str:
    """A run's id for a title, which no markup reaches: text from right to left must not turn what stands around it."""
    return f"\u2068{run}\u2069"


def _summary_json(one: Summary) -> dict[str, Any]:
    now = one.outlook
    return {
        "run": now.id,
        "state": now.state,
        "severity": now.severity,
        "fault": "" if now.resolved else now.fault,
        "headline": words.headline(now),
        "rows": now.rows,
        "last_step": now.last_step,
        "last_time": now.last_time,
        "alerts": len(now.standing),
        "url": run_path(now.id),
    }


def _json(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(dumps(value), status, media_type="application/json")
