"""Failed invariants name the smallest set of faults that explains them."""

import pytest

from rltriage.engine.triage import CHECKS, decode, read_checks
from rltriage.rules import load_catalogue

PASS = dict.fromkeys(CHECKS, True)


def failing(*checks):
    """All checks judged, these failed."""
    return PASS | dict.fromkeys(checks, False)


def test_a_single_failed_check_names_its_fault(catalogue):
    """The sign error fails only the check of the update's direction."""
    assert decode(failing("update_follows_advantage"), catalogue.faults).sets == (("sign_flip",),)


def test_the_mask_explains_three_failures_as_one_fault(catalogue):
    """Checks 1, 2 and 5 together are one mask, not a mask and an engine."""
    found = decode(
        failing("mask_is_policy_tokens", "sampler_equals_trainer", "loss_invariant_to_padding"), catalogue.faults
    )
    assert found.sets == (("mask_shift",),)


def test_ties_are_listed(catalogue):
    """Checks 2 and 3 are a temperature or an engine: both are given."""
    found = decode(failing("sampler_equals_trainer", "ratio_one_before_step"), catalogue.faults)
    assert found.sets == (("temperature_mismatch",), ("engine_mismatch",))


def test_two_faults_are_needed_for_two_rows(catalogue):
    """A union of rows is found where no single row fits."""
    found = decode(failing("update_follows_advantage", "accumulated_equals_one_pass"), catalogue.faults)
    assert found.sets == (("sign_flip", "accum_norm"),)


def test_a_check_that_could_not_judge_is_a_wild_card(catalogue):
    """With check 5 absent the mask still fits exactly, and with check 3 absent so does the temperature."""
    results = failing("mask_is_policy_tokens", "sampler_equals_trainer")
    del results["loss_invariant_to_padding"]
    assert decode(results, catalogue.faults).sets == (("mask_shift",),)


def test_a_pattern_of_no_known_fault_gives_the_closest(catalogue):
    """Check 1 alone equals no row; the mask is the nearest, and the decoding says that it is not exact."""
    found = decode(failing("mask_is_policy_tokens"), catalogue.faults)
    assert (found.sets, found.exact) == ((("mask_shift",),), False)


def test_nothing_failed_names_nobody(catalogue):
    """All passed is no suspect."""
    assert decode(PASS, catalogue.faults).sets == ()


def test_results_are_read_from_a_row_and_nan_is_no_result():
    """1 passed, 0 failed, NaN or absent could not judge."""
    row = {"check_old_logp_frozen": 0.0, "check_mask_is_policy_tokens": 1.0, "check_ratio_one_before_step": float("nan")}
    assert read_checks(row) == {"mask_is_policy_tokens": True, "old_logp_frozen": False}


SHIPPED = load_catalogue().faults


@pytest.mark.parametrize(
    ("failed", "named"),
    [
        (("sampler_follows_update",), "weights_not_synced"),
        (("ratio_one_before_step", "old_logp_independent_of_rows"), "dropout_active"),
        (("rewards_belong_to_rows",), "batch_misalignment"),
        (("sampler_equals_trainer", "logp_invariant_to_padding"), "micro_batch_numerics"),
        (("rows_use_their_budget",), "truncation_cap"),
        (("lr_follows_schedule",), "lr_schedule"),
    ],
)
def test_the_checks_that_need_more_of_a_probe_are_decoded(failed, named):
    """12 to 17, in the patterns that the gym and TRL show (docs/probes.md), name their fault among the smallest sets."""
    found = decode(failing(*failed), SHIPPED)
    assert found.exact and named in found.faults


def test_a_mask_that_only_loses_tokens_is_told_from_one_that_adds_some():
    """Added positions carry the sampler's placeholder, which check 2 sees; with check 2 passed tokens are lost."""
    lost = decode(failing("mask_is_policy_tokens"), SHIPPED)
    assert lost.exact and lost.sets == (("eos_mismatch",),)
    added = decode(failing("mask_is_policy_tokens", "sampler_equals_trainer"), SHIPPED)
    assert added.exact and ("env_tokens_unmasked",) in added.sets


def test_a_check_that_may_fail_need_not():
    """Weights that are not synced fail check 2 in a run under way and check 14 before it: either pattern fits, alone."""
    assert decode(failing("sampler_follows_update"), SHIPPED).sets == (("weights_not_synced",),)
    assert ("weights_not_synced",) in decode(failing("sampler_equals_trainer"), SHIPPED).sets


def test_dropout_on_another_trainer_is_the_closest_single_fault():
    """Under TRL it also fails 2, 5, 6 and 13, which it may."""
    found = decode(failing(*(CHECKS[number - 1] for number in (2, 3, 5, 6, 12, 13))), SHIPPED)
    assert found.sets == (("dropout_active",),)
