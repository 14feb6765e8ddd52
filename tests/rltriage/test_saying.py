"""What goes wrong in a watched run is said once for each kind, whatever went wrong and was said before."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

import rltriage
from rltriage.engine.rows import Row, Run
from rltriage.rules.loader import load_rules
from rltriage.saying import MOST_SAID, Once
from rltriage.watching import WatchedRun

RULES = """\
version: 1
rules:
  - {id: high, summary: "{reward}", group: outcome, severity: warning, when: {threshold: {metric: reward, LIMIT}},
     suspects: {}, first_test: run_invariants}
"""


def test_a_taken_port_does_not_silence_what_fails_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The port, the disk, a bad step: each is said once, and all of them are counted."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = rltriage.watch("r", listen=taken.getsockname()[1], directory=tmp_path / "file", quiet=True)
    (tmp_path / "file").write_text("")
    for _ in range(3):
        run.log("half", {"reward": 0.5, "entropy": 1.0})  # type: ignore[call-overload]
    run.close()
    for sentence in ("cannot scrape this run", "not written to disk", "a step is no whole number"):
        assert caplog.text.count(sentence) == 1, sentence
    assert run.errors == 1 + 1 + 3


def test_a_mistake_in_the_rules_is_said_when_it_is_another_or_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same text is not repeated at every save; a new one is said, the same one after rules that were right too."""
    file, saves = tmp_path / "rules.yaml", 0

    def save(limit: str) -> None:
        nonlocal saves
        saves += 1
        file.write_text(RULES.replace("LIMIT", limit))
        os.utime(file, (saves, saves))
        run._read_rules()

    file.write_text(RULES.replace("LIMIT", "above: 0.5"))
    with rltriage.watch("r", rules=file, directory=None, quiet=True) as run:
        save("abvoe: 1")
        save("abvoe: 1")
        assert caplog.text.count("the rules were not reloaded") == 1 and run.errors == 2
        save("blow: 1")
        assert caplog.text.count("the rules were not reloaded") == 2 and "blow" in caplog.text
        save("above: 0.6")
        save("blow: 1")
        assert caplog.text.count("the rules were not reloaded") == 3 and run.errors == 4
        run.log(None, {"reward": 0.5}, time=1)
        run.log("half", {"reward": 0.5})  # type: ignore[call-overload]
    assert "a step is no whole number" in caplog.text


def test_rules_are_read_again_wherever_the_script_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A script that changes its folder has not lost its rule files."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rules.yaml").write_text(RULES.replace("LIMIT", "above: 0.5"))
    monkeypatch.chdir(tmp_path)
    with rltriage.watch("r", rules=Path("rules.yaml"), directory=None, quiet=True) as run:
        monkeypatch.chdir(tmp_path / "elsewhere")
        (tmp_path / "rules.yaml").write_text(RULES.replace("LIMIT", "above: 0.75"))
        run._read_rules()
        assert run.errors == 0 and not caplog.records
        assert [alert.state for alert in run.log(1, {"reward": 0.6}).alerts] == []


def test_each_sink_that_fails_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Gauges that fail do not hide that the journal fails; rules go on."""

    class Failing:
        def publish(self, *_: Any) -> None:
            raise ValueError("x")

        def end(self, *_: Any) -> None:
            raise ValueError("x")

    class Other(Failing):
        pass

    watched = WatchedRun(Run("r"), load_rules("triage"), (Failing(), Other()))
    for step in range(3):
        assert watched.emit(Row(step, {"reward": 0.5})).step == step
    assert caplog.text.count("the sink Failing failed") == caplog.text.count("the sink Other failed") == 1
    assert watched.failures == 6


def test_what_is_said_is_bounded() -> None:
    """Sentences that are new every time end."""
    said = Once()
    assert sum(said.first(f"mistake {number}") for number in range(10 * MOST_SAID)) == MOST_SAID
    said.forget("mistake 0")
    assert said.first("mistake 0") and not said.first("mistake 0")
