"""The commands on good input: formats, exit codes, and what a person sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from rltriage.engine.ruletests import firing_example
from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.explain import describe_rule
from rltriage.rules.loader import load_rules


def _rows(tmp_path: Path, rows: list[dict]) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def live_reference(tmp_path: Path) -> Path:
    """A run whose KL to the reference stays exactly 0 while the policy moves: fault 10, if kl_coef is above 0."""
    return _rows(
        tmp_path,
        [{"step": s, "reward": 0.2 + 0.01 * (s % 7), "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-3} for s in range(12)],
    )


def test_version(rltriage) -> None:
    """`--version` prints the package's version."""
    from rltriage import __version__

    assert __version__ in rltriage("--version").out


def test_module_runs_as_a_script() -> None:
    """`python -m rltriage` is the command line."""
    result = subprocess.run([sys.executable, "-m", "rltriage", "--help"], capture_output=True, text=True)
    assert result.returncode == 0
    assert "replay" in result.stdout


def test_replay_names_fault_and_first_test(rltriage, live_reference: Path) -> None:
    """Fault 10 is named as soon as three informative rows show it, with the test that decides."""
    ran = rltriage("replay", "--json", "--config", "kl_coef=0.1", live_reference)
    objects = [json.loads(line) for line in ran.out.splitlines()]
    alert = next(item for item in objects if item["type"] == "alert")
    assert ran.code == 1
    assert alert["format"] == 1
    assert alert["rule"] == "kl-ref-exactly-zero"
    assert alert["state"] == "firing"
    assert alert["severity"] == "critical"
    assert alert["suspects"][0]["fault"] == "ref_is_policy"
    assert alert["suspects"][0]["number"] == 10
    assert alert["first_test"]["command"].startswith("rltriage check --only 9")
    assert objects[-1]["type"] == "run"
    assert objects[-1]["rows"] == 12


def test_unknown_config_caps_at_info_and_asks(rltriage, live_reference: Path) -> None:
    """Without kl_coef the same rows are no alarm: the text asks for the fact that would decide."""
    ran = rltriage("replay", "--json", live_reference)
    alerts = [item for item in map(json.loads, ran.out.splitlines()) if item["type"] == "alert"]
    assert ran.code == 0
    assert {alert["severity"] for alert in alerts} <= {"info"}
    assert any("kl_coef" in alert["question"] for alert in alerts)


def test_fail_on_lowers_and_lifts_the_bar(rltriage, live_reference: Path) -> None:
    """`--fail-on info` fails on what the default lets pass; `never` always succeeds."""
    assert rltriage("replay", "--fail-on", "info", live_reference).code == 1
    assert rltriage("replay", "--fail-on", "never", "--config", "kl_coef=0.1", live_reference).code == 0


def test_replay_explain_prints_a_verdict_per_step(rltriage, live_reference: Path) -> None:
    """`--explain RULE` shows per step what was compared and why it did or did not fire."""
    ran = rltriage("replay", "--explain", "kl-ref-exactly-zero", "--config", "kl_coef=0.1", live_reference)
    lines = [line for line in ran.out.splitlines() if line.startswith("step")]
    assert len(lines) == 12
    assert "unknown" in lines[0]
    assert "holds" in lines[-1]


LEVELS = """\
version: 1
rules:
  - {id: high, summary: "{reward}", group: outcome, severity: warning, when: {threshold: {metric: reward, above: HIGH}},
     suspects: {}, first_test: run_invariants}
  - {id: low, summary: "{reward}", group: outcome, severity: warning, when: {threshold: {metric: reward, below: LOW}},
     suspects: {}, first_test: run_invariants}
  - {id: same, summary: "{reward}", group: outcome, severity: info, when: {threshold: {metric: reward, above: 0.1}},
     suspects: {}, first_test: run_invariants}
"""


def test_diff_shows_what_a_changed_threshold_changes(rltriage, tmp_path: Path) -> None:
    """Alerts gained, lost, earlier and later, per run and rule, as text and as JSON; what stays is not mentioned."""
    log = _rows(tmp_path, [{"step": step, "reward": 0.1 * step} for step in range(10)])
    for name, high, low in (("a", "0.45", "-1"), ("b", "0.75", "0.15"), ("c", "0.45", "-1")):
        (tmp_path / f"{name}.yaml").write_text(LEVELS.replace("HIGH", high).replace("LOW", low))
    ran = rltriage("replay", log, "--rules", tmp_path / "a.yaml", "--diff", tmp_path / "b.yaml")
    assert ran.out.splitlines() == [
        "later     run  high: warning at step 5 -> warning at step 8",
        "gained    run  low: silent -> warning at step 0",
        "1 gained, 1 later",
    ]
    assert ran.code == 1
    ran = rltriage("replay", log, "--json", "--rules", tmp_path / "b.yaml", "--diff", tmp_path / "a.yaml")
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [(each["rule"], each["change"], each["step_before"], each["step_after"]) for each in found] == [
        ("high", "earlier", 8, 5),
        ("low", "lost", 0, None),
    ]
    same = rltriage("replay", log, "--rules", tmp_path / "a.yaml", "--diff", tmp_path / "c.yaml")
    assert (same.code, same.out) == (0, "no difference\n")


