"""The report for scripts and chats: strict JSON with everything in it, Markdown that nobody's text can break."""

from __future__ import annotations

import json

from rltriage.exporters.report import words
from rltriage.exporters.report.plain import reports_json, reports_markdown
from rltriage.exporters.report.triage_map import map_groups


def test_json_holds_what_the_page_shows(report_of, live_reference) -> None:
    """Headline, incident, alerts as `--json` has them, curves with their points."""
    found = json.loads(reports_json([report_of(live_reference, kl_coef=0.1)]))
    assert found["type"] == "report"
    assert found["incident"]["suspects"][0]["fault"] == "ref_is_policy"
    assert found["first_test"]["command"].startswith("rltriage check --only 9")
    assert found["standing"][0]["rule"] == "kl-ref-exactly-zero"
    assert found["config"]["kl_coef"] == {"value": 0.1, "provenance": "declared", "source": "kl_coef"}
    assert len(found["curves"]["kl_ref"]["points"]) == 12
    assert {tuple(pair["metrics"]) for pair in found["pairs"]} == {("entropy", "reward")}


def test_json_is_strict(report_of) -> None:
    """NaN is text, so that every parser reads it."""
    text = reports_json([report_of([{"loss": float("nan"), "reward": 0.1} for _ in range(6)])])
    assert json.loads(text, parse_constant=lambda name: 1 / 0)["curves"]["loss"]["not_a_number_at"] == list(range(6))


def test_markdown_is_not_broken_by_names(report_of, live_reference) -> None:
    """Bars, hashes and tags in a run's id or facts stay text, and every table row has as many cells as its head."""
    text = reports_markdown([report_of(live_reference, name="a|b\n# <b>", kl_coef=0.1, loss_mode="x|y")])
    assert "\n# <b>" not in text
    assert "<b>" not in text.replace("\\<b\\>", "")
    for block in text.split("\n\n"):
        rows = [line.replace("\\|", "") for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


def a_collapse():
    """Entropy .9 -> .003 in 60 rows at a flat reward, with a clip fraction above 0."""
    for step in range(60):
        yield {
            "reward": 0.2 + 0.02 * (-1) ** step,
            "entropy": 0.9 * (1 / 300) ** (step / 59),
            "clip_frac": 0.02 + 0.001 * (step % 5),
            "grad_norm": 0.5,
            "lr": 1e-6,
            "length": 200.0 + step % 7,
        }


def test_a_note_with_nothing_open_leads_before_one_that_asks(report_of) -> None:
    """An older alert at info that hangs on a fact nobody told is neither headline nor first test."""
    found = json.loads(reports_json([report_of(a_collapse(), kl_coef=0.1, group_size=8)]))
    assert "entropy_collapse (fault 3" in found["headline"]
    standing = {alert["rule"]: alert for alert in found["standing"]}
    asks = [bool(alert["question"]) for alert in found["standing"]]
    assert found["standing"][0]["rule"] == "entropy-race" and asks == sorted(asks) and asks[-1]
    assert standing["clip-without-reuse"]["since_step"] < standing["entropy-race"]["since_step"]
    assert found["first_test"]["command"].startswith("rltriage check --only 10")
    assert (found["notes"][0]["rule"], found["notes"][0]["question"]) == ("entropy-race", "")


def test_a_headline_that_hangs_on_a_fact_says_on_which(report_of) -> None:
    """Where nothing else stands, the question stands in the sentence that asserts it."""
    rows = [{"clip_frac": 0.02 + 0.001 * (step % 5), "reward": 0.2, "grad_norm": 0.5, "lr": 1e-6} for step in range(20)]
    found = json.loads(reports_json([report_of(rows)]))
    assert "exactly 1 (a fault only if updates_per_batch is 1); a note" in found["headline"]


def test_what_hangs_on_an_unknown_fact_is_no_reason(report_of) -> None:
    """Truncation grows: batches that may be old are asked for, and lead to no fault on the map's lit path."""
    rows = [
        {"truncated_frac": 0.02 if step < 10 else 0.5, "reward": 0.5 - 0.01 * step, "logp_gap": 0.01 * (1 + step)}
        for step in range(30)
    ]
    report = report_of(rows)
    asked = [alert for alert in report.drawn if alert.question]
    assert "truncated-grows-stale" in {alert.rule for alert in asked}
    assert "up to ? versions old (?: async_lag is not known)" in " ".join(alert.summary for alert in asked)
    assert report.fault in {suspect.fault for alert in asked for suspect in alert.suspects}
    assert words.reasons(report) and all("a fault only if" not in seen for seen, _ in words.reasons(report))
    lit = {box.title for group in map_groups(report) for box in group.boxes if box.kind == "lit"}
    assert lit and not lit & {alert.rule for alert in asked}
