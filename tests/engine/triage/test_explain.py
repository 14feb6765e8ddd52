"""An alert is explained by the fault that causes it, and never hides what stands on its own."""

from rltriage.engine.triage.explain import explain
from rltriage.engine.triage.symptoms import Symptom

UP = {"gap": Symptom("logp_gap", "up"), "grad": Symptom("grad_norm", "up"), "trunc": Symptom("truncated_frac", "up")}


def test_a_mask_fault_explains_the_gradient_that_it_raises(catalogue, alert):
    """A later grad_norm alert follows from the critical alert whose leading suspect raises it."""
    alerts = [alert("gap", {"mask_shift": 0.8}), alert("grad", {"lr_too_high": 0.6}, "warning", since=3)]
    assert explain(alerts, UP, catalogue.faults) == {"gap": None, "grad": "gap"}


def test_a_symptom_that_began_earlier_is_not_explained(catalogue, alert):
    """A cause cannot begin after its consequence."""
    alerts = [alert("gap", {"mask_shift": 0.8}, since=5), alert("grad", {"lr_too_high": 0.6}, "warning", since=3)]
    assert explain(alerts, UP, catalogue.faults)["grad"] is None


def test_a_warning_explains_nothing(catalogue, alert):
    """Only a critical alert is sure enough to speak for another one."""
    alerts = [alert("gap", {"mask_shift": 0.8}, "warning"), alert("grad", {"lr_too_high": 0.6}, since=3)]
    assert explain(alerts, UP, catalogue.faults) == {"gap": None, "grad": None}


def test_the_direction_has_to_match(catalogue, alert):
    """A mask raises the gradient norm; it does not explain one of exactly zero."""
    seen = UP | {"grad": Symptom("grad_norm", "zero")}
    alerts = [alert("gap", {"mask_shift": 0.8}), alert("grad", {"dead_gradient": 0.6}, since=3)]
    assert explain(alerts, seen, catalogue.faults)["grad"] is None


def test_root_causes_come_first(catalogue, alert):
    """Truncation explains the zero groups and the zero gradient; the zero groups, explained, explain nothing."""
    seen = {
        "cut": Symptom("truncated_frac", "up"),
        "flat": Symptom("zero_adv_frac", "up"),
        "dead": Symptom("grad_norm", "zero"),
    }
    alerts = [
        alert("flat", {"zero_advantage_groups": 0.8}, group="behavior"),
        alert("dead", {"dead_gradient": 0.5}, group="optimizer"),
        alert("cut", {"truncation_cap": 0.8}, group="consistency"),
    ]
    assert explain(alerts, seen, catalogue.faults) == {"cut": None, "flat": "cut", "dead": "cut"}


def test_hacking_truncation_and_liveness_are_never_explained_away(catalogue, alert):
    """Whatever else is wrong, these are told."""
    seen = {name: Symptom("grad_norm", "up") for name in ("hack", "cut", "late", "nan")} | {
        "gap": Symptom("logp_gap", "up")
    }
    alerts = [
        alert("gap", {"mask_shift": 0.8}),
        alert("hack", {"reward_hacking": 0.8}, since=2),
        alert("cut", {"truncation_cap": 0.8}, since=2),
        alert("nan", {"nonfinite": 0.9}, since=2),
        alert("late", {"lr_too_high": 0.9}, since=2, group="liveness"),
    ]
    assert set(explain(alerts, seen, catalogue.faults).values()) == {None}


def test_the_same_diagnosis_is_support_and_not_a_consequence(catalogue, alert):
    """A second alert that names the same fault stays on its own."""
    alerts = [alert("gap", {"mask_shift": 0.8}), alert("grad", {"mask_shift": 0.6}, "warning", since=3)]
    assert explain(alerts, UP, catalogue.faults)["grad"] is None