def test_labels_are_name_and_value(rltriage, live_reference: Path) -> None:
    """A label without a value is a usage error that says how to write it."""
    assert rltriage("replay", "--label", "team=core", live_reference).code == 0
    ran = rltriage("replay", "--label", "team", live_reference)
    assert ran.code == 2 and "--label team=core" in ran.err


def test_rules_list_and_explain(rltriage) -> None:
    """Every listed rule can be explained, with its suspects and first test."""
    listed = [json.loads(line) for line in rltriage("rules", "list", "--json").out.splitlines()]
    tests = load_catalogue().first_tests
    assert len(listed) > 40
    for rule in listed[:5]:
        text = " ".join(rltriage("rules", "explain", rule["id"]).out.split())
        assert rule["id"] in text and all(fault in text for fault in rule["suspects"])
        assert f"first test: {tests[rule['first_test']].title}" in text


def test_check_prints_every_invariant_and_exit_code(rltriage) -> None:
    """A healthy trainer passes; a fault fails with its measured value and exit 1."""
    healthy = rltriage("check")
    assert healthy.code == 0
    assert "FAIL" not in healthy.out and "fail" not in healthy.out
    named = rltriage("check", "--fault", "mask_shift").out.splitlines()[-1]
    assert named.startswith("checks 1, 2, 5 fail: mask_shift (fault 1), ")
    faulty = rltriage("check", "--fault", "mask_shift", "--json", "--only", "1")
    result = json.loads(faulty.out)
    assert faulty.code == 1
    assert (result["number"], result["passed"]) == (1, False)
    assert result["value"] > 0


def test_train_writes_a_run_that_replays_to_the_same_alerts(rltriage, tmp_path: Path) -> None:
    """The journal of a live run, replayed, yields the alerts that fired live."""
    live = rltriage("train", "--fault", "ref_is_policy", "--steps", 5, "--runs", tmp_path, "--name", "r", "--json")
    again = rltriage("replay", "--json", tmp_path / "r")
    key = ("rule", "state", "step", "since_step", "severity", "id")

    def alerts(out: str) -> list[tuple]:
        found = [json.loads(line) for line in out.splitlines()]
        return [tuple(item[name] for name in key) for item in found if item["type"] == "alert"]

    assert live.code == again.code == 1
    assert alerts(live.out) == alerts(again.out)
    assert any(item[0] == "kl-ref-exactly-zero" for item in alerts(live.out))


def test_train_shows_the_alert_and_the_verdict_of_its_first_test(rltriage, tmp_path: Path) -> None:
    """The demo's promise: within the first row the mask fault is named, its first test runs and fails with a value."""
    ran = rltriage("train", "--fault", "mask_shift", "--steps", 1, "--runs", tmp_path)
    assert ran.code == 1
    assert "mask_shift" in ran.out
    assert "fault 1" in ran.out
    assert "FAIL" in ran.out


def test_gauges_are_served_while_training(rltriage, tmp_path: Path) -> None:
    """With --listen the address is printed; the port is given back at the end."""
    ran = rltriage("train", "--steps", 2, "--listen", "127.0.0.1:0", "--runs", tmp_path)
    assert ran.code == 0
    assert "/metrics" in ran.out


def test_the_command_line_writes_the_object(rltriage, tmp_path):
    """`rules compile --to prometheusrule`: the same groups as the rule file, of the pack and of the alerts on rltriage."""
    for more, name in (((), "rltriage"), (("--kind", "meta"), "rltriage-meta")):
        for target, file in (("prometheus", "rules.yaml"), ("prometheusrule", "object.yaml")):
            assert rltriage("rules", "compile", "--to", target, *more, "-o", tmp_path / file).code == 0
        found = yaml.safe_load((tmp_path / "object.yaml").read_text())
        assert found["metadata"]["name"] == name
        assert found["spec"] == yaml.safe_load((tmp_path / "rules.yaml").read_text())


def test_a_fault_that_no_check_tells_from_others_names_its_rivals(rltriage) -> None:
    """Where what fails fits several faults, the others are named with their share."""
    *_, first, others = rltriage("check", "--fault", "temperature_mismatch").out.splitlines()
    assert first.startswith("checks 2, 3 fail: temperature_mismatch (fault 9), ")
    assert others.startswith("or it is engine_mismatch, ")


@pytest.mark.parametrize("group", ["profiles", "recorder", "reference", "rules", "silence"])
def test_no_command_is_introduced_by_half_a_sentence(rltriage, group: str) -> None:
    """The list of a group's commands says what each does, whole."""
    assert "..." not in rltriage(group, "--help").out.partition("Commands:")[2]


