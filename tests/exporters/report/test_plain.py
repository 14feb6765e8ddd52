"""The report for scripts and chats: strict JSON with everything in it, Markdown that nobody's text can break."""

from __future__ import annotations

import json

from rltriage.exporters.report.plain import reports_json, reports_markdown


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
