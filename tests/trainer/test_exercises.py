"""What docs/exercises.md says of runs that are committed is what these runs say."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from rltriage.recorded import read_runs
from rltriage.trainer.chapter import ends
from rltriage.trainer.recorder import Trigger

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "exercises.md").read_text()
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def rows():
    """`rows(group)`: the metrics of the runs of seeds 0 and 1."""
    found = [*read_runs(TESTS / "data" / "runs", ["healthy", "mask_shift", "lr_too_high", "temperature_mismatch"])]
    found += read_runs(TESTS / "data" / "extra_runs", ["nonfinite", "group_id_wrong"])
    runs = {run.name: [row for row in run.rows] for run in found}
    return lambda group: [runs[f"{group}-s{seed}"] for seed in SEEDS]


def cells(start):
    """The cells of the last table row of the page that begins so."""
    line = re.findall(rf"^\| {re.escape(start)} \|.*$", PAGE, re.MULTILINE)[-1]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def numbers(text):
    """Every number of a cell."""
    return [float(number) for number in re.findall(r"[\d.]+(?:e-?\d+)?", text)]


@pytest.mark.parametrize(("label", "group"), [("T = 1, no fault", "healthy"), ("sampler at .7", "temperature_mismatch")])
def test_exercise_1_is_what_the_recorded_runs_say(rows, label, group):
    """Means over both seeds of the first and the last four steps, and both held-out rates."""
    runs = [[row.metrics for row in run] for run in rows(group)]
    reward, reads, gap, held_out, *_ = cells(label)
    for cell, metric in ((reward, "reward"), (reads, "reads"), (gap, "logp_gap")):
        expected = [fmean(ends(run, metric)[end] for run in runs) for end in (0, 1)]
        assert numbers(cell) == pytest.approx(expected, rel=0.1, abs=1e-8)
    assert numbers(held_out) == pytest.approx([run[-1]["eval_pass"] for run in runs], abs=0.006)


def test_exercise_4_is_what_the_recorded_runs_say(rows):
    """The values of the checks, reward and held-out of the shuffled groups."""
    first, last = rows("group_id_wrong")[0][0].metrics, rows("group_id_wrong")[0][-1].metrics
    for label, check in (
        ("8 update raises log pi where A > 0", "update_follows_advantage"),
        ("11 advantages belong to their own group", "advantages_match_groups"),
    ):
        assert numbers(cells(label)[0])[0] == pytest.approx(first[f"check_{check}_value"], abs=0.006)
    metrics = [row.metrics for row in rows("group_id_wrong")[0]]
    reward = f"{ends(metrics, 'reward')[0]:.2f} -> {ends(metrics, 'reward')[1]:.2f}".replace("0.", ".")
    assert f"reward {reward} and held-out {last['eval_pass']:.2f} with seed 0".replace("0.", ".") in PAGE


@pytest.mark.parametrize("group", ["healthy", "mask_shift", "lr_too_high", "nonfinite"])
def test_exercise_6_is_what_the_trigger_says_of_the_recorded_runs(rows, group):
    """Which steps `grad_norm` alone picks; of many, the first and the newest four are kept."""
    for run, cell in zip(rows(group), cells("healthy" if group == "healthy" else f"`{group}`")[:2], strict=True):
        trigger = Trigger()
        fired = [row.step for row in run if trigger(row, None)]
        kept = fired if len(fired) <= 8 else fired[:4] + fired[-4:]
        ranges = [range(int(a), int(b or a) + 1) for a, b in re.findall(r"(\d+)(?:-(\d+))?", cell)]
        assert kept == [step for steps in ranges for step in steps]
