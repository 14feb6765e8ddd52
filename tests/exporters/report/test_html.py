"""The report as a page: it names the fault, draws the way there, needs nothing from outside, and escapes everything."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltriage.engine.reference import Range, Reference
from rltriage.engine.sources import BadLine
from rltriage.exporters.report import words
from rltriage.exporters.report.curves import Curves
from rltriage.exporters.report.html import report_html
from rltriage.exporters.report.model import Chart, Check, Line
from rltriage.exporters.report.plain import report_json, reports_markdown
from rltriage.exporters.report.svg import chart_svg, spark_svg
from rltriage.exporters.report.triage_map import map_groups, map_svg


class Tree(HTMLParser):
    """Which elements a page has, and whether they are closed in order."""

    VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    @property
    def ids(self) -> list[str]:
        return [attrs["id"] for _, attrs in self.tags if attrs.get("id")]


def _text(page: str) -> str:
    """What is read of a page."""
    return re.sub(r"<[^>]+>", "", page)


def test_the_headline_names_fault_and_first_test(report_of, live_reference) -> None:
    """Somebody who reads two lines knows the fault, its number, since when, and what to run."""
    page = report_html([report_of(live_reference, kl_coef=0.1)])
    heading = re.search(r"<h1>(.*?)</h1>", page).group(1)
    assert heading.startswith("ref_is_policy (fault 10,")
    assert "since step" in heading
    assert "rltriage check --only 9" in _text(page)


def test_one_file_that_needs_nothing(report_of, live_reference) -> None:
    """No script, no address, no file: what is referred to lies in the page, and every id is there once."""
    tree = Tree(report_html([report_of(live_reference, kl_coef=0.1), report_of(live_reference)]))
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tree.tags}
    assert not any("style" in attrs for _, attrs in tree.tags)
    assert len(tree.ids) == len(set(tree.ids))
    for _, attrs in tree.tags:
        for name in ("href", "src", "aria-labelledby"):
            for target in (attrs.get(name) or "").split():
                assert target.removeprefix("#") in tree.ids


def test_text_of_others_stays_text(report_of) -> None:
    """Run ids, metric names, facts come from outside: none becomes markup, in the page or in its pictures."""
    bad = '"><script>alert(1)</script>'
    rows = [{"reward": 0.1, bad: float(step), "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-3} for step in range(12)]
    page = report_html([report_of(rows, name=bad, kl_coef=0.1, loss_mode=bad)], version=bad)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    Tree(page)


def test_the_map_lights_one_path(report_of, live_reference, pack) -> None:
    """Symptom, test and fault of the path are lit; a rule of the same fault that is blind says which metric it lacks."""
    report = report_of(live_reference, kl_coef=0.1)
    svg = ElementTree.fromstring(map_svg(report, "m"))
    lit = [group[1].text for group in svg.iter("g") if group[0].get("class") == "box box-lit"]
    assert lit[0] == "kl-ref-exactly-zero"
    assert lit[-1] == "ref_is_policy"
    assert sum(path.get("class") == "edge edge-lit" for path in svg.iter("path")) >= 2
    assert report.fault in svg.find("desc").text


def test_the_narrow_map_goes_from_symptom_to_fault(report_of, live_reference) -> None:
    """The lit path comes first, each group leads to the next; what the fault can show as well comes last."""
    groups = map_groups(report_of(live_reference, kl_coef=0.1))
    assert [group.heading for group in groups[:3]] == ["Symptom", "First test", "Fault"]
    assert [group.then for group in groups[:3]] == [True, True, False]
    assert [group.boxes[0].title for group in groups[:3]] == ["kl-ref-exactly-zero", "kl_after_one_step", "ref_is_policy"]
    assert groups[-1].heading == "What this fault can show as well"
    wide = ElementTree.fromstring(map_svg(report_of(live_reference, kl_coef=0.1), "m"))
    assert len(list(wide.iter("g"))) == sum(len(group.boxes) for group in groups)
    assert map_groups(report_of([{"reward": 0.3} for _ in range(8)])) == []


def test_the_reasons_stand_under_the_headline(report_of, live_reference) -> None:
    """What is seen with its numbers, and by which rule; a metric's name is not given a capital."""
    report = report_of(live_reference, kl_coef=0.1)
    seen = "kl_ref has been exactly 0 for 3 rows while kl_coef is 0.1"
    assert words.reasons(report) == [(seen, "kl-ref-exactly-zero, step 3")]
    assert report_html([report]).index(seen) < report_html([report]).index("rltriage</strong> report") + 10_000
    assert words.reasons(report_of([{"reward": 0.3} for _ in range(8)])) == []


