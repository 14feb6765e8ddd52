"""Healthy runs stay silent and faults stay named in other shapes: a sample of what docs/detection.md publishes."""

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EACH = 4
"""How many variations each subject goes through; subjects take turns, so that every variation is tried on several."""


@cache
def variations():
    """benchmarks/variations.py, which is no part of the package, and the rules."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("benchmarks_variations", ROOT / "benchmarks" / "variations.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return module, module.Bench()


def sample(subjects, shapes):
    """Subjects with their share of the variations."""
    return [
        (subject, shapes[(EACH * place + turn) % len(shapes)])
        for place, subject in enumerate(subjects)
        for turn in range(min(EACH, len(shapes)))
    ]


def test_healthy_runs_in_other_shapes_raise_nothing_from_warning_up():
    """Recorded runs and look-alikes, each in four of the variations."""
    module, bench = variations()
    judged = [module.judge(subject, shape, bench) for subject, shape in sample(module.healthy(1), module.HEALTHY_SHAPES)]
    assert len({one.shape for one in judged}) == len(module.HEALTHY_SHAPES)
    assert [(one.subject.name, one.shape, one.loud) for one in judged if not one.right] == []


def test_faults_in_other_shapes_are_named():
    """Recorded faults and bug reports, with every metric that they need, each in four of the variations."""
    module, bench = variations()
    shapes = [shape for shape in module.FAULTY_SHAPES if shape is not module.metric_missing]
    judged = [module.judge(subject, shape, bench) for subject, shape in sample(module.faulty(1), shapes)]
    assert len({one.shape for one in judged}) == len(shapes) and len(judged) > 150
    assert [(one.subject.name, one.shape, sorted(one.named)) for one in judged if not one.right] == []


def test_a_variation_is_the_same_every_time():
    """Chance is that of run and variation, so that the published rates can be checked."""
    module, bench = variations()
    subject = next(iter(module.healthy(1)))
    first, second = (module.judge(subject, module.noisier, bench) for _ in range(2))
    assert (first.rows, first.loud, first.named) == (second.rows, second.loud, second.named)


@pytest.mark.parametrize("group", ["recorded healthy runs", "look-alikes", "recorded faults", "bug reports"])
def test_the_published_rates_cover_every_variation(group):
    """What docs/detection.md prints was made by the variations that there are."""
    module, _ = variations()
    published = json.loads(module.FILE.read_text())[group]
    assert list(published) == [shape.__name__ for shape in module.shapes_of(group)]
    assert all(0 <= cell["right"] <= cell["runs"] and cell["rows"] > 0 for cell in published.values())
