"""The shipped catalogues are complete and consistent."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from rltriage.engine.triage import CHECKS
from rltriage.rules import catalogue
from rltriage.rules.errors import RulePackError
from rltriage.rules.loader import load_rules
from rltriage.rules.model import Fault, FirstTest
from rltriage.rules.yamlmarks import parse

NUMBERED = [
    "mask_shift",
    "stale_old_logp",
    "entropy_collapse",
    "length_bias",
    "sign_flip",
    "reward_hacking",
    "lr_too_high",
    "accum_norm",
    "temperature_mismatch",
    "ref_is_policy",
]
REPORTED = (
    "truncation_cap zero_advantage_groups dead_gradient eos_mismatch padding_counted",
    "weights_not_synced staleness engine_mismatch sampler_truncation micro_batch_numerics",
    "dropout_active wrong_reference kl_term_inert env_tokens_unmasked batch_misalignment",
    "ratio_overflow advantage_blowup group_statistics group_id_wrong entropy_explosion",
    "resume_state verifier_failure train_eval_mismatch lr_schedule nonfinite",
    "critic_untrained kl_blowup correction_masks_most metric_wrong stalled_run",
    "retokenization sample_reuse",
)
CHAPTER_MATRIX = {
    "mask_shift": {1, 2, 5},
    "stale_old_logp": {7},
    "sign_flip": {8},
    "accum_norm": {6},
    "temperature_mismatch": {2, 3},
    "ref_is_policy": {9},
    "entropy_collapse": {10},
}


@pytest.fixture(scope="module")
def faults() -> dict[str, Fault]:
    problems: list[object] = []
    found = catalogue.read_entries(catalogue.FOLDER / "faults.yaml", "faults", problems)
    assert not problems
    return found


@pytest.fixture(scope="module")
def first_tests() -> dict[str, FirstTest]:
    problems: list[object] = []
    found = catalogue.read_entries(catalogue.FOLDER / "first_tests.yaml", "first_tests", problems)
    assert not problems
    return found


def test_every_public_fault_is_there(faults: dict[str, Fault]) -> None:
    """The catalogue holds the ten with their numbers and every class of the public reports, and no other."""
    assert {fault.id: fault.number for fault in faults.values() if fault.number} == {
        name: number for number, name in enumerate(NUMBERED, 1)
    }
    assert set(faults) == {*NUMBERED, *" ".join(REPORTED).split()}


def test_every_fault_is_described_in_full(faults: dict[str, Fault], first_tests: dict[str, FirstTest]) -> None:
    """Each entry says what it looks like, what resembles it, what to do, and which test decides."""
    for fault in faults.values():
        assert all((fault.title, fault.summary, fault.signature, fault.fix, fault.look_alikes, fault.sources)), fault.id
        assert fault.first_test in first_tests, fault.id
        assert -1 < fault.prior < 1


def test_look_alikes_that_name_a_fault_name_a_real_one(faults: dict[str, Fault]) -> None:
    """An id before the colon of a look-alike is in the catalogue."""
    for fault in faults.values():
        for word in (like.split(":")[0] for like in fault.look_alikes):
            if re.fullmatch("[a-z]+(_[a-z]+)+", word):
                assert word in faults, f"{fault.id}: {word}"


def test_every_first_test_decides_between_real_faults(faults: dict[str, Fault], first_tests: dict[str, FirstTest]) -> None:
    """Outcomes lead to faults of the catalogue, and each fault is decided by some test."""
    decided = {fault for test in first_tests.values() for fault in test.decides.values()}
    assert decided <= set(faults)
    assert set(faults) - decided == set()
    assert all(test.how.count(".") + test.how.count("?") >= 2 for test in first_tests.values())


def test_each_invariant_has_its_own_first_test(first_tests: dict[str, FirstTest]) -> None:
    """Checks 1 to 17 can each be run as a first test, with the command that runs it."""
    with_check = {test.check: test for test in reversed(first_tests.values()) if test.check}
    assert sorted(with_check) == list(range(1, 18))
    assert all(f"--only {test.check}" in test.command for test in first_tests.values() if test.check)


@pytest.mark.skipif(importlib.util.find_spec("rltriage.trainer.invariants") is None, reason="the invariants are not there")
def test_failing_checks_are_the_chapters_matrix(faults: dict[str, Fault]) -> None:
    """The code faults fail exactly the checks of the chapter's table; other faults name invariants that exist."""
    checks = importlib.import_module("rltriage.trainer.checks")
    number = {check.id: check.number for check in checks.ALL_CHECKS}
    for name, expected in CHAPTER_MATRIX.items():
        assert {number[check] for check in faults[name].failing_checks} == expected
    assert {check for fault in faults.values() for check in fault.failing_checks | fault.may_fail} == set(number)
    assert list(number) == list(CHECKS)


def test_a_broken_catalogue_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or wrong file is reported like a pack's mistake."""
    (tmp_path / "faults.yaml").write_text("version: 1\nfaults: {a: {titel: x, summary: y}}")
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path)
    catalogue.load_catalogue.cache_clear()
    with pytest.raises(RulePackError) as caught:
        catalogue.load_catalogue()
    catalogue.load_catalogue.cache_clear()
    assert [problem.code for problem in caught.value.problems] == ["unknown", "file", "file"]


def test_an_entry_survives_a_round_trip(faults: dict[str, Fault]) -> None:
    """Entries written as plain data read back equal."""
    import json

    node, problems = parse(json.dumps({name: catalogue.plain_entry(fault) for name, fault in faults.items()}), "a.yaml")
    assert node is not None and not problems
    assert catalogue.faults_of(node) == faults


def test_every_metric_of_the_shipped_pack_is_described() -> None:
    """Pages and dashboards have no empty cells: each metric says what it is, what it flags, its unit and its gauge."""
    for name, info in load_rules("triage").catalogue.metrics.items():
        assert info.help and info.flags and info.unit and info.prometheus and info.group, name
