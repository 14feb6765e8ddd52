"""The shorthand of rule tests."""

import math

import pytest

from rltriage.engine.series import parse_series


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5x3 0.4", [0.5, 0.5, 0.5, 0.4]),
        ("0.4-0.05x3", [0.4, 0.35, 0.3]),
        ("-0.1+0.1x3", [-0.1, 0.0, 0.1]),
        ("0.5~0.02x4", [0.52, 0.48, 0.52, 0.48]),
        ("1+1~0.5x2", [1.5, 1.5]),
        ("_ 1e-4 _x2", [None, 1e-4, None, None]),
        ("0x2", [0.0, 0.0]),
        ("Inf -Inf", [math.inf, -math.inf]),
        ("1e-06-5e-07x2", [1e-6, 5e-7]),
    ],
)
def test_values(text, values):
    """Repeats, slopes, noise, gaps and infinities."""
    assert parse_series(text) == values


def test_nan():
    """NaN is logged as such."""
    assert math.isnan(parse_series("NaN")[0])


@pytest.mark.parametrize("text", ["abc", "0.5x", "x3", "0.5x0", "0.5+0.1", "1x1000000", "0.5,0.4"])
def test_what_is_no_series_is_refused(text):
    """The message quotes the token and says what to write."""
    with pytest.raises(ValueError, match="write"):
        parse_series(text)
