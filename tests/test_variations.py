"""Healthy runs stay silent and faults stay named in other shapes: a sample of what docs/detection.md publishes."""

import json

import pytest
import variations

EACH = 4
"""How many variations each subject goes through; subjects take turns, so that every variation is tried on several."""


@pytest.fixture(scope="module")
def bench():
    """The rules."""
    return variations.Bench()


def sample(subjects, shapes):
    """Subjects with their share of the variations."""
    return [
        (subject, shapes[(EACH * place + turn) % len(shapes)])
        for place, subject in enumerate(subjects)
        for turn in range(min(EACH, len(shapes)))
    ]


def test_healthy_runs_in_other_shapes_raise_nothing_from_warning_up(bench):
    """Recorded runs and look-alikes, each in four of the variations."""
    judged = [
        variations.judge(subject, shape, bench)
        for subject, shape in sample(variations.healthy(1), variations.HEALTHY_SHAPES)
    ]
    assert len({one.shape for one in judged}) == len(variations.HEALTHY_SHAPES)
    assert [(one.subject.name, one.shape, one.loud) for one in judged if not one.right] == []


def test_faults_in_other_shapes_are_named(bench):
    """Recorded faults and bug reports, with every metric that they need, each in four of the variations."""
    shapes = [shape for shape in variations.FAULTY_SHAPES if shape is not variations.metric_missing]
    judged = [variations.judge(subject, shape, bench) for subject, shape in sample(variations.faulty(1), shapes)]
    assert len({one.shape for one in judged}) == len(shapes) and len(judged) > 150
    assert [(one.subject.name, one.shape, sorted(one.named)) for one in judged if not one.right] == []


def test_a_variation_is_the_same_every_time(bench):
    """Chance is that of run and variation, so that the published rates can be checked."""
    subject = next(iter(variations.healthy(1)))
    first, second = (variations.judge(subject, variations.noisier, bench) for _ in range(2))
    assert (first.rows, first.loud, first.named) == (second.rows, second.loud, second.named)


@pytest.mark.parametrize("group", ["recorded healthy runs", "look-alikes", "recorded faults", "bug reports"])
def test_the_published_rates_cover_every_variation(group):
    """What docs/detection.md prints was made by the variations that there are."""
    published = json.loads(variations.FILE.read_text())["groups"][group]
    assert list(published) == [shape.__name__ for shape in variations.shapes_of(group)]
    assert all(0 <= cell["right"] <= cell["runs"] and cell["rows"] > 0 for cell in published.values())


def test_the_published_rates_speak_of_these_rules():
    """A changed pack makes them stale: python benchmarks/variations.py, then make bench."""
    assert json.loads(variations.FILE.read_text())["rules"] == variations.rules_hash()
