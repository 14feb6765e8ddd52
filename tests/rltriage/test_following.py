"""Many logs at once: how soon a row is seen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rltriage.engine.report import StepReport
from rltriage.engine.rows import Row, Run
from rltriage.engine.rundir import RunDirectory, row_line
from rltriage.following import ALERTS_OUTLIVE, Fleet
from rltriage.places import RunNames
from rltriage.rules.config import SourceConfig, parse_config
from rltriage.rules.loader import load_rules
from rltriage.watching import STALE_AFTER


def test_a_log_that_was_quiet_for_hours_is_looked_at_in_every_round(tmp_path: Path) -> None:
    """A row is seen within a round of half a second, however long the run was silent: one look at a file costs little."""
    path = tmp_path / "run.jsonl"
    source = SourceConfig("path", str(path))
    fleet = Fleet(
        [source],
        load_rules("triage"),
        (),
        names=RunNames(None),
        retention=1e6,
        owners={},
        open_alerts=lambda run, alerts, known: None,
    )

    def write(step: int) -> None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "reward": 0.5, "loss": 0.5}) + "\n")

    write(0)
    fleet.discover(0.0, os.path.getmtime(path))
    assert fleet.poll(0.0) and fleet.rows == 1
    assert fleet.poll(7200.0) and fleet.rows == 1
    write(1)
    assert fleet.poll(7200.5) and fleet.rows == 2
    fleet.close()


class Heard:
    """A sink that keeps the transitions of alerts and the ends of runs."""

    def __init__(self) -> None:
        self.alerts: list[tuple[str, str]] = []
        self.ends: list[str] = []

    def publish(self, run: Run, row: Row | None, report: StepReport) -> None:
        self.alerts += [(alert.rule, alert.state) for alert in report.alerts]

    def end(self, run_id: str, state: str, now: float) -> None:
        self.ends.append(state)


def followed(path: Path, heard: Heard, *others: Any) -> Fleet:
    source = SourceConfig("path", str(path), config={"kl_coef": 0.1})
    return Fleet(
        [source],
        load_rules("triage"),
        (heard, *others),
        names=RunNames(None),
        retention=1e6,
        owners={},
        open_alerts=lambda run, alerts, known: None,
    )


def rows(directory: RunDirectory, first: int, last: int, kl: float) -> None:
    for step in range(first, last):
        directory.write_rows(
            row_line(Row(step, {"reward": 0.5, "entropy": 0.5, "kl_ref": kl, "grad_norm": 0.2, "lr": 1e-3}, 1e9 + step))
        )


@pytest.mark.parametrize("state", ["finished", "crashed"])
def test_a_run_that_says_that_it_is_over_is_not_overdue(tmp_path: Path, state: str) -> None:
    """A healthy run that has closed ends as it says, at once, and nobody is told hours later that it is silent."""
    heard, directory = Heard(), RunDirectory(tmp_path / "run", "run")
    rows(directory, 0, 1, 0.02)
    fleet = followed(tmp_path / "run", heard)
    fleet.discover(0.0, 1e9)
    fleet.poll(0.0)
    rows(directory, 1, 30, 0.02)
    fleet.poll(30.0)
    directory.end(state, 1e9 + 30)
    for seconds in (31.0, 10_000.0):
        fleet.poll(seconds)
        fleet.tick(1e9 + seconds)
    assert heard.ends == [state] and not [rule for rule, _ in heard.alerts if rule == "row-overdue"]
    fleet.close()


def test_the_page_shows_at_once_that_a_run_is_over(tmp_path: Path) -> None:
    """Its alerts stay open for a while, its state does not wait for them; a later row makes it running again."""
    from rltriage.exporters.page.board import Board

    board, heard = Board().use(load_rules("triage")), Heard()
    directory = RunDirectory(tmp_path / "run", "run")
    rows(directory, 0, 12, 0.0)
    fleet = followed(tmp_path / "run", heard, board)
    fleet.discover(0.0, 1e9)
    fleet.poll(0.0)
    fleet.tick(1e9 + 12)
    assert ("kl-ref-exactly-zero", "firing") in heard.alerts and board.report("run").state == "running"
    directory.end("finished", 1e9 + 12)
    fleet.tick(1e9 + 13)
    assert board.report("run").state == "finished"
    assert not heard.ends and "ended" not in {state for _, state in heard.alerts}
    again = RunDirectory(tmp_path / "run", "run", resume=True)
    rows(again, 12, 13, 0.0)
    fleet.poll(60.0)
    assert board.report("run").state == "running"
    fleet.close()


def test_a_run_that_was_killed_is_overdue(tmp_path: Path) -> None:
    """Whoever cannot say that it is over is missed, and then stale; a row opens it again, and it is overdue no more."""
    heard, directory = Heard(), RunDirectory(tmp_path / "run", "run")
    rows(directory, 0, 1, 0.02)
    fleet = followed(tmp_path / "run", heard)
    fleet.discover(0.0, 1e9)
    fleet.poll(0.0)
    rows(directory, 1, 30, 0.02)
    directory.close()
    fleet.poll(30.0)
    aged(tmp_path / "run", 1e9 + 29)
    fleet.tick(1e9 + 31)
    fleet.tick(1e9 + 1000)
    assert heard.alerts == [("row-overdue", "firing")] and not heard.ends
    fleet.tick(1e9 + 31 + STALE_AFTER + 1)
    fleet.tick(1e9 + 10_000)
    assert heard.alerts[1:] == [("row-overdue", "stale")] and heard.ends == ["stale"]
    again = RunDirectory(tmp_path / "run", "run", resume=True)
    again.write_rows(row_line(Row(30, {"reward": 0.5, "entropy": 0.5, "kl_ref": 0.02}, 1e9 + 10_000)))
    fleet.poll(10_001.0)
    fleet.tick(1e9 + 10_001)
    assert heard.alerts[2:] == [("row-overdue", "resolved")] and heard.ends == ["stale"]
    fleet.close()


def aged(run: Path, at: float) -> None:
    """The run's files, as if last written then."""
    for file in (run / "rows.jsonl", run / "run.json"):
        os.utime(file, (at, at))


