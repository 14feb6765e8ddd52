"""Recorded runs and pages with measured numbers: not stale, and their arithmetic."""

from pathlib import Path

import pytest

from rltriage.recorded import read_manifest
from rltriage.trainer import chapter_gaps
from rltriage.trainer.chapter import ends, parse_seeds, quantiles, reruns, sources_hash
from rltriage.trainer.chapter_page import direction
from rltriage.trainer.faults import FURTHER_FAULTS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXTRA = ROOT / "tests" / "data" / "extra_runs"
RECORDED = {
    "tests/data/runs/runs.json": "make runs",
    "tests/data/extra_runs/runs.json": "make extra",
    "docs/chapter.md": "make chapter-page",
    "docs/chapter-gaps.json": "make gaps",
    "docs/exercises.md": "python benchmarks/trainer_exercises.py",
}
"""What the trainer's runs were written into, and the command that does it again."""


@pytest.mark.parametrize("file", RECORDED)
def test_what_is_recorded_was_made_by_this_trainer(file):
    """Each carries the hash of the sources that made it; after a change of the trainer it is made again."""
    assert sources_hash() in (ROOT / file).read_text(), f"{file} is stale: {RECORDED[file]}"


def test_a_pair_is_the_mean_of_four_rows_at_each_end():
    """Rows without the metric do not count."""
    rows = [{"x": float(i)} for i in range(10)] + [{}]
    assert ends(rows, "x") == (1.5, 8.0)


def test_the_range_of_a_metric():
    """Step 0, last, minimum, median, maximum."""
    assert quantiles([{"x": 3.0}, {"x": 1.0}, {}, {"x": 2.0}], "x") == (3.0, 2.0, 1.0, 2.0, 3.0)


@pytest.mark.parametrize(("pair", "expected"), [((1, 1.2), 1), ((1.2, 1), -1), ((1, 1.05), 0), ((0, 0), 0), ((0, 1), 1)])
def test_a_change_within_a_tenth_is_level(pair, expected):
    """Zero to zero included."""
    assert direction(*pair) == expected


@pytest.mark.parametrize(("text", "seeds"), [("0-2", [0, 1, 2]), ("4", [4]), ("1,3", [1, 3])])
def test_seeds_are_a_range_or_a_list(text, seeds):
    """Both ends belong to the range."""
    assert parse_seeds(text) == seeds


def test_reruns_part_as_in_the_chapter():
    """Same seed: identical. Tiny noise: the same samples. Another seed: other samples (section 18.8)."""
    found = reruns(steps=2)
    assert found.identical and found.rewards_equal_noise == 2 and 0 < found.grad_norm_noise < 1e-3
    assert found.grad_norm_seed > 10 * found.grad_norm_noise


def test_every_fault_beyond_the_chapter_s_is_recorded():
    """With two seeds or more."""
    groups = read_manifest(EXTRA)["groups"]
    assert set(groups) == {fault.id for fault in FURTHER_FAULTS}
    assert all(len(group["seeds"]) >= 2 for group in groups.values())


def test_the_page_says_why_numbers_differ_as_it_was_measured():
    """After `make gaps` comes `make chapter-page`."""
    measured = chapter_gaps.read(DOCS)
    assert measured is not None
    assert chapter_gaps.section(measured) in (DOCS / "chapter.md").read_text()
