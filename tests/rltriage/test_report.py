"""`rltriage report`: files, formats, several runs, and mistakes."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import jsonschema
import pytest

from rltriage.engine.rows import Row
from rltriage.engine.rundir import RunDirectory, row_line


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Fault 10, if kl_coef is above 0."""
    path = tmp_path / "live.jsonl"
    rows = [
        {"step": s, "time": 1.7e9 + s, "reward": 0.2 + 0.01 * (s % 7), "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-3}
        for s in range(12)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_page_is_written_and_the_headline_said(rltriage, log: Path, tmp_path: Path) -> None:
    """The file holds the report; the terminal has the sentence; a report that was written is no failure."""
    target = tmp_path / "out.html"
    ran = rltriage("report", log, "-o", target, "--config", "kl_coef=0.1")
    assert ran.code == 0
    assert "live: ref_is_policy (fault 10" in ran.out
    page = target.read_text()
    assert page.lstrip().startswith("<!doctype html>")
    assert "ref_is_policy" in page


def test_formats_follow_the_files_ending(rltriage, log: Path, tmp_path: Path) -> None:
    """`.md` and `.json` need no --format; both go to stdout where no file is named."""
    rltriage("report", log, "-o", tmp_path / "out.md")
    assert (tmp_path / "out.md").read_text().startswith("# ")
    assert json.loads(rltriage("report", log, "--format", "json").out)["run"] == "live"


def test_the_exit_code_can_tell(rltriage, log: Path, tmp_path: Path) -> None:
    """With --fail-on a critical alert makes the exit code 1."""
    ran = rltriage("report", log, "-o", tmp_path / "o.html", "--config", "kl_coef=0.1", "--fail-on", "critical")
    assert ran.code == 1


def test_two_runs_share_a_page(rltriage, log: Path, tmp_path: Path) -> None:
    """Several runs are listed first, each with its section."""
    other = tmp_path / "other.jsonl"
    other.write_text(log.read_text())
    rltriage("report", log, other, "-o", tmp_path / "both.html")
    page = (tmp_path / "both.html").read_text()
    assert "2 runs" in page
    assert page.count("<article") == 2


def test_what_cannot_be_written_or_read_is_said(rltriage, log: Path, tmp_path: Path) -> None:
    """A missing folder and a missing log are one sentence on stderr and exit code 2."""
    ran = rltriage("report", log, "-o", tmp_path / "no" / "o.html")
    assert ran.code == 2
    assert "cannot write" in ran.err
    assert rltriage("report", tmp_path / "none.jsonl").code == 2


def test_the_schema_is_printed(rltriage, log: Path) -> None:
    """`--schema` needs no run; what `--format json` writes fits what it prints."""
    ran = rltriage("report", "--schema")
    assert ran.code == 0
    report = json.loads(rltriage("report", log, "--format", "json", "--config", "kl_coef=0.1").out)
    jsonschema.validate(report, json.loads(ran.out))


def test_what_could_not_be_read_is_said(rltriage, log: Path, tmp_path: Path) -> None:
    """Lines that break off are counted in the report and on stderr, as in replay; JSON has the reasons."""
    lines = log.read_text().splitlines()
    half = tmp_path / "half.jsonl"
    half.write_text("".join((line if place % 2 else line[:12]) + "\n" for place, line in enumerate(lines)))
    told = "6 lines were not understood, the first is line 1: "
    ran = rltriage("report", half, "-o", tmp_path / "half.html")
    assert ran.code == 0 and f"half: {told}" in ran.err and told in (tmp_path / "half.html").read_text()
    found = json.loads(rltriage("report", half, "--format", "json").out)
    assert found["bad_rows"] == 6 and [bad["line"] for bad in found["bad_examples"]] == [1, 3, 5, 7, 9]
    jsonschema.validate(found, json.loads(rltriage("report", "--schema").out))
    assert told in rltriage("replay", half).out and f"half: {told}" in rltriage("replay", half, "--json").err
    for command in ("coverage", "export"):
        assert f"half: {told}" in rltriage(command, half).err


def test_a_packed_log_that_breaks_off_is_said(rltriage, log: Path, tmp_path: Path) -> None:
    """A truncated .gz is no short run."""
    packed = gzip.compress(log.read_bytes() * 400)
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    ran = rltriage("report", tmp_path / "cut.jsonl.gz", "--format", "md")
    assert "the packed file is damaged or cut off here" in ran.err
    assert "the packed file is damaged or cut off here" in ran.out


@pytest.mark.parametrize("command", ["replay", "replay --diff triage", "report --format md", "export", "coverage"])
def test_a_misspelt_fact_is_said_by_every_command(rltriage, log: Path, command: str) -> None:
    """`--config klcoef=0.1` tells nothing to any rule; that is said once, with the name that was meant."""
    ran = rltriage(*command.split(), log, "--config", "klcoef=0.1", "--config", "lr_schedule=linear")
    assert ran.err.count("'klcoef'; did you mean 'kl_coef'?") == 1


def test_a_name_does_not_steer_the_terminal(rltriage, tmp_path: Path) -> None:
    """A run's id with a terminal's control sequence is shown without its effect."""
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"step": 0, "run": "\x1b[2Jbad", "reward": 0.1}) + "\n")
    assert "\x1b" not in rltriage("report", path, "-o", tmp_path / "x.html").out


