"""Coverage: what the logged metrics can reveal follows from the rules, and the advice follows from that."""

from __future__ import annotations

from rltriage.engine.coverage import coverage
from rltriage.engine.rows import Fact
from rltriage.rules.loader import load_rules

PACK = load_rules("triage")
CONFIG = {"updates_per_batch": 2, "kl_coef": 0.1, "loss_mode": "seq_mean_token_mean", "has_critic": False}
FACTS = {name: Fact(value, "declared") for name, value in CONFIG.items()}


def cover(metrics, facts=FACTS, **options):
    """Coverage of the shipped pack."""
    return coverage(PACK, PACK.catalogue, metrics, facts, **options)


def levels(found):
    """Fault -> level."""
    return {entry.fault.id: entry.level for entry in found.faults}


def test_every_fault_of_the_catalogue_has_a_level():
    """Nothing is left out."""
    assert set(levels(cover(()))) == set(PACK.catalogue.faults)


def test_a_fault_is_named_where_a_rule_that_suspects_it_first_can_fire():
    """The live reference shows in kl_ref alone; without it the fault is hidden and kl_ref is what to log."""
    assert levels(cover(("kl_ref",)))["ref_is_policy"] == "named"
    (entry,) = [entry for entry in cover(("reward",)).faults if entry.fault.id == "ref_is_policy"]
    assert entry.level == "hidden" and entry.missing == ("kl_ref",)


def test_a_missing_config_fact_makes_a_hint_of_a_name():
    """With clip_frac alone nobody knows whether zero is right."""
    (entry,) = [e for e in cover(("clip_frac", "ratio_max"), {}).faults if e.fault.id == "stale_old_logp"]
    assert entry.level == "hinted" and entry.facts == ("updates_per_batch",)
    assert levels(cover(("clip_frac", "ratio_max")))["stale_old_logp"] == "named"


def test_faults_that_the_config_rules_out_are_excluded():
    """No KL term, no live reference."""
    assert levels(cover(("kl_ref",), {"kl_coef": Fact(0, "declared")}))["ref_is_policy"] == "excluded"


def test_the_metric_to_add_is_the_one_after_which_most_faults_can_be_named():
    """Checked by trying every metric."""
    logged = frozenset(("reward", "loss", "lr"))
    found = cover(logged)
    assert found.best is not None

    def named(metrics):
        return {name for name, level in levels(cover(metrics)).items() if level == "named"}

    gains = {metric: len(named({*logged, metric}) - named(logged)) for metric in PACK.catalogue.metrics}
    best = max(gain for metric, gain in gains.items() if not metric.startswith("check_"))
    assert gains[found.best.metric] == best == len(found.best.faults)


def test_a_metric_that_the_framework_cannot_log_is_advised_last():
    """The advice has to be possible."""
    first = cover(("reward",)).best
    assert first is not None
    second = cover(("reward",), never=(first.metric,)).best
    assert second is not None and second.metric != first.metric


def test_accumulation_is_revealed_by_its_invariant_alone():
    """The chapter's fault 8 has no dashboard edge."""
    everything = [name for name in PACK.catalogue.metrics if not name.startswith("check_")]
    found = cover(everything)
    assert levels(found)["accum_norm"] != "named" and "accum_norm" in found.invariants


def test_rules_that_need_a_reference_count_only_where_one_fits():
    """A band without a reference never fires."""
    (without,) = [e for e in cover(("reward",)).faults if e.fault.id == "mask_shift"]
    (beside,) = [e for e in cover(("reward",), reference=True).faults if e.fault.id == "mask_shift"]
    assert "slower-than-reference" in beside.rules and "slower-than-reference" not in without.rules


SMALL = ("reward", "entropy", "kl_ref", "grad_norm", "lr", "clip_frac", "length")
"""What a short loop of one's own logs."""


def entry(metrics, fault):
    """The coverage of one fault."""
    return next(each for each in cover(metrics, {}).faults if each.fault.id == fault)


def test_a_rule_of_which_only_a_branch_can_be_seen_names_in_part():
    """Flat groups are a sign of a collapse that neither reward nor entropy shows: the metric that shows them is named."""
    found = entry(SMALL, "entropy_collapse")
    assert found.level == "named" and "entropy-race-at-low-reward" in found.rules
    assert "zero_adv_frac" in found.closed
    assert not entry((*SMALL, "zero_adv_frac", "all_fail_frac"), "entropy_collapse").closed
    assert not entry(SMALL, "ref_is_policy").closed


def test_a_share_of_failing_groups_needs_one_of_its_two_sources():
    """It is logged, or follows from flat groups and the pass rate; without either the rule never fires."""
    rule = "entropy-gone-at-failing-groups"
    assert rule not in entry(SMALL, "entropy_collapse").rules
    assert rule not in entry((*SMALL, "zero_adv_frac"), "entropy_collapse").rules
    assert rule in entry((*SMALL, "all_fail_frac"), "entropy_collapse").rules
    assert rule in entry((*SMALL, "zero_adv_frac", "pass_rate"), "entropy_collapse").rules


def test_components_that_nobody_logs_name_nothing():
    """A sum of parts is checked where there are parts, under either of their names."""
    assert entry(SMALL, "metric_wrong").level != "named"
    assert entry((*SMALL, "rewards/format"), "metric_wrong").level == "named"