def test_a_run_that_was_killed_before_anybody_followed_it_is_stale_at_once(tmp_path: Path) -> None:
    """Nobody is told that its rows are overdue; its alert stays open, under the id that it has when rows come again."""
    heard, directory = Heard(), RunDirectory(tmp_path / "run", "run")
    rows(directory, 0, 6, 0.0)
    directory.close()
    aged(tmp_path / "run", 1e9 + 5)
    fleet = followed(tmp_path / "run", heard)
    fleet.discover(0.0, 1e9 + 7200)
    fleet.poll(0.0)
    (before,) = fleet.runs["run"].monitor.open_alerts
    fleet.tick(1e9 + 7200)
    assert heard.ends == ["stale"]
    assert heard.alerts == [("kl-ref-exactly-zero", "firing"), ("kl-ref-exactly-zero", "stale")]

    rows(RunDirectory(tmp_path / "run", "run", resume=True), 6, 7, 0.0)
    fleet.poll(10.0)
    (after,) = fleet.runs["run"].monitor.open_alerts
    assert heard.alerts[2:] == [("kl-ref-exactly-zero", "firing")] and after.id == before.id
    fleet.forget(2e6, 1e9 + 2e6)
    assert heard.alerts[3:] == [("kl-ref-exactly-zero", "stale"), ("kl-ref-exactly-zero", "ended")]
    assert heard.ends == ["stale", "stale"]
    fleet.close()


@pytest.mark.parametrize(
    ("times", "silent", "state"),
    [
        ([0.0, 7200.0, 14400.0], 36_000.0, None),
        ([0.0, 7200.0, 14400.0], 150_000.0, "stale"),
        ([0.0, 7200.0], 36_000.0, None),
        ([0.0], 36_000.0, None),
        ([0.0], 90_000.0, "stale"),
        ([0.0, 10.0, 20.0], 3000.0, None),
        ([0.0, 10.0, 20.0], 4000.0, "stale"),
    ],
)
def test_how_long_a_run_may_be_silent_depends_on_its_pace(
    tmp_path: Path, times: list[float], silent: float, state: str | None
) -> None:
    """Twenty of its own intervals and an hour at the least; a day where nobody knows its pace."""
    heard, directory = Heard(), RunDirectory(tmp_path / "run", "run")
    for step, time in enumerate(times):
        directory.write_rows(row_line(Row(step, {"reward": 0.5}, 1e9 + time)))
    directory.close()
    aged(tmp_path / "run", 1e9)
    fleet = followed(tmp_path / "run", heard)
    fleet.discover(0.0, 1e9)
    fleet.poll(0.0)
    fleet.tick(1e9 + times[-1] + silent)
    assert heard.ends == ([] if state is None else [state])
    fleet.close()


