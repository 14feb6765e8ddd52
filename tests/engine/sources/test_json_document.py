"""JSON documents: trainer_state.json and its relatives, whole and growing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rltriage.engine.sources import open_source
from rltriage.engine.sources.json_document import JsonDocument, rows_of
from rltriage.rules.errors import SourceError

ROWS = [{"step": n, "loss": 0.5, "reward_std": 0.1, "completion_length": 10.0 + n} for n in range(4)]


def state(path: Path, rows: list[dict[str, Any]], indent: int | None = 1) -> Path:
    path.write_text(json.dumps({"global_step": 3, "max_steps": 9, "log_history": rows, "state": {}}, indent=indent))
    return path


@pytest.mark.parametrize("indent", [None, 1])
def test_trainer_state_is_known_by_its_content(tmp_path: Path, indent: int | None) -> None:
    """One line or pretty printed, whatever its name: the rows of log_history, and the top-level numbers as config."""
    source = open_source(str(state(tmp_path / "anything.txt", ROWS, indent)))
    assert source.kind == "json"
    assert [record.values for record in source.records()] == ROWS
    assert source.config["max_steps"] == 9


@pytest.mark.parametrize(
    ("document", "rows"),
    [
        ([{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 2}]),
        ({"meta": [1], "history": [{"a": 1}]}, [{"a": 1}]),
        ({"step": [1, 2], "loss": [0.5, None]}, [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]),
        ({"a": 1}, None),
        ({"a": [1, 2], "b": [1]}, None),
        ([1, 2], None),
        ("text", None),
    ],
)
def test_where_rows_may_be(document: Any, rows: Any) -> None:
    """A list, a list inside an object, columns of one length; anything else holds no rows."""
    assert rows_of(document) == rows


def test_a_growing_document_gives_what_is_new(tmp_path: Path) -> None:
    """Read again when it changed; rows come once; half a document gives nothing and loses nothing."""
    path = state(tmp_path / "s.json", ROWS[:2])
    source = JsonDocument(str(path))
    assert len(source.poll()) == 2 and source.poll() == []
    path.write_text(path.read_text()[:-20])
    assert source.poll() == []
    state(path, ROWS)
    assert [record.values["step"] for record in source.poll()] == [2, 3]
    state(path, [{"step": 50, "loss": 1.0}, *ROWS, *ROWS])
    assert len(source.poll()) == 9
    path.unlink()
    assert source.poll() == []


def test_entries_that_are_no_objects_are_counted(tmp_path: Path) -> None:
    """A list with a stray number gives the rest."""
    path = tmp_path / "a.json"
    path.write_text('[{"step": 1, "reward": 0.5},\n 3,\n {"step": 2, "reward": 1}]')
    source = open_source(str(path))
    assert len(list(source.records())) == 2 and source.stats.bad == 1


@pytest.mark.parametrize(("text", "message"), [("[1, 2]", "no"), ("[{]", "1:3"), ("[" * 100_000, "nested")])
def test_a_document_without_rows_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    """Not JSON, nested without end, or no rows in it: SourceError with the place."""
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=message):
        list(JsonDocument(str(path)).records())


def test_a_document_that_stays_unreadable_is_said_once(tmp_path: Path) -> None:
    """Half a document may be one that is being written; one that nobody writes to is refused, and read no more."""
    path = state(tmp_path / "log.json", [{"step": 1, "loss": 0.5}])
    source = open_source(str(path))
    assert len(source.poll()) == 1
    path.write_text('{"log_history": [{"step"')
    assert source.poll() == [] and source.stats.bad == 0
    for _ in range(2):
        assert source.poll() == [] and source.stats.bad == 1
    assert "not JSON" in source.stats.examples[0].reason
    state(path, [{"step": n, "loss": 0.5} for n in (1, 2)])
    assert [record.values["step"] for record in source.poll()] == [2]