def test_whoever_goes_back_is_told_before_which_step(report_of, live_reference) -> None:
    """A run that was wrong from its first row has no good checkpoint; another has those before the onset."""
    report = report_of(live_reference, kl_coef=0.1)
    for onset, start in ((0, True), (5, False)):
        back = replace(report, incident=replace(report.incident, action="roll back", onset_step=onset))
        assert (words.advice(back) == words.FROM_THE_START) is start
        assert start or words.advice(back) == "Stop the run and go back to a checkpoint from before step 5."


def test_a_picture_has_so_many_flags_as_can_be_read(report_of) -> None:
    """A rule that fires and resolves again and again fills neither picture nor legend; the rest is counted."""
    rows = [{"kl_ref": 0.0 if s // 8 % 2 else 0.02, "grad_norm": 0.2, "lr": 1e-3, "reward": 0.2} for s in range(600)]
    charts = report_of(rows, kl_coef=0.1).symptoms
    assert all(len(chart.marks) <= 9 for chart in charts)


def test_a_name_cannot_pose_as_another() -> None:
    """Characters that turn the direction of writing or steer a terminal are seen as such."""
    assert words.name("\u202eevil\x1b[31m a/b") == "\ufffdevil\ufffd[31m a/b"
    assert words.name("שלום") == "שלום"


def test_a_quiet_run_says_so(report_of) -> None:
    """Without alerts there is no map and no alarm, but a sentence, the pairs and what is not logged."""
    report = report_of([{"reward": 0.3, "entropy": 0.5, "grad_norm": 0.1} for _ in range(8)])
    page = report_html([report])
    assert "Nothing is wrong that these metrics can show, in 8 rows." in page
    assert 'class="map"' not in page
    assert "logp_gap" in {one.metric for one in report.missing}
    assert "stale_old_logp" in report.hidden


def test_a_band_is_drawn_where_a_reference_has_one(report_of, live_reference) -> None:
    """The healthy range is a shape of its own, and the page says which it is; without one it says that there is none."""

    band = Range(0.01, 0.002, 0.001, 0.005, 0.02)
    healthy = Reference("ours", ((0, 99),), {"kl_ref": (band,)}, {"kl_coef": 0.1}, ("a",))
    assert 'class="band"' in report_html([report_of(live_reference, kl_coef=0.1, references=[healthy])])
    without = report_html([report_of(live_reference, references=[healthy])])
    assert 'class="band"' not in without
    assert "kl_coef not known here" in without


def test_a_band_of_another_configuration_says_how_it_differs(report_of, live_reference) -> None:
    """Where the fault is in the configuration no reference fits; the nearest is drawn, and no rule judges by it."""
    band = Range(0.01, 0.002, 0.001, 0.005, 0.02)
    healthy = Reference("ours", ((0, 99),), {"kl_ref": (band,)}, {"kl_coef": 0.1, "lr": 0.001}, ("a",))
    further = Reference("far", ((0, 99),), {"kl_ref": (band,)}, {"kl_coef": 0.1, "lr": 3.0}, ("a",))
    report = report_of(live_reference, kl_coef=0.2, lr=0.001, references=[further, healthy])
    page = report_html([report])
    assert 'class="band"' in page
    assert "healthy runs of another configuration, kl_coef is 0.2 here and 0.1 there." in page
    assert (report_json(report)["no_band_because"], report.band_differs) == ("", "kl_coef is 0.2 here and 0.1 there")
    assert not any("reference" in alert.rule for alert in report.timeline)


def test_what_changed_in_config_is_said_under_the_headline(report_of, live_reference) -> None:
    """Against the reference that was given, in page, JSON and Markdown."""
    band = Range(0.01, 0.002, 0.001, 0.005, 0.02)
    healthy = Reference("ours", ((0, 99),), {"kl_ref": (band,)}, {"kl_coef": 0.1}, ("a",))
    report = report_of(live_reference, kl_coef=0.2, references=[healthy])
    words = "The configuration differs from the healthy reference ours: kl_coef 0.1 → 0.2."
    assert words in report_html([report])
    assert report_json(report)["config_changed"][0]["now"] == 0.2
    assert "differs from the healthy reference ours" in reports_markdown([report])


def test_a_question_is_asked_and_nobody_is_accused(report_of, live_reference) -> None:
    """Without the fact that decides, the headline says perhaps, and the question follows."""
    page = report_html([report_of(live_reference)])
    assert "Perhaps ref_is_policy (fault 10)" in page
    assert "Asked: ref_is_policy (kl-ref-exactly-zero), a fault only if kl_coef &gt; 0: pass --config kl_coef=...<" in page


def test_invariants_are_listed_with_their_values(report_of) -> None:
    """Failed, passed and not judged are told apart in words."""
    row = {"reward": 0.2, "check_mask_is_policy_tokens": 0.0, "check_mask_is_policy_tokens_value": 499.0}
    report = report_of([{**row, "check_sampler_equals_trainer": 1.0}, {"reward": 0.3}])
    assert [check.passed for check in report.checks[:3]] == [False, True, None]
    assert report.checks[0].value == 499.0
    page = report_html([report])
    assert "499" in page
    assert "not judged" in page


def test_the_timeline_says_what_explains_what(report_of) -> None:
    """An alert that another explains names it, even where the cause was found later."""
    rows = [{"check_mask_is_policy_tokens": 0.0, "reward": 0.2, "grad_norm": 0.1, "logp_gap": 3.7} for _ in range(30)]
    for row in rows[20:]:
        row["grad_norm"] = 40.0
    report = report_of(rows)
    parts = {alert.rule: alert.explained_by for alert in report.timeline}
    explained = {rule for rule, by in parts.items() if by}
    assert explained
    assert set(parts) - explained
    assert report.standing[0].explained_by is None


@pytest.mark.parametrize(
    "values", [[0.0], [1e308, -1e308], [5e-324, 0.0], [1.0] * 5, [math.nan], [1e-9, 1e9, 3.0], [-1e-320, 1e-320]]
)
def test_any_values_make_a_picture(values: list[float]) -> None:
    """Extreme, equal, tiny and missing values give well-formed pictures with finite coordinates."""
    curves = Curves()
    for step, value in enumerate(values):
        curves.add(step, {"x": value})
    line = Line("x", tuple(curves["x"].buckets()), 1, tuple(curves["x"].gaps))
    svg = chart_svg(Chart("x", "", (line,)), "c")
    ElementTree.fromstring(svg)
    assert not re.search(r'="[^"]*\b(nan|inf)\b', svg)


WIDE = st.sampled_from([1.7e308, -1.7e308, sys.float_info.max, -sys.float_info.max, 5e-324, 0.0, 1.0])


@given(
    st.lists(WIDE | st.floats(), min_size=1, max_size=40),
    st.lists(st.tuples(WIDE, WIDE), max_size=3),
    st.integers(1, 6),
    st.sampled_from([0, -(1 << 63), (1 << 63) - 50]),
)
def test_no_picture_has_a_coordinate_that_is_none(
    values: list[float], band: list[tuple[float, float]], buckets: int, first: int
) -> None:
    """Whatever floats and steps a log has, merged or not, with a band or without: numbers alone are drawn."""
    curves = Curves(buckets)
    for step, value in enumerate(values, start=first):
        curves.add(step, {"x": value})
    curve = curves["x"]
    edges = tuple((first + place, min(pair), max(pair)) for place, pair in enumerate(band))
    line = Line("x", tuple(curve.buckets()), curve.width, tuple(curve.gaps), edges)
    for svg in (chart_svg(Chart("x", "", (line, line)), "c"), spark_svg(line) or "<svg/>"):
        ElementTree.fromstring(svg)
        assert not re.search(r'="[^"]*\b(nan|inf)\b', svg)


def test_what_was_not_understood_stands_under_the_headline(report_of, live_reference) -> None:
    """A log that was read in part says so in every format, with the first reason; one that was read whole does not."""
    whole = report_of(live_reference)
    part = replace(whole, bad_rows=30, bad_examples=(BadLine(2, "half a <JSON> object"), BadLine(4, "another")))
    told = "30 lines were not understood, the first is line 2: half a &lt;JSON&gt; object."
    assert told in report_html([part]) and "not understood" not in report_html([whole])
    assert "30 lines were not understood" in reports_markdown([part])
    assert "not understood" not in reports_markdown([whole])
    assert report_json(part)["bad_rows"] == 30
    assert report_json(part)["bad_examples"][0] == {"line": 2, "reason": "half a <JSON> object"}
    assert (report_json(whole)["bad_rows"], report_json(whole)["bad_examples"]) == (0, [])


def test_one_is_no_plural(report_of) -> None:
    """One row, one metric, one line, one restart."""
    report = replace(report_of([{"reward": 0.2}]), bad_rows=1, bad_examples=(BadLine(3, "no JSON"),), restarts=1)
    page, text = report_html([report]), reports_markdown([report])
    assert (
        "finished, 1 row," in page and "finished, 1 row," in text and "1 line was not understood, line 3: no JSON." in page
    )
    assert "1 metric:" in page and "started over 1 time;" in page
    assert not re.search(r"\b1 (rows|metrics|lines|times|runs|alerts)\b", page + text)


def test_long_runs_stay_small(report_of, pack) -> None:
    """Tens of thousands of rows give a page under 1 MB in which a one-row spike is still to be seen."""
    from rltriage.engine.report import EMPTY
    from rltriage.engine.rows import Row, Run
    from rltriage.exporters.report.build import build
    from rltriage.exporters.report.collect import Collector

    collector, run = Collector(Run("long")), Run("long")
    names = [name for name in pack.catalogue.metrics if not name.startswith("check_")][:40]
    row = {name: 0.25 for name in names}
    for step in range(20_000):
        metrics = {**row, "grad_norm": 77.0} if step == 12_345 else row
        collector.publish(run, Row(step, metrics), EMPTY)
    report = build(collector, pack)
    assert len(report_html([report])) < 1_000_000
    spike = next(line for line in report.metrics if line.metric == "grad_norm")
    assert max(bucket.high for bucket in spike.buckets) == 77.0


def test_headline_and_box_agree_about_a_note(report_of, live_reference) -> None:
    """With no alarm the page says perhaps, asks its question, and does not urge; with one it urges."""
    page = report_html([report_of(live_reference)])
    heading = re.search(r"<h1>(.*?)</h1>", page).group(1)
    assert heading.startswith("Perhaps ref_is_policy (fault 10): kl_ref has been exactly 0")
    assert heading.endswith("a note and no alarm in 12 rows.")
    assert "No fault is suspected" not in page
    assert "Run this first" not in page
    assert "To be sure, run: the KL to the reference" in page
    assert "<title>perhaps ref_is_policy" in page
    assert "pass --config kl_coef=...<" in page
    assert "Run this first: the KL to the reference" in report_html([report_of(live_reference, kl_coef=0.1)])


def test_a_first_test_that_has_been_run_says_so(report_of, live_reference) -> None:
    """Its result stands in the box, on the map and in the data; without a result nothing is claimed."""
    report = report_of([dict(live_reference[0], check_x=0.0)])
    name = next(f"check_{check.id}" for check in report.checks if check.number == 9)
    said = {0.0: "The first test has been run and failed: the KL", 1.0: "Already run: check 9 passed."}
    for value, word in ((0.0, "failed"), (1.0, "passed")):
        report = report_of([dict(row, **{name: value}) for row in live_reference], kl_coef=0.1)
        page = report_html([report])
        assert said[value] in page
        assert ("How to mend it:" in page) is (word == "failed")
        assert f"already run: check 9 {word}" in map_svg(report, "m")
        assert report_json(report)["first_test"]["already_run"] == f"already run: check 9 {word}"
    page = report_html([report_of(live_reference, kl_coef=0.1)]).lower()
    assert "already run" not in page
    assert "been run" not in page


def test_several_checks_of_one_command_are_told_together() -> None:
    """A test that runs checks 1 to 3 says which of them failed; one that runs all counts them."""
    checks = [
        Check(number, f"c{number}", "", passed, None) for number, passed in ((1, True), (2, False), (3, True), (4, None))
    ]
    three = "rltriage check --only 1 --only 2 --only 3 --probe MODULE:FUNCTION"
    assert words.already_run(three, checks) == "already run: check 2 failed, 2 passed"
    assert words.already_run("rltriage check --probe MODULE:FUNCTION", checks) == "already run: check 2 failed, 2 passed"
    assert words.already_run("rltriage check --only 1 --only 3 --probe M:F", checks) == "already run: checks 1, 3 passed"
    assert words.already_run("rltriage check --only 4 --probe M:F", checks) == ""
    assert words.already_run("rltriage recorder show 3", checks) == ""


def test_failed_invariants_stand_before_the_curves(report_of, live_reference) -> None:
    """Where no curve shows the fault, the first picture is the table that does; where all pass it comes later."""
    name = next(
        f"check_{check.id}" for check in report_of([dict(live_reference[0], check_x=0.0)]).checks if check.number == 6
    )
    for value, first in ((0.0, True), (1.0, False)):
        page = report_html([report_of([dict(row, **{name: value}) for row in live_reference], kl_coef=0.1)])
        assert page.count('id="r0-checks"') == 1
        assert (page.index('id="r0-checks"') < page.index('id="r0-symptoms"')) is first


def test_reward_and_pass_rate_share_their_axis(report_of, pack) -> None:
    """What comes apart is drawn in one panel, so that it is seen to come apart."""
    rows = [{"reward": 0.2 + 0.03 * s, "pass_rate": 0.2 if s < 6 else 0.02, "grad_norm": 0.2} for s in range(24)]
    charts = [one for one in report_of(rows).symptoms if {"reward", "pass_rate"} <= {line.metric for line in one.lines}]
    assert charts
    assert all(one.shared for one in charts)
