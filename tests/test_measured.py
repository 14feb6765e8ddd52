"""Kept results of long measurements: they stand on the page as they were taken, and speak of the sources as they are."""

from __future__ import annotations

import chaos
import pytest
import record


@pytest.mark.parametrize("name", ["chaos", "load"])
def test_the_page_shows_the_kept_result(name: str) -> None:
    """Nobody edits a figure by hand."""
    text = record.PAGE.read_text(encoding="utf-8")
    assert record.page(text, name, record.read(name)) == text


@pytest.mark.parametrize(("name", "command"), [("chaos", "make chaos"), ("load", "make load")])
def test_a_result_is_not_stale(name: str, command: str) -> None:
    """What it was measured on has not changed since."""
    assert record.read(name)["sources"] == record.sources_hash(name), f"measure again: {command}"


def test_two_sessions_of_fifty_kills_were_clean() -> None:
    """Nothing lost, repeated outside the crash window or out of order, and the kills came while it delivered."""
    rows = record.read("chaos")["rows"]
    assert len(rows) >= 2 and all(row["kills"] >= 50 for row in rows)
    for row in rows:
        assert not any(row[name] for name in ("lost", "repeated", "disordered", "not_in_alertmanager", "exit_code"))
        assert row["told_between_kills"] >= row["kills"] and row["excused"] <= row["kills"]


def test_the_load_was_carried() -> None:
    """Every row was judged, every fault told, and no healthy run reported."""
    (row,) = record.read("load")["rows"]
    assert row["rows_seen"] == row["rows_written"] and not row["untold"] and not row["other_alerts"]


def test_what_counts_as_out_of_order() -> None:
    """Others may pass a transition that stepped aside, and what waits for it; an alert's own order holds always."""
    judge = chaos._out_of_order
    a, ended, b = ("a", "firing"), ("a", "resolved"), ("b", "firing")

    def told(*keys: tuple[str, str]) -> list[tuple[float, tuple[str, str]]]:
        return [(float(at), key) for at, key in enumerate(keys)]

    order = [a, ended, b]
    assert not judge(order, told(a, ended, b), set()) and not judge(order, told(a, ended, a, b), set())
    assert judge(order, told(a, b, ended), set()) and judge(order, told(b, a, ended), set())
    assert not judge(order, told(b, a, ended), {a}) and not judge(order, told(a, b, ended), {ended})
    assert judge(order, told(ended, a, b), {a}), "the same alert"
    assert judge(order, told(b, a, ended), {b}), "what is passed has not stepped aside"