@pytest.mark.parametrize(
    ("ended", "later", "state", "alert"),
    [
        ("finished", 9e6, "finished", "ended"),
        ("crashed", 9e6, "crashed", "ended"),
        (None, 60.0, "running", "firing"),
        (None, 7200.0, "stale", "stale"),
    ],
)
def test_a_run_that_did_not_finish_is_not_called_finished(
    rltriage, tmp_path: Path, monkeypatch, ended: str | None, later: float, state: str, alert: str
) -> None:
    """As its run.json says, else by the age of its newest row; an alert that was open then stands, and is not resolved."""
    directory = RunDirectory(tmp_path / "run", "run", config={"kl_coef": 0.1})
    for step in range(12):
        metrics = {"reward": 0.2 + 0.01 * (step % 7), "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-3}
        directory.write_rows(row_line(Row(step, metrics, 1.7e9 + 10 * step)))
    directory.close() if ended is None else directory.end(ended, 1.7e9 + 115)
    monkeypatch.setattr("rltriage.replaying.now", lambda: 1.7e9 + 110 + later)
    found = json.loads(rltriage("report", tmp_path / "run", "--format", "json").out)
    assert found["state"] == state and found["headline"].startswith("ref_is_policy")
    assert [(one["rule"], one["state"]) for one in found["standing"]] == [("kl-ref-exactly-zero", alert)]
    for form in ("md", "html"):
        text = rltriage("report", tmp_path / "run", "--format", form, "-o", "-").out
        assert f"{state}, 12 rows" in text and "Nothing is wrong" not in text
    told = [json.loads(line) for line in rltriage("replay", tmp_path / "run", "--json").out.splitlines()]
    last = [one["state"] for one in told if one["type"] == "alert"][-1]
    assert last == alert


def test_rows_without_times_are_as_old_as_their_file(rltriage, tmp_path: Path, monkeypatch) -> None:
    """A day without a row where nobody knows the run's pace; a folder without a run.json is a log like any other."""
    directory = RunDirectory(tmp_path / "run", "run")
    directory.write_rows(b"".join(row_line(Row(step, {"reward": 0.2, "entropy": 0.5})) for step in range(12)))
    directory.close()
    os.utime(tmp_path / "run" / "rows.jsonl", (1.7e9, 1.7e9))

    def state(later: float) -> str:
        monkeypatch.setattr("rltriage.replaying.now", lambda: 1.7e9 + later)
        return json.loads(rltriage("report", tmp_path / "run", "--format", "json").out)["state"]

    assert (state(60.0), state(90_000.0)) == ("running", "stale")
    (tmp_path / "run" / "run.json").unlink()
    assert state(60.0) == "finished"
