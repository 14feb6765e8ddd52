"""Suspects are ranked by independent evidence, excluded by config facts and decided by invariants."""

import dataclasses
import math

import pytest

from rltriage.engine.rows import Fact
from rltriage.engine.triage.decode import Decoding
from rltriage.engine.triage.rank import rank
from rltriage.engine.triage.symptoms import Symptom

SEEN = {"gap": Symptom("logp_gap", "up"), "grad": Symptom("grad_norm", "up"), "clip": Symptom("clip_frac", "up")}


def names(ranked):
    """The order of the fault ids."""
    return [entry.fault.id for entry in ranked]


def ranking(catalogue, alerts, facts=None, decoding=None, evidence=None, explained=None):
    """`rank` with what a test leaves out."""
    return rank(alerts, explained or {}, SEEN, catalogue.faults, facts or {}, decoding, evidence or {})


def test_scores_are_probabilities_that_leave_room_for_an_unknown_cause(catalogue, alert):
    """They lie in (0, 1) and add up to less than 1."""
    ranked = ranking(catalogue, [alert("gap", {"mask_shift": 0.7, "temperature_mismatch": 0.2})])
    assert names(ranked) == ["mask_shift", "temperature_mismatch"]
    assert all(0 < entry.score < 1 for entry in ranked) and sum(entry.score for entry in ranked) < 1


def test_one_cluster_counts_once(catalogue, alert):
    """Gradient norm and clip fraction move together: the second one adds nothing."""
    one = ranking(catalogue, [alert("grad", {"lr_too_high": 0.6})])
    two = ranking(catalogue, [alert("grad", {"lr_too_high": 0.6}), alert("clip", {"lr_too_high": 0.6})])
    assert one[0].total == two[0].total


def test_two_clusters_add_up(catalogue, alert):
    """Two weak suspicions of one fault from different sides beat a stronger single one."""
    alerts = [
        alert("gap", {"temperature_mismatch": 0.5, "mask_shift": 0.4}),
        alert("grad", {"mask_shift": 0.4}),
    ]
    assert names(ranking(catalogue, alerts))[0] == "mask_shift"


def test_config_facts_exclude_faults(catalogue, alert):
    """With one update per batch old log-probabilities cannot be stale, with lr 0 the rate is not too high."""
    alerts = [alert("grad", {"lr_too_high": 0.6, "stale_old_logp": 0.3, "mask_shift": 0.1})]
    facts = {"lr": Fact(0.0, "declared"), "updates_per_batch": Fact(1, "declared")}
    assert names(ranking(catalogue, alerts, facts)) == ["mask_shift"]


def test_failed_invariants_outweigh_the_dashboard(catalogue, alert):
    """What the checks decode leads, however strongly a metric speaks for another fault."""
    decoding = Decoding(frozenset({"update_follows_advantage"}), frozenset(), (("sign_flip",),))
    assert names(ranking(catalogue, [alert("gap", {"mask_shift": 0.9})], decoding=decoding)) == ["sign_flip", "mask_shift"]


def test_a_passed_check_speaks_against_its_fault(catalogue, alert):
    """After check 1 passed, a mask is less likely than what no check can see."""
    decoding = Decoding(frozenset(), frozenset({"mask_is_policy_tokens"}), ())
    alerts = [alert("grad", {"mask_shift": 0.7, "lr_too_high": 0.2})]
    assert names(ranking(catalogue, alerts, decoding=decoding)) == ["lr_too_high", "mask_shift"]


def test_measured_evidence_replaces_the_rule_s_weight(catalogue, alert):
    """log(p/q) of the bench, clipped to 4, is what counts where it exists."""
    evidence = {"grad": {"lr_too_high": (0.9, 0.0001)}}
    ranked = ranking(catalogue, [alert("grad", {"lr_too_high": 0.1, "mask_shift": 0.6})], evidence=evidence)
    assert names(ranked)[0] == "lr_too_high" and ranked[0].total == pytest.approx(4.0)


def test_an_explained_alert_supports_only_its_cause(catalogue, alert):
    """The rate named by a gradient spike does not compete once the mask explains the spike."""
    alerts = [alert("gap", {"mask_shift": 0.6}), alert("grad", {"lr_too_high": 0.9, "mask_shift": 0.1}, since=2)]
    assert names(ranking(catalogue, alerts, explained={"grad": "gap"})) == ["mask_shift"]


def test_equal_evidence_keeps_the_order_of_the_catalogue(catalogue, alert):
    """Ties never depend on the order of the rule's suspects."""
    ranked = ranking(catalogue, [alert("gap", {"engine_mismatch": 0.4, "temperature_mismatch": 0.4})])
    assert names(ranked) == ["temperature_mismatch", "engine_mismatch"]
    assert math.isclose(ranked[0].score, ranked[1].score)


def test_a_note_supports_a_suspect_and_names_none(catalogue, alert):
    """An info alert adds to a fault that a warning names; alone its suspects stay out."""
    warning, note = (
        alert("gap", {"mask_shift": 0.4}, "warning"),
        alert("grad", {"mask_shift": 0.5, "lr_too_high": 0.5}, "info"),
    )
    assert names(ranking(catalogue, [warning, note])) == ["mask_shift"]
    assert ranking(catalogue, [warning, note])[0].total > ranking(catalogue, [warning])[0].total


def test_an_open_question_supports_less_than_a_note(catalogue, alert):
    """A note whose config fact is unknown may be normal for the run."""
    warning, note = alert("gap", {"mask_shift": 0.4}, "warning"), alert("grad", {"mask_shift": 0.5}, "info")
    asked = dataclasses.replace(note, question="a fault only if ...")
    alone, known, unknown = (ranking(catalogue, [warning, *more])[0].total for more in ([], [note], [asked]))
    assert alone < unknown < known
