"""The pages with measured numbers: not stale, and their arithmetic."""

from pathlib import Path

import pytest

from rltriage.recorded import read_manifest
from rltriage.trainer import chapter_gaps
from rltriage.trainer.chapter import ends, parse_seeds, quantiles, reruns, sources_hash
from rltriage.trainer.chapter_page import direction
from rltriage.trainer.faults import FURTHER_FAULTS

DOCS = Path(__file__).parents[2] / "docs"
EXTRA = Path(__file__).parents[1] / "data" / "extra_runs"


@pytest.mark.parametrize("page", ["chapter.md", "exercises.md"])
def test_the_page_was_made_from_these_sources(page):
    """`make chapter-page` and the exercises' runs have to be made again after a change of the trainer."""
    assert f"`{sources_hash()}`" in (DOCS / page).read_text()


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


def test_the_runs_of_the_extra_faults_are_of_these_sources():
    """`make extra` has to be run again after a change of the trainer; every fault beyond the chapter's has two seeds."""
    manifest = read_manifest(EXTRA)
    assert manifest["sources"] == sources_hash()
    assert set(manifest["groups"]) == {fault.id for fault in FURTHER_FAULTS}
    assert all(len(group["seeds"]) >= 2 for group in manifest["groups"].values())


def test_why_numbers_differ_was_measured_on_these_sources():
    """`make gaps` and `make chapter-page` have to be run again after a change of the trainer."""
    measured = chapter_gaps.read(DOCS)
    assert measured is not None and measured["sources"] == sources_hash()
    assert chapter_gaps.section(measured) in (DOCS / "chapter.md").read_text()
