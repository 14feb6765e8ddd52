"""Values that are no numbers: counted and said once a name, and never in the way of the numbers beside them."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest

import rltriage
from rltriage.nonnumbers import MOST_ITEMS, MOST_NAMES, NonNumbers, Odd, read


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("fast", "text, which no rule can read: log a number"),
        (None, "None, which no rule can read: leave the name out"),
        ([0.1, 0.2], "a list of several values, which no rule can read: log its mean"),
        (object(), "a object, which no rule can read: log a number"),
    ],
)
def test_each_name_is_counted_and_said_once(value: object, says: str, caplog: pytest.LogCaptureFixture) -> None:
    """The number beside it is judged; `errors` and `ignored` tell how much was lost."""
    with caplog.at_level(logging.WARNING), rltriage.watch("r", directory=None, quiet=True) as run:
        for step in range(7):
            run.log(step, {"reward": 0.1, "odd": value, "part": {"odd": value}})
    assert run.ignored == {"odd": 7, "part/odd": 7}
    assert run.errors == 14
    assert caplog.text.count(f"odd is {says}") == 2


def test_numbers_in_any_clothes_are_none_of_them() -> None:
    """Numeric text, booleans, numpy and torch scalars, NaN: all are numbers."""
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    row = {"a": "0.5", "b": True, "c": numpy.float32(1), "d": torch.tensor(0.5), "e": float("nan"), "f": "62%"}
    found, odd = read(row)
    assert found | {"e": 0} == row | {"e": 0} and not odd
    found, odd = read({"a": numpy.zeros(3), "b": torch.zeros(3)})
    assert found == {} and [each.name for each in odd] == ["a", "b"]


def test_nothing_of_the_loops_own_is_kept() -> None:
    """Lists change and objects are freed while a row waits for its profile: it has what was there, and holds nothing."""

    class Sample:
        """An object whose memory the loop wants back."""

    sample = Sample()
    freed, mine = weakref.ref(sample), {"lengths": [12, sample, 9], "pair": ("a", [sample]), "part": {"of": [sample]}}
    found = read(mine)[0]
    mine["lengths"].append(31)  # type: ignore[union-attr]
    del mine, sample
    gc.collect()
    assert found == {"lengths": [12, 9], "pair": ["a"], "part": {"of": []}} and freed() is None
    found, odd = read({"lengths": list(range(100_000))})
    assert found == {"lengths": list(range(MOST_ITEMS))} and len(odd) == 1


def test_names_without_end_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Of many names the first ones are said, all are counted."""
    looked = NonNumbers()
    for number in range(5000):
        looked.note("r", [Odd(f"note-{number}", "x")])
    assert looked.total == 5000
    assert len(looked.counts) == MOST_NAMES + 1
    assert len(caplog.records) == MOST_NAMES
