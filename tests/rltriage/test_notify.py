"""`rltriage notify`: one line a receiver, and an exit code that a script can use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chaos
import pytest


@pytest.fixture
def journals() -> Iterator[list[Any]]:
    """Three receivers that keep journals."""
    with chaos.Journal() as one, chaos.Journal() as two, chaos.Journal() as three:
        yield [one, two, three]


def configure(folder: Path, journals: list[Any]) -> Path:
    """A webhook and an Alertmanager with two replicas."""
    hook, first, second = (journal.url for journal in journals)
    file = folder / "rltriage.yaml"
    file.write_text(
        f"version: 1\nstate_dir: state\nreceivers:\n  - {{name: hook, webhook: '{hook}'}}\n"
        f"  - {{name: am, alertmanager: ['{first}', '{second}']}}\n"
    )
    return file


def test_each_receiver_is_told_and_says_so(rltriage: Any, tmp_path: Path, journals: list[Any]) -> None:
    """Replicas each; nothing is left in the state folder, which a service may be using."""
    ran = rltriage("notify", "--file", configure(tmp_path, journals))
    assert (ran.code, ran.out) == (0, "hook: took it\nam: took it\n")
    assert [len(journal.accepted) for journal in journals] == [1, 1, 1] and not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("which", "weather", "line"),
    [
        (0, "500", "hook: did not take it: answered 500:"),
        (0, "400", "hook: did not take it: answered 400:"),
        (0, "refuse", "hook: did not take it: 127.0.0.1: ProtocolError"),
        (2, "500", "am: took it: answered 500:"),
    ],
)
def test_one_that_fails_is_named_with_its_reason(
    rltriage: Any, tmp_path: Path, journals: list[Any], which: int, weather: str, line: str
) -> None:
    """The others are told all the same; exit 1, also for one replica of two."""
    journals[which].weather = lambda: weather
    ran = rltriage("notify", "--file", configure(tmp_path, journals))
    assert ran.code == 1 and line in [each.rstrip() for each in ran.out.splitlines()]
    assert sum(len(journal.accepted) for journal in journals) == 2


def test_a_configuration_without_receivers_is_a_mistake(rltriage: Any, tmp_path: Path) -> None:
    """Nobody would be told."""
    (tmp_path / "rltriage.yaml").write_text("version: 1\n")
    ran = rltriage("notify", "--file", tmp_path / "rltriage.yaml")
    assert ran.code == 2 and "has no receivers" in ran.err