@pytest.mark.parametrize(
    "command",
    [
        "coverage LOG",
        "rules compile --from metrics",
        "rules list",
        "profiles list",
        "profiles show trl",
        "profiles check LOG",
        "train --fault list",
    ],
)
def test_lists_keep_to_80_columns(rltriage, live_reference: Path, command: str, monkeypatch) -> None:
    """What is listed for people is as wide as a terminal; a path is as long as it is."""
    monkeypatch.chdir(live_reference.parent)
    ran = rltriage(*command.replace("LOG", live_reference.name).split())
    text = ran.err if "compile" in command else ran.out
    assert text.count("\n") > 5 and all(len(line) <= 80 for line in text.splitlines())


def test_every_rule_is_explained_in_80_columns(rltriage) -> None:
    """Only a command of a first test may be longer: it is copied."""
    pack = load_rules("triage")
    for rule in pack.rules:
        lines = describe_rule(rule, pack.catalogue, firing_example(rule.id, pack)).splitlines()
        assert not [line for line in lines if len(line) > 80 and not line.startswith("  $ ")], rule.id


def test_a_long_reason_of_a_recording_is_folded(rltriage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry a step; what does not fit is indented below it, and nothing is cut."""
    reason = "critical alert " + ", ".join(f"some-rule-with-a-long-name-{n}" for n in range(5))
    kept = [SimpleNamespace(step=7, bytes=700_000, reason=reason)]
    monkeypatch.setattr("rltriage.trainer.recorder.all_recordings", lambda folder: (kept, []))
    first, *others = rltriage("recorder", "list", tmp_path).out.splitlines()
    assert first.startswith("step     7    0.7 MB  critical alert") and len(others) >= 2
    assert all(len(line) <= 80 for line in (first, *others)) and all(line.startswith(" " * 22) for line in others)
    assert " ".join(" ".join((first, *others)).split()).endswith(reason)


def test_verdicts_are_on_stdout(rltriage, tmp_path: Path) -> None:
    """Also that nothing is wrong: linters' success is a result; stderr stays empty."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 2\nrulez: []\n")
    assert rltriage("rules", "check") == (0, "triage: no problems\n", "")
    ran = rltriage("rules", "check", bad)
    assert ran.code == 1 and ran.out.endswith("3 problems\n") and ran.err == ""
    assert rltriage("silence", "list", "--state", tmp_path) == (0, "nothing is silenced\n", "")


def test_a_folder_of_runs_says_what_to_name(rltriage, tmp_path: Path) -> None:
    """`rltriage replay runs` is what one tries first."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text('{"step": 1, "reward": 1}\n')
    ran = rltriage("replay", tmp_path)
    assert ran.code == 2
    assert f"name one of the 2 in it, such as {tmp_path / 'a'}, or {tmp_path / '*'} for all" in ran.err
    assert rltriage("replay", tmp_path / "a", tmp_path / "b").code == 0


def test_facts_that_a_hook_found_are_no_slip_of_the_user(rltriage, tmp_path: Path) -> None:
    """Only a fact that was given on the command line is pointed out where nobody knows it."""
    run = {"format": 1, "id": "r", "config": {"scale_rewards": "group"}, "profile": "generic"}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "rows.jsonl").write_text('{"step": 1, "reward": 1}\n')
    assert rltriage("replay", tmp_path).err == ""
    assert "'kl_ceof'; did you mean 'kl_coef'?" in rltriage("replay", tmp_path, "--config", "kl_ceof=1").err


def test_lines_of_several_runs_are_told_apart(rltriage, tmp_path: Path) -> None:
    """Lines name no run; where the run changes its name stands above them, and every line says its step."""
    rows = [{"step": s, "reward": 0.2 + 0.01 * (s % 7), "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-3} for s in range(8)]
    for name in ("one", "two"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = rltriage("replay", tmp_path / "one.jsonl", tmp_path / "two.jsonl", "--config", "kl_coef=0.1").out
    lines = out.splitlines()
    assert lines[0].startswith("critical kl-ref-exactly-zero, step 3: ")
    second = lines.index("two:")
    assert lines[second + 1].startswith("critical kl-ref-exactly-zero, step 3: ")
    assert "one:" not in lines


def test_a_long_explanation_fits_the_terminal() -> None:
    """Its lines are as wide as the terminal, the reason in its own column; in a pipe a step is one line."""
    from rltriage.cli.replay import explained_step

    reason = ", ".join(f"metric_{number} = 0.{number}" for number in range(30))
    lines = explained_step(3, "holds", reason, 100).splitlines()
    assert max(map(len, lines)) <= 100 and all(line.startswith(" " * 28) for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == f"step 3 holds {reason}"
    assert explained_step(3, "holds", reason, sys.maxsize) == f"step      3  holds          {reason}"
