"""One incident per run: emitted when its first two suspects change, gone when nothing at warning or above is open."""

import dataclasses

import pytest

from rltriage.engine.report import ConfigChange, Note
from rltriage.engine.rows import Fact, Row, Run
from rltriage.engine.triage import Triage
from rltriage.engine.triage.symptoms import symptom

from .conftest import Both, Level

RUN = Run("run")


@pytest.fixture
def triage(catalogue, pack):
    """A triage over three rules."""
    conditions = {
        "gap": Level("logp_gap", above=1e-4),
        "grad": Both((Level("grad_norm", above=1.0), Level("reward", below=0.1))),
        "sign": Level("check_update_follows_advantage", equals=0),
    }
    return Triage(catalogue, pack(**conditions))


def feed(triage, alerts, step=0, **metrics):
    """One row."""
    return triage.update(RUN, {}, alerts, Row(step, metrics), frozenset(metrics))


def test_an_incident_names_suspect_test_action_and_onset(triage, alert):
    """The first critical alert opens it."""
    _, incident = feed(triage, [alert("gap", {"mask_shift": 0.8}, since=2)], step=4)
    assert incident.suspects[0].fault == "mask_shift" and incident.suspects[0].number == 1
    assert (incident.first_test, incident.best_test, incident.action) == ("check_mask", "check_mask", "stop")
    assert (incident.step, incident.onset_step, incident.severity, incident.rules) == (4, 2, "critical", ("gap",))


def test_it_is_emitted_only_when_the_first_two_suspects_change(triage, alert):
    """The same alerts on the next row are no news; a second cause is, under the same id."""
    gap, grad = alert("gap", {"mask_shift": 0.8}), alert("grad", {"lr_too_high": 0.6}, "warning", since=0, test="lower_lr")
    _, first = feed(triage, [gap], 0)
    assert feed(triage, [gap], 1)[1] is None
    sign = alert("sign", {"sign_flip": 0.9}, since=2)
    _, second = feed(triage, [gap, grad, sign], 2, check_update_follows_advantage=0.0)
    assert second.suspects[0].fault == "sign_flip" and second.id == first.id
    assert "gap" in second.unexplained


def test_info_alone_is_no_incident(triage, alert):
    """Nor does an incident outlive its last alert of warning or above: the next one is a new id."""
    assert feed(triage, [alert("gap", {"mask_shift": 0.8}, "info")], 0)[1] is None
    _, first = feed(triage, [alert("gap", {"mask_shift": 0.8}, since=1)], 1)
    feed(triage, [], 2)
    _, second = feed(triage, [alert("gap", {"mask_shift": 0.8}, since=3)], 3)
    assert first is not None and second is not None and first.id != second.id


def test_pending_alerts_are_no_evidence(triage, alert):
    """Only what has fired counts."""
    assert feed(triage, [alert("gap", {"mask_shift": 0.8}, state="pending")])[1] is None


def test_consequences_are_marked(triage, alert):
    """The gradient's alert is explained by the gap's, and is not among the unexplained."""
    explained, incident = feed(triage, [alert("gap", {"mask_shift": 0.8}), alert("grad", {"lr_too_high": 0.6}, "warning")])
    assert explained == {"gap": None, "grad": "gap"}
    assert incident.unexplained == () and [s.fault for s in incident.suspects] == ["mask_shift"]


def test_rivals_within_one_are_told_apart_by_a_test(triage, alert):
    """The test whose outcomes name both faults is given; distant rivals need none."""
    near = alert("gap", {"temperature_mismatch": 0.4, "engine_mismatch": 0.35}, test="temperatures")
    assert "slope" in feed(triage, [near])[1].rivals_told_apart_by
    clear = dataclasses.replace(alert("gap", {"temperature_mismatch": 0.9, "engine_mismatch": 0.05}), id="other")
    assert feed(triage, [clear], 1)[1] is None or feed(triage, [clear], 1)[1].rivals_told_apart_by == ""


def test_rivals_are_told_apart_by_an_invariant_where_no_test_says_more(triage, alert):
    """The check that only one of them fails decides."""
    _, incident = feed(triage, [alert("grad", {"mask_shift": 0.4, "lr_too_high": 0.4})])
    assert "invariant" in incident.rivals_told_apart_by


def test_the_cheapest_test_comes_first_and_the_best_one_is_the_invariant(triage, alert):
    """A dump is read before a trainer is started; the invariant is still the best."""
    alerts = [
        alert("gap", {"mask_shift": 0.5}, test="read_tail"),
        alert("grad", {"mask_shift": 0.5}, test="check_mask"),
    ]
    _, incident = feed(triage, alerts)
    assert (incident.first_test, incident.best_test) == ("read_tail", "check_mask")


