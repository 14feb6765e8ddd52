"""Several seeds of the reference trainer at once, each watched as a run of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rltriage.engine.report import Incident, StepReport, Suspect
from rltriage.engine.rows import Row, Run
from rltriage.training import Named


def test_every_seed_has_a_line_a_journal_and_a_part_in_the_exit_code(rltriage, tmp_path: Path) -> None:
    """The fault is named from row 0 on by the invariants of each run, which replays to the same."""
    ran = rltriage(
        *("train", "--fault", "mask_shift", "--seeds", "0,3", "--steps", 1),
        *("--processes", 2, "--runs", tmp_path, "--name", "many"),
    )
    assert ran.code == 1
    for seed in (0, 3):
        (line,) = (line for line in ran.out.splitlines() if line.split()[:1] == [str(seed)])
        assert line.split()[1:4] == ["mask_shift", "(1)", "0"] and "critical" in line
        assert json.loads((tmp_path / f"many-s{seed}" / "run.json").read_text())["id"] == f"many-s{seed}"
        assert "mask_shift" in rltriage("replay", tmp_path / f"many-s{seed}").out


def test_as_json_every_seed_ends_in_an_object(rltriage, tmp_path: Path) -> None:
    """A healthy seed names nothing, and the exit code is 0."""
    ran = rltriage("train", "--seeds", "1", "--steps", 1, "--no-checks", "--json", "--runs", tmp_path, "--name", "h")
    (found,) = (json.loads(line) for line in ran.out.splitlines())
    assert ran.code == 0
    assert found == {
        **{"format": 1, "type": "seed", "run": "h-s1", "seed": 1, "fault": None, "row": None},
        "alerts": {"critical": 0, "warning": 0, "info": 0},
    }


@pytest.mark.parametrize("text", ["3-1", "a", "-2", "", "0-100000"])
def test_seeds_that_are_none_are_refused(rltriage, text: str) -> None:
    """Bad usage, said before anything starts."""
    ran = rltriage("train", f"--seeds={text}")
    assert ran.code == 2 and "--seeds" in ran.err


def test_a_seed_and_seeds_exclude_each_other(rltriage) -> None:
    """It would be open which of them counts."""
    ran = rltriage("train", "--seed", 3, "--seeds", "0-1")
    assert ran.code == 2 and "exclude each other" in ran.err


def test_the_row_is_the_one_from_which_on_the_fault_stayed_first() -> None:
    """Another first suspect in between starts anew; the same one again does not."""
    named = Named()
    for step, fault in enumerate([None, "mask_shift", "sign_flip", None, "mask_shift", "mask_shift", None]):
        suspects = (Suspect(fault, fault, 0.9),) if fault else ()
        incident = Incident("id", "r", step, step, "critical", suspects, "", "", "", ()) if fault else None
        named.publish(Run("r"), Row(step, {}), StepReport(step, (), incident))
    assert named.suspect is not None and (named.suspect.fault, named.row) == ("mask_shift", 4)


def test_the_first_test_of_an_alert_may_be_any_check(tmp_path: Path) -> None:
    """Those beyond the eleventh too, on this trainer with its fault."""
    from rltriage.cli.train import _Session
    from rltriage.rules.loader import load_rules
    from rltriage.trainer.parallel import Job
    from rltriage.training import Watching

    session = _Session(Job("batch_misalignment"), Watching(load_rules("triage"), tmp_path))
    assert session.run_check(15).startswith("15 rewards belong to their rows")
    assert session.run_check(15).endswith("1  FAIL  limit 1e-05") and session.run_check(4).endswith("ok")
