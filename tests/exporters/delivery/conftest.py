"""A receiver that keeps a journal, and alerts to tell it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rltriage.engine.report import Alert, Suspect
from rltriage.exporters.delivery.http import Poster


@dataclass
class Journal:
    """What a receiver was sent and what it answers: `status` and `headers`, or nothing while `hang` is set.

    `refuses` may turn a body into a 400; `entries` are the bodies that were answered with success, `attempts` all of them.
    """

    url: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    refuses: Callable[[Any], bool] = lambda body: False
    entries: list[Any] = field(default_factory=list)
    attempts: list[Any] = field(default_factory=list)
    seen: list[dict[str, str]] = field(default_factory=list)
    hang: threading.Event | None = None

    def poster(self, **limits: float) -> Poster:
        return Poster(lambda: self.url, **limits)

    def alerts(self) -> list[tuple[str, str]]:
        """(id, state) of every alert in accepted webhook bodies of the default shape."""
        return [(alert["id"], alert["state"]) for body in self.entries for alert in body["alerts"]]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        journal: Journal = self.server.journal  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        journal.attempts.append(body)
        journal.seen.append(dict(self.headers))
        if journal.hang is not None:
            journal.hang.wait()
            self.close_connection = True
            return
        status = 400 if journal.refuses(body) else journal.status
        if status == 200:
            journal.entries.append(body)
        answer = b"" if status == 200 else b"no"
        self.send_response(status)
        for name, value in {"Content-Length": str(len(answer)), **journal.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""


@pytest.fixture
def journal() -> Iterator[Journal]:
    """A receiver on a free port of 127.0.0.1."""
    with receiver() as found:
        yield found


class receiver:
    """A context manager around one receiver, for tests that need several or want to end one early."""

    def __enter__(self) -> Journal:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.journal = Journal(f"http://127.0.0.1:{self.server.server_address[1]}/hook")
        self.server.journal = self.journal  # type: ignore[attr-defined]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        return self.journal

    def __exit__(self, *_: object) -> None:
        if self.journal.hang is not None:
            self.journal.hang.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def two_receivers() -> Iterator[tuple[Journal, Journal]]:
    """Two receivers, as the replicas of one cluster."""
    with receiver() as one, receiver() as two:
        yield one, two


@pytest.fixture
def make_alert() -> Callable[..., Alert]:
    """A critical alert with a named suspect; every field can be replaced, and the id follows run and rule."""

    def make(**given: Any) -> Alert:
        run, rule = given.get("run", "r1"), given.get("rule", "kl-ref-exactly-zero")
        fields: dict[str, Any] = {
            "id": f"{run}/{rule}",
            "run": run,
            "rule": rule,
            "state": "firing",
            "severity": "critical",
            "group": "consistency",
            "step": 7,
            "since_step": 5,
            "segment": 0,
            "summary": "kl_ref has been exactly 0 for 3 rows while kl_coef is 0.04",
            "values": {"kl_ref": 0.0},
            "suspects": (
                Suspect("ref_is_policy", "the reference is the policy", 0.7, 10),
                Suspect("dead_gradient", "", 0.2),
            ),
            "first_test": "kl_after_one_step",
        }
        return Alert(**{**fields, **given})

    return make