@pytest.mark.parametrize("file", ["rows.jsonl", "run.json"])
def test_a_run_whose_files_are_written_is_not_stale(tmp_path: Path, file: str) -> None:
    """Its rows' times may be local ones, hours behind; and a resumed run says so before its first row."""
    heard, directory = Heard(), RunDirectory(tmp_path / "run", "run")
    rows(directory, 0, 6, 0.02)
    directory.close()
    aged(tmp_path / "run", 1e9)
    os.utime(tmp_path / "run" / file, (1e9 + 25_000, 1e9 + 25_000))
    fleet = followed(tmp_path / "run", heard)
    fleet.discover(0.0, 1e9 + 25_000)
    fleet.poll(0.0)
    fleet.tick(1e9 + 25_060)
    assert not heard.ends
    fleet.close()


def test_alerts_outlive_their_run_so_that_they_are_told_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    """A run that an alert has stopped keeps it for a quarter of an hour; rows of a resumed run open it again."""
    heard, directory = Heard(), RunDirectory(tmp_path / "run", "run")
    rows(directory, 0, 6, 0.0)
    directory.end("finished", 1e9 + 6)
    fleet = followed(tmp_path / "run", heard)
    fleet.discover(0.0, 1e9)
    fleet.poll(0.0)
    fleet.tick(1e9 + 7)
    assert heard.alerts == [("kl-ref-exactly-zero", "firing")] and not heard.ends
    fleet.tick(1e9 + 7 + ALERTS_OUTLIVE)
    assert heard.alerts[-1] == ("kl-ref-exactly-zero", "ended") and heard.ends == ["finished"]

    again = RunDirectory(tmp_path / "run", "run", resume=True)
    rows(again, 6, 12, 0.0)
    fleet.poll(2000.0)
    fleet.tick(1e9 + 13)
    assert heard.alerts[-1] == ("kl-ref-exactly-zero", "firing") and heard.ends == ["finished"]
    again.end("crashed", 1e9 + 2001)
    fleet.tick(1e9 + 2002 + ALERTS_OUTLIVE)
    assert heard.ends == ["finished", "crashed"]
    fleet.close()


@pytest.mark.parametrize(
    ("written", "wanted"),
    [(True, "write config: {kl_coef: ...} at its source in rltriage.yaml"), (False, "pass --config kl_coef=...")],
)
def test_a_question_says_where_it_is_answered(tmp_path: Path, written: bool, wanted: str) -> None:
    """Runs that a file names are told more by that file, those of the command line by its option."""
    path = tmp_path / "run.jsonl"
    sources = (
        parse_config(f"version: 1\nsources: [{{path: {path}}}]").sources if written else [SourceConfig("path", str(path))]
    )
    told: list[str] = []
    fleet = Fleet(
        sources,
        load_rules("triage"),
        (),
        names=RunNames(None),
        retention=1e6,
        owners={},
        open_alerts=lambda run, alerts, known: told.extend(alert.question for alert in alerts),
    )
    rows = (
        {"step": step, "reward": 0.5 + 0.01 * (step % 3), "kl_ref": 0.0, "lr": 1e-5, "grad_norm": 0.3} for step in range(9)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fleet.discover(0.0, os.path.getmtime(path))
    fleet.poll(0.0)
    assert any(wanted in question for question in told), told


def test_names_that_are_nested_too_deeply_are_given_anew(tmp_path: Path) -> None:
    """A damaged file of names costs the names, not the service."""
    file = tmp_path / "runs.json"
    file.write_text("[" * 100_000)
    assert RunNames(file).name(["a.jsonl"]) == {"a.jsonl": "a"}


def test_a_wrong_profile_is_said_with_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The kind of an error tells nobody what to write instead."""
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"step": 0, "reward": 0.5}) + "\n")
    fleet = Fleet(
        [SourceConfig("path", str(path), profile="trll")],
        load_rules("triage"),
        (),
        names=RunNames(None),
        retention=1e6,
        owners={},
        open_alerts=lambda run, alerts, known: None,
    )
    fleet.discover(0.0, os.path.getmtime(path))
    fleet.poll(0.0)
    assert "no profile 'trll'; choose one of" in caplog.text
    fleet.close()
