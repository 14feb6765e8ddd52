"""The recorded runs, the tables made of them, and the page: none of them stale, none below the bars."""

from __future__ import annotations

import json
import lzma
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from pathlib import Path

import detection
import pytest

from rltriage.detection import Line, Table, Verdict, as_data, line, noisy_or, shortfalls, without_checks
from rltriage.engine.reference import SHIPPED, read_reference, to_json, write_reference
from rltriage.engine.report import Alert, Suspect
from rltriage.engine.rows import Row
from rltriage.recorded import (
    HEALTHY,
    REFERENCE,
    STEPS,
    healthy_reference,
    plan,
    read_manifest,
    read_runs,
    rounded,
    write_runs,
)
from rltriage.rules.errors import SourceError

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "tests" / "data" / "runs"


@pytest.fixture(scope="module")
def tables():
    """The tables of the recorded runs, judged once: with invariants, without, without config facts either."""
    return detection.tables()


def test_the_recorded_runs_are_those_of_the_plan():
    """Ten faults and two controls with five seeds, a hundred healthy runs, twenty for the reference, 24 rows each."""
    runs = read_runs(RUNS)
    assert Counter(run.group.name for run in runs) == {group.name: len(group.seeds) for group in plan()}
    assert {len(run.rows) for run in runs} == {STEPS}
    assert all(any(name.startswith("check_") for name in run.rows[0].metrics) for run in runs)


def test_the_recorded_runs_are_small():
    """They travel with every clone."""
    assert sum(file.stat().st_size for file in RUNS.iterdir()) < 1_500_000


def test_the_shipped_reference_is_built_from_its_recorded_runs(tmp_path):
    """Neither edited nor forgotten."""
    write_reference(tmp_path / "again.json", healthy_reference(read_runs(RUNS, (REFERENCE,))))
    assert to_json(read_reference(tmp_path / "again.json")) == to_json(read_reference(SHIPPED / "tinyagent.json"))


def test_detection_reaches_the_bars_of_the_design(tables):
    """DESIGN section 10: every fault first with invariants, nine of ten without, no healthy run alarmed."""
    assert shortfalls(*tables[:2]) == []


def test_the_page_and_the_picture_are_not_stale(tables):
    """`make bench` writes them anew."""
    docs = ROOT / "docs"
    assert (docs / "detection.md").read_text() == detection.page(*tables, read_manifest(RUNS)), "make bench"
    assert (docs / "images" / "detection.svg").read_text() == detection.draw(*tables[:2]), "make bench"


def test_the_picture_is_well_formed_and_has_a_dot_for_every_faulty_run_that_was_named(tables):
    """A filled dot per named run and mode."""
    root = ElementTree.fromstring(detection.draw(*tables[:2]))
    dots = [dot for dot in root.iter("{http://www.w3.org/2000/svg}circle") if len(dot)]
    assert len(dots) == sum(verdict.named_first for table in tables[:2] for verdict in table.verdicts)


def test_the_ranking_names_at_least_as_many_as_a_plain_noisy_or(tables):
    """The plainer one is kept as a measure; without config facts it would go by notes, which name nobody here."""
    for table in tables[:2]:
        faulty = [entry for entry in table.lines if entry.fault]
        assert sum(entry.named_first for entry in faulty) >= sum(entry.noisy_or for entry in faulty)


def test_without_config_facts_healthy_runs_stay_silent(tables):
    """A rule that cannot know asks, and does not alarm."""
    assert tables[2].healthy == (0, 110)


def verdict(fault="mask_shift", suspects=("mask_shift",), row=0, loud=("rule at row 0",), run="r"):
    """A verdict in which the first suspect was named at `row`."""
    named = row if suspects and suspects[0] == fault else None
    return Verdict(run, fault or HEALTHY, fault, row, suspects[0] if suspects else None, suspects, named, None, loud)


def table(checks, *groups):
    """A table of verdicts, a group each."""
    return Table(checks, tuple(line(group) for group in groups), tuple(v for group in groups for v in group))


def test_a_line_counts_runs_and_takes_medians_over_those_in_which_it_happened():
    """A run in which nobody was named has no row to count."""
    found = line([verdict(row=2), verdict(row=4), verdict(suspects=("sign_flip", "mask_shift"), row=9)])
    assert found == Line("mask_shift", "mask_shift", 3, 2, 2, 3, 0, 4, 3, 4, 3)


def test_every_bar_is_said_when_it_is_missed():
    """Late, wrong, and alarmed without a fault."""
    late = table(True, [verdict(row=1)])
    wrong = table(False, [verdict(suspects=("sign_flip",))], [verdict("sign_flip", ("mask_shift",))])
    healthy = table(True, [verdict(None, ("mask_shift",))])
    assert shortfalls(late, table(False)) == ["with invariants mask_shift is named at row 1, not 0"]
    told = shortfalls(table(True), wrong)
    assert any("0 of 2 faults are named first in every run" in sentence for sentence in told)
    assert any("mask_shift is named at row None, not by 3" in sentence for sentence in told)
    assert shortfalls(healthy, table(False)) == ["with invariants 1 of 1 healthy runs raise an alert at warning or above"]


def test_plain_data_is_strict_json():
    """For `bench --json`."""
    data = as_data(table(True, [verdict()]), table(False, [verdict()]))
    assert json.loads(json.dumps(data))["with_invariants"]["lines"][0]["named_first"] == 1


