"""A line of JSON is read as the standard library reads it, whichever parser did it."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltriage.engine.sources.jsonl import parsed

NUMBERS = st.floats() | st.integers() | st.integers(-(10**40), 10**40)
VALUES = st.recursive(
    NUMBERS | st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner, max_size=4), max_leaves=8
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(), VALUES, max_size=6), st.booleans())
def test_a_line_reads_as_the_standard_library_reads_it(row, ascii) -> None:
    """To the last bit and with the same kinds: NaN, infinities, whole numbers beyond 64 bits, text of any kind."""
    line = json.dumps(row, ensure_ascii=ascii)
    assert repr(parsed(line)) == repr(json.loads(line))


@pytest.mark.parametrize("text", ["1e400", "-1e400", "-0", "-0.0", '"\\ud800"', '{"a": 1, "a": 2}', "1" * 400, " [1] "])
def test_what_parsers_differ_about(text) -> None:
    """Too large, half a surrogate pair, a key twice: as ever."""
    assert repr(parsed(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}x', "nul", "[" * 100_000, "'a'", "\ud800"])
def test_what_is_no_json_is_told_by_one_of_two_errors(text) -> None:
    """The caller refuses the line."""
    with pytest.raises((ValueError, RecursionError)):
        parsed(text)


def test_nan_is_read() -> None:
    """Loggers write it, though JSON knows none."""
    assert math.isnan(parsed('{"reward": NaN}')["reward"])
