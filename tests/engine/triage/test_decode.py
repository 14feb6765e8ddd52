"""Failed invariants name the smallest set of faults that explains them."""

from rltriage.engine.triage import CHECKS, decode, read_checks

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