def test_a_rule_without_suspects_gives_an_incident_that_says_so(triage, alert):
    """A collapse that nothing explains is told with its own test and no name."""
    _, incident = feed(triage, [alert("gap", {}, "warning", test="read_tail")])
    assert (incident.suspects, incident.first_test, incident.unexplained) == ((), "read_tail", ("gap",))


def test_a_note_beside_an_incident_keeps_its_suspect_and_its_question(triage, alert):
    """Alerts at info never make a suspect, but whom they point to, and then what they ask, stays visible."""
    asked = dataclasses.replace(alert("sign", {"stale_old_logp": 0.8}, "info"), question="a fault only if ...")
    told, named = alert("other", {"lr_too_high": 0.6}, "info"), alert("third", {"mask_shift": 0.2}, "info")
    _, incident = feed(triage, [alert("gap", {"mask_shift": 0.8}), asked, told, named])
    assert [suspect.fault for suspect in incident.suspects] == ["mask_shift"]
    assert incident.notes == (Note("other", "lr_too_high"), Note("sign", "stale_old_logp", "a fault only if ..."))
    assert (incident.rules, incident.unexplained) == (("gap", "third"), ())


def test_a_rule_that_names_another_fault_is_left_over_and_no_evidence(triage, alert):
    """`rules` are the alerts that name the first suspect."""
    gap, sign = alert("gap", {"mask_shift": 0.9}), alert("sign", {"sign_flip": 0.3}, "warning", group="outcome")
    _, incident = feed(triage, [gap, sign])
    assert (incident.rules, incident.unexplained, incident.notes) == (("gap",), ("sign",), ())


def test_an_incident_says_what_differs_in_config(catalogue, pack, alert):
    """Whatever the run is compared with is asked under the facts known by then."""

    class Earlier:
        """An earlier run."""

        def changes(self, facts):
            """One fact differs."""
            return (ConfigChange("kl_coef", 0.04, facts["kl_coef"].value, "the run r1"),)

    triage = Triage(catalogue, pack(gap=Level("logp_gap", above=1e-4)), compared=Earlier())
    facts = {"kl_coef": Fact(0, "declared")}
    _, incident = triage.update(RUN, facts, [alert("gap", {"mask_shift": 0.8})], Row(0, {}), frozenset())
    assert incident.changed == (ConfigChange("kl_coef", 0.04, 0, "the run r1"),)


def test_checks_of_row_0_still_count_later_and_go_with_a_restart(triage, alert):
    """Invariants run once at the start; a step back to the start forgets them."""
    feed(triage, [], 0, check_update_follows_advantage=0.0)
    _, later = feed(triage, [alert("grad", {"lr_too_high": 0.6}, since=5)], 5)
    assert later.suspects[0].fault == "sign_flip"
    feed(triage, [], 0)
    _, fresh = feed(triage, [alert("grad", {"lr_too_high": 0.6}, since=1)], 1)
    assert fresh.suspects[0].fault == "lr_too_high"


def test_a_rule_s_symptom_is_the_first_part_of_its_condition(pack):
    """Authors write the symptom first; what follows qualifies it."""
    (rule,) = pack(rule=Both((Level("entropy", below=0.1), Level("reward", above=1.0)))).rules
    assert symptom(rule) == ("entropy", "down")
    (zero,) = pack(rule=Level("grad_norm", equals=0)).rules
    assert symptom(zero) == ("grad_norm", "zero")


def test_an_alert_that_asks_for_a_fact_is_no_evidence(triage, alert):
    """It is among the notes with its question, not among the rules that see the first suspect."""
    asked = dataclasses.replace(alert("grad", {"mask_shift": 0.8}, "info"), question="a fault only if ...")
    _, incident = feed(triage, [alert("gap", {"mask_shift": 0.8}, since=7), asked])
    assert incident.onset_step == 7, "nobody has to go back to before a question"
    assert incident.rules == ("gap",) and incident.notes == (Note("grad", "mask_shift", "a fault only if ..."),)


def test_rivals_are_told_apart_by_a_metric_that_is_logged_or_has_to_be(pack, alert, catalogue):
    """What only one of them moves decides if the run logs it; if none is logged, one has to be."""

    def decided(**logged):
        rivals = alert("gap", {"zero_advantage_groups": 0.4, "nonfinite": 0.4})
        return feed(Triage(catalogue, pack(gap=Level("logp_gap", above=1e-4))), [rivals], **logged)[1].rivals_told_apart_by

    assert decided(logp_gap=1.0) == "log grad_norm: it goes to zero under zero_advantage_groups, not under nonfinite"
    assert decided(grad_norm=0.0) == "grad_norm: it goes to zero under zero_advantage_groups, not under nonfinite"
    assert decided(reward=0.0) == "reward: it goes down under nonfinite, not under zero_advantage_groups"
