"""What people read: the same words in plain text and on a rich console."""

from dataclasses import replace

import pytest
from rich.console import Console

from rltriage.engine.report import ConfigChange, Note
from rltriage.exporters.text import (
    alert_line,
    alert_line_rich,
    alert_rich,
    alert_text,
    incident_rich,
    incident_text,
    percent,
    seen_text,
)
from rltriage.rules.catalogue import load_catalogue

FIRING = """\
 CRITICAL  demo, step 7: mask_shift (fault 1), 93 % by this rule
  it means   the action mask is one token off
  seen       logp_gap is 0.531 where fp32 engines stay under 0.0001 (start 0.52)
  since      step 5, rule logp-gap-from-start
  do first   mask = policy tokens
             $ rltriage check --only 1 demo"""

RESOLVED = """\
 RESOLVED  demo, step 9: logp-gap-from-start
  was        logp_gap is 0.531 where fp32 engines stay under 0.0001 (start 0.52)
  since      step 5, suspected mask_shift (fault 1), 93 % by this rule"""

INCIDENT = """\
 INCIDENT, CRITICAL  demo, step 7: mask_shift (fault 1), 93 %
  it means   the action mask is one token off
  since      step 5
  seen by    logp-gap-from-start
  the run    should be stopped: its steps are wasted or harmful
  do first   read 20 trajectories
             Take the 20 with the highest reward.
  best test  mask = policy tokens
             $ rltriage check --only 1 demo
  decided by logp_gap_gt1_frac
  left over  reward-flat"""


def test_a_firing_alert_names_fault_numbers_onset_and_command(alert, catalogue):
    """Everything that somebody on call needs, and no number twice."""
    assert alert_text(alert, catalogue) == FIRING


def test_a_resolved_alert_says_what_it_was(alert, catalogue):
    """Nothing is left to do, so no test is named."""
    assert alert_text(replace(alert, state="resolved", step=9), catalogue) == RESOLVED


def test_an_incident_says_what_to_do_with_the_run(incident, catalogue):
    """The incident adds the action, the better test, what tells the rivals apart, and what it cannot explain."""
    assert incident_text(incident, catalogue) == INCIDENT


def test_an_incident_says_what_changed_and_what_notes_ask(incident, catalogue):
    """A line for each thing compared with, then a line for each note."""
    told = replace(
        incident,
        changed=(
            ConfigChange("kl_coef", 0.04, 0, "the healthy reference gym"),
            ConfigChange("lr", 1e-3, 1e-2, "the healthy reference gym"),
            ConfigChange("lr", 1e-4, 1e-2, "the run r1"),
        ),
        notes=(Note("stale-old-logp", "stale_old_logp", "a fault only if ..."), Note("spike", "lr_too_high")),
    )
    assert incident_text(told, catalogue) == INCIDENT.replace(
        "  left over  reward-flat",
        "  config     differs from the healthy reference gym: kl_coef 0.04 -> 0, lr 0.001\n"
        "             -> 0.01\n"
        "  config     differs from the run r1: lr 0.0001 -> 0.01\n"
        "  left over  reward-flat\n"
        "  also asked stale_old_logp (stale-old-logp), a fault only if ...\n"
        "  also noted lr_too_high (spike)",
    )


def test_an_explained_alert_points_at_its_cause(alert, catalogue):
    """Nobody runs a test for a consequence."""
    text = alert_text(replace(alert, explained_by="nan-loss"), catalogue)
    assert "part of    nan-loss, which explains this" in text
    assert "do first" not in text


def test_an_unknown_fact_asks_its_question(alert, catalogue):
    """A capped alert says which fact would decide."""
    question = "a fault only if updates_per_batch > 1: pass --config updates_per_batch=..."
    text = " ".join(alert_text(replace(alert, severity="info", question=question), catalogue).split())
    assert f"tell us {question}" in text