def test_without_checks_a_row_is_what_a_foreign_trainer_logs():
    """Only `check_*` go."""
    assert without_checks(Row(0, {"x": 1.0, "check_a": 1.0, "check_a_value": 2.0})).metrics == {"x": 1.0}


def test_noisy_or_multiplies_doubts():
    """Two weak hints beat one of middling strength."""

    def alert(**suspects):
        each = tuple(Suspect(name, name, weight) for name, weight in suspects.items())
        return Alert("i", "r", "rule", "firing", "warning", "outcome", 0, 0, 0, "", {}, each, "")

    assert noisy_or([alert(a=0.4, b=0.5), alert(a=0.4)]) == "a"
    assert noisy_or([]) is None


def test_stored_runs_are_read_as_they_were_rounded(tmp_path):
    """Six significant digits, order and names kept."""
    runs = read_runs(RUNS, ("mask_shift",))[:2]
    seeds = [run.seed for run in runs]
    group = replace(runs[0].group, seeds=seeds)
    write_runs(tmp_path, [replace(run, group=group) for run in runs], sources="s", command="c")
    again = read_runs(tmp_path)
    assert [run.rows for run in again] == [run.rows for run in runs]
    assert read_manifest(tmp_path)["sources"] == "s"
    assert rounded(Row(0, {"x": 1.23456789})).metrics == {"x": 1.23457}


def test_a_folder_without_runs_is_one_clear_error(tmp_path):
    """It says how to make them."""
    with pytest.raises(SourceError, match="make runs"):
        read_runs(tmp_path)


def test_bench_prints_both_tables_and_writes_json_and_svg(rltriage, tmp_path):
    """On two groups, with exit code 0; an empty pack is below every bar and exits with 1."""
    runs = [run for run in read_runs(RUNS, ("mask_shift", "sign_flip"))]
    write_runs(tmp_path / "runs", runs, sources="s", command="c")
    ran = rltriage("bench", "--runs", tmp_path / "runs", "--json", tmp_path / "b.json", "--svg", tmp_path / "b.svg")
    assert ran.code == 0 and "1 mask_shift" in ran.out and "without invariants" in ran.out
    assert json.loads((tmp_path / "b.json").read_text())["shortfalls"] == []
    ElementTree.parse(tmp_path / "b.svg")
    quiet = tmp_path / "quiet.yaml"
    quiet.write_text(
        "version: 1\npack: quiet\nrules:\n  - id: never\n    summary: never\n    group: outcome\n    severity: info\n"
        "    when: {threshold: {metric: reward, above: 1000}}\n    suspects: {}\n    first_test: no_test_needed\n"
    )
    ran = rltriage("bench", "--runs", tmp_path / "runs", "--rules", quiet)
    assert ran.code == 1 and "below the bar: with invariants mask_shift is named first in 0 of" in ran.out


@pytest.mark.parametrize(
    ("manifest", "rows", "says"),
    [
        ("[" * 100_000, "", "runs.json: not readable as JSON"),
        ("{", "", "runs.json: not readable as JSON"),
        ("[]", "", "must hold an object with `groups`"),
        ('{"groups": {"g": {"fault": null, "seeds": [0], "overrides": {}}}}', None, "g.jsonl.xz: not the runs"),
        ('{"groups": {"g": {"fault": null, "seeds": [0], "overrides": {}}}}', "[" * 100_000, "RecursionError"),
        ('{"groups": {"g": {"fault": null, "seeds": [0], "overrides": {}}}}', '{"step": 1}', "KeyError: 'run'"),
        ('{"groups": {"g": {"fault": "gremlins", "seeds": [0], "overrides": {}}}}', "", "gremlins"),
        ('{"groups": {"g": {"fault": null, "seeds": [0], "overrides": {"lrr": 1}}}}', "", "lrr"),
        ('{"groups": {"g": 5}}', "", "TypeError"),
    ],
)
def test_recorded_runs_that_are_none_are_one_clear_error(rltriage, tmp_path, manifest, rows, says):
    """Deep nesting, half a file, rows of something else, settings that the trainer does not have: exit 2, no traceback."""
    (tmp_path / "runs.json").write_text(manifest)
    if rows is not None:
        (tmp_path / "g.jsonl.xz").write_bytes(lzma.compress(rows.encode()))
    ran = rltriage("bench", "--runs", tmp_path)
    assert ran.code == 2 and says in ran.err and "Traceback" not in ran.err and len(ran.err.splitlines()) <= 2


def test_bench_without_recorded_runs_says_how_to_get_them(rltriage, tmp_path):
    """A wheel has none."""
    ran = rltriage("bench", "--runs", tmp_path)
    assert ran.code == 2 and "make runs" in ran.err


def test_bench_judges_the_faults_that_are_named_alone(rltriage, tmp_path):
    """One fault of two; a slip gets the nearest name."""
    write_runs(tmp_path, read_runs(RUNS, ("mask_shift", "sign_flip")), sources="s", command="c")
    ran = rltriage("bench", "--runs", tmp_path, "--fault", "sign_flip")
    assert ran.code == 0 and "5 sign_flip" in ran.out and "mask_shift" not in ran.out
    ran = rltriage("bench", "--runs", tmp_path, "--fault", "sign_flp")
    assert ran.code == 2 and "did you mean sign_flip?" in ran.err
