"""Laws of names and labels that hold for any input."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltriage.exporters.naming import Names, label_value, metric_name, number, run_labels


@settings(deadline=None, derandomize=True)
@given(st.text())
def test_any_logged_name_becomes_a_valid_one(name):
    """Letters, digits and single underscores, bounded, never with the suffix of another type."""
    plain = metric_name(name)
    assert re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", plain) and len(plain) <= 140
    assert not plain.endswith(("_total", "_info", "_sum", "_count", "_bucket", "_created"))


@settings(deadline=None, derandomize=True)
@given(st.text(), st.text())
def test_different_label_values_stay_different(one, other):
    """Cutting and cleaning never makes two values one."""
    assert (label_value(one) == label_value(other)) == (one == other)


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(st.text(), st.text()))
def test_run_labels_are_valid_unique_and_bounded(labels):
    """Whatever a user calls his labels, the series stays valid."""
    found = run_labels("r", labels.items())
    names = [name for name, _ in found]
    assert names[0] == "run" and len(set(names)) == len(names) <= 17
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) for name in names)
    assert all(0 < len(value) <= 128 for _, value in found)


@settings(deadline=None, derandomize=True)
@given(st.floats())
def test_a_number_is_written_exactly(value):
    """Reading the sample back gives the same float."""
    assert repr(float(number(value))) == repr(value)


@pytest.mark.parametrize(
    ("metric", "family", "check"), [("check_a", "check_passed", "a"), ("check_a_value", "check_value", "a")]
)
def test_a_check_and_its_value_are_two_families(metrics, metric, family, check):
    """The suffix is not taken for part of the invariant's id."""
    found, labels = Names(metrics).find(metric)
    assert (found.name, labels) == (f"rltriage_{family}", (("check", check),))
