"""Editors: yaml-language-server with our JSON Schema finds a pack's mistakes and offers kinds and keys as one types."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any, NoReturn

import pytest

from rltriage.rules.schema import pack_schema

SERVER = (
    Path(__file__).parents[2] / ".cache/yaml-language-server/node_modules/yaml-language-server/bin/yaml-language-server"
)
SECONDS = 60.0

GOOD = """# yaml-language-server: $schema=rules.schema.json
version: 1
pack: mine
extends: triage
rules:
  - id: entropy-low
    summary: entropy is {entropy:.3g}
    group: behavior
    severity: warning
    when: {threshold: {metric: entropy, window: {last: 3}, below: 0.4}}
    suspects: {entropy_collapse: 0.5}
    first_test: entropy_term_sign
"""


class Editor:
    """Speaks the Language Server Protocol over stdin and stdout, as an editor does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            ["node", str(SERVER), "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._inbox: Queue[dict[str, Any]] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._number = 0
        self.ask("initialize", {"processId": None, "rootUri": folder.as_uri(), "capabilities": {}})
        self._send({"method": "initialized", "params": {}})

    def diagnose(self, name: str, text: str) -> list[dict[str, Any]]:
        """Open a file; what the editor would underline."""
        uri = (self._folder / name).as_uri()
        item = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": item}})
        told = self._wait(lambda m: m.get("method") == "textDocument/publishDiagnostics" and m["params"]["uri"] == uri)
        return told["params"]["diagnostics"]

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """A request and its answer."""
        self._number += 1
        number = self._number
        self._send({"id": number, "method": method, "params": params})
        return self._wait(lambda m: m.get("id") == number and "method" not in m)["result"]

    def close(self) -> None:
        """The editor is closed."""
        self._process.kill()
        self._process.wait()

    def _wait(self, wanted: Any) -> dict[str, Any]:
        while True:
            message = self._inbox.get(timeout=SECONDS)
            if wanted(message):
                return message
            if "id" in message and "method" in message:  # it asks for settings: there are none
                items = (message.get("params") or {}).get("items", [])
                self._send({"id": message["id"], "result": [{} for _ in items]})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            length = 0
            while line.strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                line = self._process.stdout.readline()
            self._inbox.put(json.loads(self._process.stdout.read(length)))


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory, missing: Callable[[str], NoReturn]) -> Iterator[Editor]:
    """One editor in a folder with the schema, as `rltriage rules schema > rules.schema.json` writes it."""
    if not SERVER.is_file() or shutil.which("node") is None:
        missing("needs node and yaml-language-server: python tests/fetch.py yaml-language-server")
    folder = tmp_path_factory.mktemp("editor")
    (folder / "rules.schema.json").write_text(json.dumps(pack_schema()))
    running = Editor(folder)
    yield running
    running.close()


def test_a_good_pack_is_left_alone(editor: Editor) -> None:
    """Nothing is underlined in a pack without mistakes, nor in the shipped one."""
    assert editor.diagnose("good.yaml", GOOD) == []
    shipped = (Path(__file__).parents[2] / "rules/packs/triage.yaml").read_text()
    assert editor.diagnose("shipped.yaml", shipped.replace("$schema=../", "$schema=")) == []


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("severity: warning", "severity: high", "critical"),
        ("severity: warning", "severty: warning", "severty"),
        ("below: 0.4", "belov: 0.4", "belov"),
        ("below: 0.4", 'below: "low"', ""),
        ("threshold:", "treshold:", "treshold"),
        ("    first_test: entropy_term_sign\n", "", "first_test"),
        ("last: 3", "last: 0", ""),
    ],
)
def test_a_mistake_is_underlined_where_it_is(editor: Editor, right: str, wrong: str, says: str) -> None:
    """A wrong value, a misspelt field or kind, one that lacks: each in its line, while it is typed."""
    assert GOOD.count(right) == 1
    found = editor.diagnose(f"bad-{len(right)}-{len(wrong)}.yaml", GOOD.replace(right, wrong))
    assert found
    assert any(says in one["message"] for one in found)
    place = GOOD[: GOOD.index(right)].count("\n")
    if wrong:
        assert any(one["range"]["start"]["line"] <= place <= one["range"]["end"]["line"] for one in found)


def test_kinds_and_keys_are_offered_with_their_help(editor: Editor) -> None:
    """Completion behind `when:` lists the condition kinds; hovering over a key shows what it means."""
    text = GOOD.replace("    when: {threshold: {metric: entropy, window: {last: 3}, below: 0.4}}\n", "    when:\n      t\n")
    editor.diagnose("typing.yaml", text)
    uri = (editor._folder / "typing.yaml").as_uri()
    line = text[: text.index("when:")].count("\n") + 1
    offered = editor.ask(
        "textDocument/completion", {"textDocument": {"uri": uri}, "position": {"line": line, "character": 7}}
    )
    labels = {item["label"] for item in offered["items"]}
    assert {"threshold", "trivial", "race", "all"} <= labels
    line = text[: text.index("severity:")].count("\n")
    shown = editor.ask("textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": line, "character": 6}})
    assert "critical pages somebody" in json.dumps(shown)
