"""A webhook that prints what Alertmanager tells it: a stand-in for your chat or pager, for the stack and the compose file.

python deploy/receiver.py [HOST:PORT]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LISTEN = "127.0.0.1:9095"
TIMEOUT = 10.0
MAX_BYTES = 4 << 20


class Receiver(ThreadingHTTPServer):
    """Hands every alert that is posted to `told`; anything but a notification is answered with 400."""

    daemon_threads = True

    def __init__(self, listen: str, told: Callable[[dict[str, Any]], None]) -> None:
        host, _, port = listen.rpartition(":")
        super().__init__((host, int(port)), _Handler)
        self.told = told


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    timeout = TIMEOUT

    def do_POST(self) -> None:
        try:
            body = self.rfile.read(min(int(self.headers["Content-Length"]), MAX_BYTES))
            alerts = json.loads(body)["alerts"]
            for alert in alerts:
                line(alert)  # what can be printed is a notification
        except (TypeError, ValueError, LookupError, AttributeError):
            self.send_error(400, "this is no notification of an Alertmanager")
            return
        for alert in alerts:
            self.server.told(alert)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """What it was told is the log."""


def line(alert: dict[str, Any]) -> str:
    """One alert in one line: state, fault, run, what was seen, first test."""
    labels, annotations = alert["labels"], alert["annotations"]
    what = labels.get("fault") or labels.get("alertname", "alert")
    who = f" in {labels['run']}" if labels.get("run") else ""
    test = f"; first test: {annotations['first_test']}" if annotations.get("first_test") else ""
    return f"{alert['status']:<8} {labels.get('severity', ''):<8} {what}{who}: {annotations.get('summary', '')}{test}"


def main() -> None:
    """Print until it is stopped."""
    listen = sys.argv[1] if len(sys.argv) > 1 else LISTEN
    with Receiver(listen, lambda alert: print(line(alert), flush=True)) as server:
        print(f"waiting for alerts at http://{listen}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