def test_a_summary_that_hangs_on_an_unknown_fact_says_so(alert):
    """In a list, where no question stands under it, nothing is asserted that nobody knows."""
    question = "a fault only if updates_per_batch is 1: pass --config updates_per_batch=..."
    asked = replace(alert, summary="all is clipped.", question=question)
    assert seen_text(asked) == "all is clipped (a fault only if updates_per_batch is 1)"
    assert seen_text(replace(asked, question="")) == "all is clipped"


def test_a_rule_s_weight_is_not_worded_as_an_incident_s_likelihood(alert, incident, catalogue):
    """Two numbers for one suspect are two things: what the rule alone says, and what all alerts say."""
    assert "93 % by this rule" in alert_text(alert, catalogue)
    assert "by this rule" not in incident_text(incident, catalogue)


def test_a_first_test_without_a_command_is_told_in_a_whole_sentence(alert):
    """On a terminal nothing but that sentence says what to do."""
    text = " ".join(alert_text(replace(alert, first_test="kl_gradient_at_two_coefficients"), load_catalogue()).split())
    assert "Compute the gradient of one batch twice, with the KL coefficient at 0 and at 10." in text


def test_an_alert_without_suspects_is_headed_by_its_rule(alert, catalogue):
    """A rule that accuses nobody still has a heading."""
    text = alert_text(replace(alert, suspects=()), catalogue)
    assert text.startswith(" CRITICAL  demo, step 7: logp-gap-from-start\n") and "or it is" not in text


def test_open_states_other_than_firing_are_named(alert, catalogue):
    """Stale and flapping are neither firing nor resolved."""
    assert alert_text(replace(alert, state="stale"), catalogue).startswith(" CRITICAL, STALE  demo")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_but_a_command_is_wider_than_asked(alert, incident, catalogue, width):
    """A pager's narrow window holds the block."""
    alert = replace(alert, summary="word " * 60, run="a-run-with-a-name")
    for line in (alert_text(alert, catalogue, width) + "\n" + incident_text(incident, catalogue, width)).splitlines():
        assert len(line) <= width or "$ rltriage" in line


def test_the_console_shows_the_same_words_and_colour_on_a_terminal_only(alert, incident, catalogue):
    """A file or a pipe gets no escape codes."""
    for rich, plain in (
        (alert_rich(alert, catalogue), alert_text(alert, catalogue)),
        (incident_rich(incident, catalogue), incident_text(incident, catalogue)),
    ):
        shown = {}
        for terminal in (False, True):
            console = Console(width=120, force_terminal=terminal, color_system="standard" if terminal else None)
            with console.capture() as capture:
                console.print(rich)
            shown[terminal] = capture.get()
        assert shown[False].rstrip("\n") == plain
        assert "\x1b[" in shown[True] and "\x1b" not in shown[False]


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "< 1 %"), (0.001, "< 1 %"), (0.5, "50 %"), (0.995, "> 99 %"), (1.0, "> 99 %")]
)
def test_confidence_never_rounds_to_certainty(share, text):
    """A likelihood is no proof, and the score that it is told of is rounded: nothing is 0 % or 100 % likely."""
    assert percent(share) == text


def test_lines_of_a_list_stand_under_each_other(alert):
    """The rule begins in one column whatever the severity, no line is too long, no word is lost, and colour adds none."""
    many = [replace(alert, severity=severity, summary="a long story " * 20) for severity in ("info", "warning", "critical")]
    lines = [alert_line(one) for one in many]
    assert {line.index(alert.rule) for line in lines} == {9}
    assert all(len(part) <= 80 for line in lines for part in line.splitlines())
    assert all(part.startswith(" " * 9) for line in lines for part in line.splitlines()[1:])
    assert all(" ".join(line.split()).endswith(("a long story " * 20).strip()) for line in lines)
    assert [alert_line_rich(one).plain for one in many] == lines


def test_whoever_goes_back_is_told_before_which_step(incident, catalogue):
    """A run that was wrong from its start has no checkpoint that is good."""
    told = {step: incident_text(replace(incident, action="roll back", onset_step=step), catalogue) for step in (0, 5)}
    assert "the run    should be started anew: no checkpoint of it is good" in told[0]
    assert "the run    should stop and go back to a checkpoint from before step 5" in told[5]
