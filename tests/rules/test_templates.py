"""Summaries: what a template may hold and what it renders to."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltriage.rules.templates import fields, render

VALUES = {"kl": 0.0123, "observations": 3, "config.loss": "mean", "actor/kl": 2.0, "bad": math.nan}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("kl {kl} for {observations} rows", "kl 0.0123 for 3 rows"),
        ("{kl:.1e} {kl:8.2f}|{kl:.0%}", "1.2e-02     0.01|1%"),
        ("{{kl}} {config.loss} {actor/kl:.1f}", "{kl} mean 2.0"),
        ("{missing:.3g} {bad}", "? nan (?: missing is not logged)"),
        ("up to {config.lag} old at {kl}", "up to ? old at 0.0123 (?: lag is not known)"),
        ("{config.a} {b} {config.a}", "? ? ? (?: a is not known, b is not logged)"),
        ("{config.loss:.3g}", "mean"),
        ("broken {kl", "broken {kl"),
    ],
)
def test_render(template: str, text: str) -> None:
    """Numbers are short by default, what is missing is a question mark that is explained, and rendering never raises."""
    assert render(template, VALUES) == text


def test_nothing_reaches_into_objects() -> None:
    """A field is one name: no attribute, item or conversion gets at the object behind it."""
    assert render("{kl.__class__} {kl[0]}", VALUES) == "? ? (?: kl.__class__ is not logged, kl[0] is not logged)"
    with pytest.raises(ValueError, match="not allowed"):
        fields("{kl!r}")


@given(st.text("{}:!.[]kl 3g%", max_size=20))
def test_no_template_raises_when_rendered(template: str) -> None:
    """Whatever is written, an alert has a text."""
    assert isinstance(render(template, VALUES), str)
