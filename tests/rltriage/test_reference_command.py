"""`reference` and `coverage` on the command line, and what `replay --reference` makes of one."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def healthy(tmp_path):
    """Ten logs of healthy runs with one metric and one fact, as paths."""
    paths = []
    for seed in range(10):
        folder = tmp_path / f"seed{seed}"
        folder.mkdir()
        rows = [{"step": step, "reward": 0.5 + seed / 100 + step / 1000, "grad_norm": 0.2} for step in range(12)]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "run.json").write_text(json.dumps({"format": 1, "id": f"seed{seed}", "config": {"lr": 0.001}}))
        paths.append(folder)
    return paths


@pytest.fixture
def slow(tmp_path):
    """A run of the same config that learns nothing."""
    path = tmp_path / "slow.jsonl"
    path.write_text("".join(json.dumps({"step": s, "reward": 0.1, "grad_norm": 0.2}) + "\n" for s in range(12)))
    return path


def test_a_reference_is_built_shown_and_used(rltriage, tmp_path, healthy, slow):
    """From run directories to an alert about a run that is slower."""
    file = tmp_path / "mine.json"
    assert rltriage("reference", "build", *healthy, "-o", file).code == 0
    shown = rltriage("reference", "show", file)
    assert "for runs with lr 0.001" in shown.out and "reward" in shown.out
    assert json.loads(rltriage("reference", "show", file, "--json").out)["name"] == "mine"
    ran = rltriage("replay", slow, "--reference", file, "--config", "lr=0.001", "--json")
    assert "slower-than-reference" in {json.loads(line).get("rule") for line in ran.out.splitlines()}


def test_a_reference_that_does_not_fit_is_said_with_the_fact(rltriage, tmp_path, healthy, slow):
    """The `run` object lists the band rules as skipped, with the reason."""
    file = tmp_path / "mine.json"
    rltriage("reference", "build", *healthy, "-o", file)
    for config, why in (("lr=0.1", "lr is 0.1 here and 0.001 there"), ("kl_coef=0", "lr not known here")):
        out = rltriage("replay", slow, "--reference", file, "--config", config, "--json").out
        run = json.loads(out.splitlines()[-1])
        assert why in {entry["rule"]: entry["why"] for entry in run["rules_skipped"]}["slower-than-reference"]


def test_without_a_reference_band_rules_are_skipped_and_said(rltriage, slow):
    """How to get one is in the reason."""
    run = json.loads(rltriage("replay", slow, "--json").out.splitlines()[-1])
    assert "rltriage reference build" in {e["rule"]: e["why"] for e in run["rules_skipped"]}["slower-than-reference"]


def test_too_few_runs_are_refused(rltriage, tmp_path, healthy):
    """Ten seeds at least; nothing is written."""
    ran = rltriage("reference", "build", *healthy[:3], "-o", tmp_path / "mine.json")
    assert ran.code == 2 and "3 runs are too few" in ran.err and not (tmp_path / "mine.json").exists()


def test_a_sick_run_among_the_healthy_ones_is_named(rltriage, tmp_path, healthy):
    """A reference made of sick runs finds nothing."""
    rows = (healthy[0] / "rows.jsonl").read_text().splitlines()
    rows[5] = rows[5].replace('"grad_norm": 0.2', '"grad_norm": NaN')
    (healthy[0] / "rows.jsonl").write_text("\n".join(rows) + "\n")
    ran = rltriage("reference", "build", *healthy, "-o", tmp_path / "mine.json")
    assert ran.code == 0 and "seed0: not-finite, gradient-not-finite fired: is this run healthy?" in ran.err


def test_an_unknown_metric_is_a_usage_error(rltriage):
    """The known ones are listed."""
    ran = rltriage("reference", "show", "tinyagent", "--metric", "rewrad")
    assert ran.code == 2 and "has no metric 'rewrad'" in ran.err


def test_coverage_says_what_can_be_named_and_what_to_log(rltriage, slow):
    """Text for people, one object a run for programs."""
    ran = rltriage("coverage", slow)
    assert ran.code == 0 and "possible faults can be named" in ran.out and "\nadd " in ran.out
    found = json.loads(rltriage("coverage", slow, "--json").out)
    assert found["run"] == "slow" and found["add"]["faults"]
    assert {entry["level"] for entry in found["faults"]} <= {"named", "hinted", "hidden", "excluded"}


def test_an_incident_says_what_differs_from_reference_and_earlier_run(rltriage, tmp_path, healthy):
    """As text, as JSON and in the report: the KL is off where the healthy runs, and the run before, had it on."""
    file, sick = tmp_path / "mine.json", tmp_path / "sick.jsonl"
    config = ("--config", "kl_coef=0.04")
    rltriage("reference", "build", *healthy, *config, "-o", file)
    sick.write_text("".join(json.dumps({"step": s, "reward": 0.1, "logp_gap": 3.5}) + "\n" for s in range(3)))
    given = (sick, "--reference", file, "--reference", healthy[3], "--config", "kl_coef=0", "--config", "lr=0.01")
    text = " ".join(rltriage("replay", *given).out.split())
    assert "config differs from the healthy reference mine: kl_coef 0.04 -> 0, lr 0.001 -> 0.01" in text
    assert "config differs from the run seed3: lr 0.001 -> 0.01" in text
    objects = [json.loads(line) for line in rltriage("replay", *given, "--json").out.splitlines()]
    (incident,) = [found for found in objects if found["type"] == "incident"]
    assert {(one["fact"], one["before"], one["now"]) for one in incident["config_changed"]} == {
        ("kl_coef", 0.04, 0),
        ("lr", 0.001, 0.01),
    }
    report = rltriage("report", *given, "--format", "md").out
    assert "The configuration differs from the run seed3: lr 0.001 -\\> 0.01" in report


def test_a_reference_that_cannot_be_read_stops_watch_before_it_starts(rltriage, tmp_path, slow):
    """The file is named."""
    for command in ("watch", "replay"):
        ran = rltriage(command, slow, "--reference", tmp_path / "none.json")
        assert ran.code == 2 and "none.json: cannot read the reference" in ran.err
