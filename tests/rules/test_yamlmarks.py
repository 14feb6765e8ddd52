"""YAML as packs use it: version 1.2 scalars, a position for everything, bounds, and one located problem for each trap."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltriage.rules.model import Problem
from rltriage.rules.yamlmarks import MAX_BYTES, Node, parse, read, resolve_scalar


def good(text: str) -> Node:
    node, problems = parse(text, "a.yaml")
    assert node is not None and not problems
    return node


def bad(text: str | bytes) -> Problem:
    node, problems = parse(text, "a.yaml")
    assert node is None and len(problems) == 1
    return problems[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("+12", 12),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("12:30:00", "12:30:00"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("on", "on"),
        ("no", "no"),
        ("Yes", "Yes"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("nan", "nan"),
        ("1.", 1.0),
        (".", "."),
        ("e5", "e5"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    """A plain scalar is what YAML 1.2's core schema says, of the same type."""
    assert resolve_scalar(text) == value
    assert type(resolve_scalar(text)) is type(value)


def test_nan_is_a_number_and_quotes_make_text() -> None:
    """`.nan` is NaN; a quoted number stays text."""
    assert math.isnan(good("a: .nan").plain()["a"])
    assert good("a: '1e-4'").plain() == {"a": "1e-4"}


def test_keys_are_text() -> None:
    """Keys that look like numbers or booleans stay what was typed."""
    assert good("{1: a, on: b, 1.0: c, null: d}").plain() == {"1": "a", "on": "b", "1.0": "c", "null": "d"}


def test_every_key_and_value_has_its_place() -> None:
    """Marks count from 1 and point at the key and at the value."""
    node = good("a:\n  - {b: 1}\n  - ü: x\n")
    assert str(node.at("a", 0, "b").mark) == "a.yaml:2:9"
    assert str(node.at("a", 0).key("b").mark) == "a.yaml:2:6"
    assert str(node.at("a", 1, "ü").mark) == "a.yaml:3:8"
    assert node.at("a", 5, "c") is node.at("a")


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("a: 1\nb: 2\na: 3", "3:1", "used twice"),
        ("a: !!python/object/apply:os.system [ls]", "1:4", "tag"),
        ("a: !!str 5", "1:4", "tag"),
        ("a: 1\n---\nb: 2", "2:1", "second YAML document"),
        ("a: *nowhere", "1:4", "no anchor"),
        ("a: &x [*x]", "1:8", "no anchor"),
        ("a: {<<: 1}", "1:5", "<<"),
        ("? [a, b]\n: 1", "1:3", "a key must be one word"),
        ("a:\n\tb: 1", "2:1", "tab"),
        ("a: [1, 2", "1:4", "missing in a list"),
        ("a: b: c", "1:5", "second `:`"),
        ("a: 'x", "1:6", "ends inside a quoted text"),
        ("a: @x", "1:4", "cannot start with '@'"),
        ("a: " + "9" * 400, "1:4", "too long"),
        ("", "1:1", "empty"),
        ("# only a comment\n", "1:1", "empty"),
        (b"a: \xff", "1:4", "not UTF-8"),
        (b"\x7fELF\x00\xff\x00", "1:6", "not UTF-8"),
        ("a: x\x00y", "1:5", "control character"),
        ("a: \x1b[31m", "1:4", "control character"),
        ("\ud800", "1:1", "not UTF-8"),
        ("[" * 5000, "1:1001", "nested more than 32"),
        ("{a: " * 40 + "}" * 40, "1:129", "nested more than 32"),
        ("a: " + "x" * MAX_BYTES, "1:1", "larger than 1024 KiB"),
    ],
)
def test_each_trap_is_one_located_problem(text: str | bytes, place: str, says: str) -> None:
    """What YAML would swallow, execute or choke on is refused with its place and a reason."""
    problem = bad(text)
    assert says in problem.message
    assert f"{problem.mark.line}:{problem.mark.column}" == place


def test_several_slips_of_one_file_are_all_found() -> None:
    """Duplicate keys and tags do not hide each other."""
    _, problems = parse("a: 1\na: 2\nb: !x 3\nc: {d: 1, d: 2}", "a.yaml")
    assert [problem.mark.line for problem in problems] == [2, 3, 4]


def test_a_billion_laughs_are_cut_short() -> None:
    """Aliases that expand without end are refused without expanding them."""
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    laughs += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 20))
    started = time.perf_counter()
    assert "expands to more than" in bad(laughs).message
    assert time.perf_counter() - started < 2


def test_aliases_share_their_value() -> None:
    """An anchor may be used again, with the place where it was written."""
    node = good("x-common: &c {last: 5}\na: *c\n")
    assert node.plain()["a"] == {"last": 5}
    assert node.at("a", "last").mark.line == 1


def test_a_byte_order_mark_is_ignored() -> None:
    """Files saved by Windows editors load."""
    node, problems = parse(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "a.yaml")
    assert node is not None and node.plain() == {"a": 1, "b": 2} and not problems


def test_the_caret_stands_below_the_mistake() -> None:
    """A printed problem shows its line with a caret and a hint."""
    assert str(bad("ab: 1\nab: 2")).splitlines()[1:3] == ["    ab: 2", "    ^"]


def test_a_missing_file_or_a_folder_is_one_problem(tmp_path: Path) -> None:
    """Reading never raises."""
    assert "no such file" in read(tmp_path / "x.yaml")[1][0].message
    assert "not a file" in read(tmp_path)[1][0].message


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60), st.text("{}[]:-, \n\t&*!|>'\"#%@`?a1", max_size=60)))
def test_no_input_raises(data: bytes | str) -> None:
    """Any bytes or text give a tree or located problems."""
    node, problems = parse(data, "a.yaml")
    assert (node is None) == bool(problems)
    assert all(problem.mark.line >= 1 and problem.mark.column >= 1 and str(problem) for problem in problems)
