"""The service: follows logs, tells people once, shows gauges, survives kills; receivers' journals are the witnesses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import chaos
import pytest

from rltriage.engine.report import EMPTY
from rltriage.engine.rows import Row, Run
from rltriage.engine.sources.lines import MOST_AT_ONCE
from rltriage.exporters.delivery.silences import Silence, Silences
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.http import serve_metrics
from rltriage.exporters.page.board import Board
from rltriage.places import expand
from rltriage.rules.config import load_config
from rltriage.rules.errors import DeliveryError, RltriageError, RulePackError
from rltriage.service import Service
from rltriage.watching import WatchedRun

ROOT = Path(__file__).parents[2]


SLIP = """\
version: 1
rules:
  - {id: mine, summary: low, group: behavior, severity: info, suspects: {}, first_test: entropy_term_sign,
     when: {any: [{threshold: {metric: entrpy, below: 1}}, {threshold: {metric: tool_latency, above: 9}}]}}
"""


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hook():
    """A webhook that keeps a journal."""
    with chaos.Journal() as journal:
        yield journal


@pytest.fixture
def am():
    """An Alertmanager's address with a journal."""
    with chaos.Journal() as journal:
        yield journal


@pytest.fixture
def setup(tmp_path, hook, am):
    """Writes the configuration and opens services on it; each is stopped at the end."""
    file = chaos.configure(tmp_path, hook.url, am.url)
    clock = Clock()
    opened = []

    def make(**given) -> Service:
        service = Service(load_config(file), **{"clock": clock} | given)
        service.open()
        opened.append(service)
        return service

    make.clock = clock
    yield make
    for service in opened:
        service.stop()


def write(tmp_path: Path, run: str, *clip: float, start: int = 0) -> None:
    """Append rows to a log; above .5 the alert `clip-high` fires."""
    with open(tmp_path / "logs" / f"{run}.jsonl", "a") as file:
        for step, value in enumerate(clip, start):
            file.write(json.dumps({"step": step, "clip_frac": value, "reward": 0.5}) + "\n")


def told(hook) -> list[tuple[str, str]]:
    """(run, state) of what the webhook accepted, in order."""
    return [(alert["run"], alert["state"]) for _, body in hook.accepted for alert in body["alerts"]]


def files(service: Service):
    """The fleet of what is on disk."""
    return service._fleets[0].fleet


def turn(service: Service) -> None:
    """What the scheduler does in a while, once."""
    for follower in files(service)._followers.values():
        follower.due = 0.0  # a log without news is asked less often than a test turns
    service.discover()
    service.poll()
    service.overdue()
    for name in service.dispatcher.routes:
        service.flush(name)


def test_alerts_of_a_log_reach_both_receivers(setup, tmp_path, hook, am):
    """Firing and resolved, once each, with fault and first test in the labels."""
    write(tmp_path, "r1", 0.1, 0.9)
    service = setup()
    turn(service)
    write(tmp_path, "r1", 0.1, start=2)
    turn(service)
    turn(service)
    assert told(hook) == [("r1", "firing"), ("r1", "resolved")]
    labels = am.accepted[0][1][0]["labels"]
    assert (labels["alertname"], labels["run"], labels["fault"]) == ("ClipHigh", "r1", "accum_norm")
    assert labels["first_test"] == "accumulation_equals_one_pass"


def test_the_endpoint_shows_rows_alerts_and_the_services_own_health(setup, tmp_path, hook):
    """Ready only after every log was read; counters of notifications and the state of the rules."""
    write(tmp_path, "r1", 0.1, 0.9)
    service = setup()
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{service.url}/-/ready", timeout=5)
    turn(service)
    assert urllib.request.urlopen(f"{service.url}/-/ready", timeout=5).status == 200
    text = urllib.request.urlopen(f"{service.url}/metrics", timeout=5).read().decode()
    assert 'rltriage_training_step{run="r1"} 1' in text
    assert 'rltriage_notifications_total{receiver="hook"} 1' in text and 'rltriage_receiver_up{receiver="hook"} 1' in text
    assert "rltriage_rules_reload_success 1" in text and "rltriage_outbox_durable 1" in text
    hook.weather = lambda: "500"
    write(tmp_path, "r1", 0.1, start=2)
    turn(service)
    text = urllib.request.urlopen(f"{service.url}/metrics", timeout=5).read().decode()
    assert 'rltriage_notifications_waiting{receiver="hook"} 1' in text and 'rltriage_receiver_up{receiver="hook"} 0' in text


def test_rules_that_have_never_fired_may_be_left_out(tmp_path):
    """`quiet_rules: false`: an engine beside each of many trainers exports what fired, and not a zero for every rule."""
    rows = ({"step": step, "reward": 0.5, "logp_placeholder_frac": 0.3} for step in range(5))
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rltriage.yaml").write_text(
        "version: 1\nlisten: 127.0.0.1:0\nsources: [{path: run.jsonl}]\nquiet_rules: false\n"
    )
    service = Service(load_config(tmp_path / "rltriage.yaml"))
    service.open()
    try:
        service.poll()
        lines = service.gauges.render().decode().splitlines()
    finally:
        service.stop()
    shown = [line for line in lines if line.startswith("rltriage_alert_firing{")]
    assert len(shown) == 1 and 'rule="logp-placeholder"' in shown[0] and shown[0].endswith(" 1.0")


def test_a_silence_keeps_an_alert_from_people_but_not_from_the_endpoint(setup, tmp_path, hook, am):
    """It is shown as firing and counted as silenced; when the silence ends while it fires, it is told."""
    service = setup()
    silences = Silences(service.config.state_dir)
    silences.add(Silence("r*", "clip-high", service._clock(), None), service._clock())
    write(tmp_path, "r1", 0.1, 0.9)
    turn(service)
    text = service.gauges.render().decode()
    assert told(hook) == [] and am.accepted == []
    assert "rltriage_alerts_silenced 1" in text and re.search(r'rltriage_alert_firing\{.*run="r1".*\} 1', text)
    silences.end("r*", "clip-high", service._clock())
    turn(service)
    assert told(hook) == [("r1", "firing")] and "rltriage_alerts_silenced 0" in service.gauges.render().decode()


def test_a_restart_says_nothing_twice_and_goes_on(setup, tmp_path, hook):
    """The log is replayed, the ids are the same, and rows that came meanwhile are judged."""
    write(tmp_path, "r1", 0.1, 0.9)
    first = setup()
    turn(first)
    first.stop()
    write(tmp_path, "r1", 0.9, 0.1, start=2)
    turn(setup())
    assert told(hook) == [("r1", "firing"), ("r1", "resolved")]


def test_new_logs_are_found_and_finished_ones_forgotten(setup, tmp_path, hook):
    """A log that has been silent for the retention ends its run, and its alerts as `ended`; an older one is not opened."""
    write(tmp_path, "old", 0.9)
    os.utime(tmp_path / "logs" / "old.jsonl", (1.0, 1.0))
    service = setup()
    turn(service)
    write(tmp_path, "new", 0.9)
    turn(service)
    assert told(hook) == [("new", "firing")] and set(files(service).runs) == {"new"}
    files(service)._followers[str(tmp_path / "logs" / "new.jsonl")].heard -= service.config.retention + 1
    turn(service)
    turn(service)
    assert told(hook)[1:] == [("new", "ended")] and not files(service).runs


def test_an_alert_that_no_rule_stands_by_after_a_restart_ends(setup, tmp_path, am):
    """Its rule was removed while the service was down; Alertmanager would believe it for ever."""
    write(tmp_path, "r1", 0.9)
    first = setup()
    turn(first)
    first.stop()
    rules = tmp_path / "rules.yaml"
    rules.write_text(rules.read_text().replace("clip-high", "clip-renamed"))
    turn(setup())
    states = {alert["labels"]["alertname"]: alert["annotations"]["state"] for _, body in am.accepted for alert in body}
    assert states == {"ClipHigh": "superseded", "ClipRenamed": "firing"}


def test_an_alert_of_a_run_whose_log_is_gone_ends_after_a_restart(setup, tmp_path, am):
    """Nobody will ever resolve it."""
    write(tmp_path, "r1", 0.9)
    first = setup()
    turn(first)
    first.stop()
    (tmp_path / "logs" / "r1.jsonl").unlink()
    turn(setup())
    assert [alert["annotations"]["state"] for _, body in am.accepted for alert in body][-1] == "superseded"


def test_rules_are_reloaded_when_a_file_changes_and_kept_when_it_is_wrong(setup, tmp_path, hook, caplog):
    """A mistake leaves the old rules in force and is said; the gauge tells Prometheus."""
    write(tmp_path, "r1", 0.1, 0.4)
    service = setup()
    turn(service)
    rules = tmp_path / "rules.yaml"
    good = rules.read_text()
    rules.write_text(good.replace("above: 0.5", "abvoe: 0.5"))
    service.reload_if_changed()
    assert not service.reload_ok and "did you mean `above`" in caplog.text
    rules.write_text(good.replace("above: 0.5", "above: 0.3"))
    service.reload_if_changed()
    assert service.reload_ok
    write(tmp_path, "r1", 0.4, start=2)
    turn(service)
    assert told(hook) == [("r1", "firing")]


OWN = """faults: {frost: {title: The weights are frozen, summary: S, first_test: thaw}}
first_tests: {thaw: {title: Thaw, tier: rows, how: Look at the lr, decides: {yes: frost}}}
rules:
  - {id: cold, summary: x, group: optimizer, severity: critical, when: {threshold: {metric: reward, above: .4}},
     suspects: {frost: 0.9}, first_test: thaw, why: measured}
  - {id: warm, summary: x, group: optimizer, severity: critical, when: {threshold: {metric: reward, above: 9}},
     suspects: {frost: 0.9}, first_test: thaw}
"""


def test_a_name_that_looks_misspelt_in_the_rules_is_said_once(setup, tmp_path, caplog) -> None:
    """When the service opens, and after a reload only what is new."""
    (tmp_path / "rules.yaml").write_text(SLIP)
    service = setup()
    assert caplog.text.count("the metric `entrpy` is not in the catalogue; did you mean `entropy`?") == 1
    (tmp_path / "rules.yaml").write_text(SLIP.replace("tool_latency", "rewrd"))
    service.reload_rules()
    assert service.reload_ok and caplog.text.count("`entrpy`") == 1 and caplog.text.count("`rewrd`") == 1
    assert "tool_latency" not in caplog.text


def test_who_speaks_of_rules_hears_of_reloaded_ones(setup, tmp_path, hook) -> None:
    """The page, messages and the series at 0 know a rule, its fault and its test from the reload on."""
    board = Board()
    service = setup(sinks=lambda pack: (board.use(pack),))
    rules = tmp_path / "rules.yaml"
    rules.write_text(rules.read_text().replace("rules:\n", OWN, 1))
    service.reload_if_changed()
    write(tmp_path, "r1", 0.1)
    turn(service)
    report = board.report("r1")
    assert report.rules["cold"].why == "measured" and len(report.symptoms) == 1
    assert re.search(r'rltriage_alert_\w+{run="r1",rule="warm".*} 0\.0\n', service.gauges.render().decode())
    assert any("The weights are frozen" in alert["title"] and "Look at the lr" in alert["text"]
               for _, body in hook.accepted for alert in [body, *body["alerts"]])  # fmt: skip


def test_a_state_folder_serves_one_service(setup, tmp_path):
    """Two would tell everything twice; once the first has stopped the second may start."""
    first = setup()
    with pytest.raises(DeliveryError, match="another rltriage"):
        setup()
    first.stop()
    setup()


def test_mistakes_are_found_before_anything_starts(setup, tmp_path):
    """Rules that cannot be loaded, an address that is taken: the state folder is free again afterwards."""
    rules = tmp_path / "rules.yaml"
    good = rules.read_text()
    rules.write_text("version: 1\nrules: 3\n")
    with pytest.raises(RulePackError):
        setup()
    rules.write_text(good)
    taken = setup()
    config = tmp_path / "rltriage.yaml"
    config.write_text(config.read_text().replace("127.0.0.1:0", taken.url.removeprefix("http://")))
    taken_port = taken.url
    taken.stop()
    with chaos.Journal() as other:
        config.write_text(config.read_text().replace(taken_port.removeprefix("http://"), other.url.removeprefix("http://")))
        with pytest.raises(DeliveryError, match="cannot listen"):
            setup()
    config.write_text(config.read_text().replace(other.url.removeprefix("http://"), "127.0.0.1:0"))
    setup()


def test_a_configuration_without_sources_is_refused(tmp_path):
    """It would watch nothing, and look as if all were well."""
    (tmp_path / "rltriage.yaml").write_text("version: 1\nlisten: 0\n")
    with pytest.raises(RltriageError, match="nothing to watch: name a SOURCE on the command line, or add `sources:`"):
        Service(load_config(tmp_path / "rltriage.yaml")).start()


def test_one_bad_log_does_not_stop_the_others(setup, tmp_path, hook):
    """Empty, binary, no rows at all, or a copy of a run that is followed already."""
    (tmp_path / "logs" / "empty.jsonl").touch()
    (tmp_path / "logs" / "binary.log").write_bytes(b"\0" * 5000)
    (tmp_path / "logs" / "text.txt").write_text("hello\n" * 50)
    write(tmp_path, "r1", 0.1, 0.9)
    service = setup()
    turn(service)
    assert told(hook) == [("r1", "firing")]
    write(tmp_path, "empty", 0.9)
    turn(service)
    assert told(hook)[1:] == [("empty", "firing")]


def test_run_ids_stay_when_a_namesake_appears(setup, tmp_path, hook):
    """An id that changed would make new alerts of those that were told."""
    for folder in ("a", "b"):
        (tmp_path / "logs" / folder).mkdir()
    (tmp_path / "rltriage.yaml").write_text(
        (tmp_path / "rltriage.yaml").read_text().replace("path: logs", "path: 'logs/*/metrics.jsonl'")
    )
    row = json.dumps({"step": 0, "clip_frac": 0.9, "reward": 0.5}) + "\n"
    (tmp_path / "logs" / "b" / "metrics.jsonl").write_text(row)
    first = setup()
    turn(first)
    (tmp_path / "logs" / "a" / "metrics.jsonl").write_text(row)
    turn(first)
    first.stop()
    turn(setup())
    assert told(hook) == [("metrics", "firing"), ("a/metrics", "firing")]


def test_a_metrics_endpoint_is_a_source_and_its_address_stays_secret(setup, tmp_path, hook, monkeypatch, caplog):
    """Asked again until it answers; the logs beside it are watched meanwhile, and nothing says where it is."""
    gauges = Gauges({}, clock=lambda: 0.0)
    with serve_metrics(gauges) as server:
        address = server.url
    monkeypatch.setenv("TRAINER_URL", f"{address}/metrics")
    config = tmp_path / "rltriage.yaml"
    config.write_text(config.read_text().replace("{path: logs}", "{path: logs}, {metrics: {env: TRAINER_URL}}"))
    write(tmp_path, "r1", 0.9)
    service = setup()
    turn(service)
    assert told(hook) == [("r1", "firing")] and service.ready
    with serve_metrics(gauges, address.removeprefix("http://")):
        for step in range(3):
            gauges.publish(Run("far"), Row(step, {"clip_frac": 0.9, "reward": 0.5}), EMPTY)
            for each in service._fleets[1].fleet._followers.values():
                each.due = 0.0
            turn(service)
    assert told(hook)[1:] == [("far", "firing")]
    assert address.rpartition(":")[2] not in caplog.text and "metrics 0" in caplog.text


def test_paths_folders_and_globs_name_logs_and_runs(tmp_path):
    """A run directory stands for its rows; other files in it are not logs of their own."""
    for run in ("one", "two"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        for name in ("rows.jsonl", "alerts.jsonl"):
            (tmp_path / "runs" / run / name).touch()
    (tmp_path / "runs" / "plain.csv").touch()
    (tmp_path / "runs" / "notes.md").touch()
    runs = [str(tmp_path / "runs" / name) for name in ("one", "two")]
    assert expand(str(tmp_path / "runs")) == [runs[0], str(tmp_path / "runs" / "plain.csv"), runs[1]]
    assert expand(str(tmp_path / "runs" / "*" / "rows.jsonl")) == expand(str(tmp_path / "**" / "rows.jsonl")) == runs
    assert expand(runs[0]) == [runs[0]] and expand(str(tmp_path / "none")) == []


def test_hundreds_of_logs(setup, tmp_path, hook):
    """Each is followed; a round over logs without news stays far below its interval."""
    for number in range(300):
        write(tmp_path, f"r{number}", 0.1, 0.9 if number % 100 == 0 else 0.1)
    service = setup()
    turn(service)
    assert sorted(run for run, _ in told(hook)) == sorted(f"r{number}" for number in range(0, 300, 100))
    for follower in files(service)._followers.values():
        follower.due = 0.0
    before = time.process_time()
    service.poll()
    assert files(service).logs == 300 and time.process_time() - before < 0.5


def test_rows_are_taken_in_slices_and_a_long_log_does_not_hold_up_short_ones(setup, tmp_path, hook):
    """Each slice goes on where the last one stopped, the logs take turns, and all is taken as it would be at once."""
    for step in range(12):
        write(tmp_path, "long", 0.9 if step % 4 == 3 else 0.1, start=step)
    write(tmp_path, "short", 0.9)
    fleet = files(setup())
    order = []
    fleet._sinks = (*fleet._sinks, Noting(order))
    calls = 1
    while not fleet.poll(time.monotonic(), pause=lambda: len(order) % 2 == 0):
        calls += 1
    assert [run for run, _ in order].index("short") == 2 and calls >= 6
    assert [step for run, step in order if run == "long"] == list(range(12)) and fleet.caught_up


class Noting:
    """A sink that notes run and step of each row."""

    def __init__(self, found):
        self.found = found

    def publish(self, run, row, report):
        if row is not None:
            self.found.append((run.id, row.step))

    def end(self, run_id, state, now):
        """Runs go on."""


def test_a_log_of_many_rows_is_read_in_parts_to_its_end(setup, tmp_path):
    """It is not caught up before its last row, and new rows behind a part are not missed."""
    write(tmp_path, "r1", *([0.1] * (MOST_AT_ONCE + 5)))
    service = setup()
    fleet = files(service)
    first = iter([False] * MOST_AT_ONCE)
    assert not fleet.poll(time.monotonic(), pause=lambda: next(first, True)) and not fleet.caught_up
    write(tmp_path, "r1", 0.1, start=MOST_AT_ONCE + 5)
    assert fleet.poll(time.monotonic()) and fleet.caught_up and fleet.rows == MOST_AT_ONCE + 6


def test_rows_that_cannot_be_judged_end_neither_their_log_nor_the_others(setup, tmp_path, hook, monkeypatch):
    """It is said once and counted."""
    write(tmp_path, "bad", 0.1)
    write(tmp_path, "good", 0.9)
    service = setup()
    emit = WatchedRun.emit
    monkeypatch.setattr(WatchedRun, "emit", lambda self, *given: 1 / 0 if self.run.id == "bad" else emit(self, *given))
    turn(service)
    assert told(hook) == [("good", "firing")] and files(service).errors >= 1
    monkeypatch.setattr(WatchedRun, "emit", emit)
    write(tmp_path, "bad", 0.9, start=1)
    turn(service)
    assert ("bad", "firing") in told(hook)


def test_sigterm_stops_gently_even_while_a_receiver_hangs(setup, tmp_path, hook):
    """Exit code 0; what could not be delivered is delivered by the next start."""
    release = threading.Event()

    def weather() -> str:
        release.wait(20)
        return "500"

    hook.weather = weather
    write(tmp_path, "r1", 0.9)
    command = [sys.executable, "-c", chaos.SERVICE, str(tmp_path / "rltriage.yaml")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not hook.attempts and time.monotonic() < deadline and not _waits(tmp_path):
        release.wait(0.05)
    process.send_signal(signal.SIGTERM)
    release.set()
    assert process.wait(30) == 0
    hook.weather = lambda: "fair"
    turn(setup())
    assert told(hook) == [("r1", "firing")]


def _waits(tmp_path: Path) -> bool:
    return (tmp_path / "state" / "outbox.sqlite").exists()


def test_kills_lose_nothing_and_repeat_nothing(tmp_path):
    """Five SIGKILLs at random moments, receivers that misbehave, clocks that jump; `make chaos` does fifty."""
    result = chaos.run(kills=5, seed=3, folder=tmp_path, pause=0.05, most=3)
    assert result.ok, (result, (tmp_path / "service.log").read_text()[-3000:])
    assert result.kills == 5 and result.told_between_kills >= 10, "the kills came before anything was delivered"


def _overdue_after(setup, seconds: float) -> set[str]:
    """The rules that fire when the clock has gone on by so much."""
    service = setup()
    turn(service)
    setup.clock.now += seconds
    turn(service)
    return {alert.rule for watched in files(service).runs.values() for alert in watched.monitor.open_alerts}


def _timed(tmp_path: Path, start: float, count: int = 30, first: int = 0) -> Path:
    log = tmp_path / "logs" / "timed.jsonl"
    with open(log, "a") as file:
        for step in range(first, first + count):
            file.write(json.dumps({"step": step, "time": start + 10 * step, "reward": 0.5 + 0.01 * (step % 5)}) + "\n")
    return log


def test_a_log_that_was_finished_before_is_not_overdue(setup, tmp_path):
    """Whoever looks at yesterday's log learns what its rows show, not that no more of them come."""
    (tmp_path / "rules.yaml").write_text("version: 1\nextends: triage\n")
    log = _timed(tmp_path, setup.clock.now - 7200)
    os.utime(log, (setup.clock.now - 6900, setup.clock.now - 6900))
    assert not [rule for rule in _overdue_after(setup, 3600) if "overdue" in rule]


def test_a_log_that_stops_while_it_is_watched_is_overdue(setup, tmp_path):
    """One row that came live is enough; and a log that was followed before a restart stays one that can stop."""
    (tmp_path / "rules.yaml").write_text("version: 1\nextends: triage\n")
    log = _timed(tmp_path, setup.clock.now - 400)
    os.utime(log, (setup.clock.now - 110, setup.clock.now - 110))
    service = setup()
    turn(service)
    _timed(tmp_path, setup.clock.now - 300, 1, 30)
    turn(service)
    setup.clock.now += 7200
    turn(service)
    first = {alert.rule for watched in files(service).runs.values() for alert in watched.monitor.open_alerts}
    assert [rule for rule in first if "overdue" in rule]
    service.stop()
    assert [rule for rule in _overdue_after(setup, 60) if "overdue" in rule]


def test_a_log_that_is_not_there_is_said(setup, tmp_path, caplog):
    """A misspelt path is waited for, for it may come, and named once; so is a log that ended long ago."""
    import logging
    from dataclasses import replace

    from rltriage.rules.config import SourceConfig

    old = tmp_path / "old.jsonl"
    old.write_text('{"step": 0, "reward": 0.1}\n')
    os.utime(old, (1.0, 1.0))
    config = setup().config
    sources = tuple(SourceConfig("path", str(path)) for path in (tmp_path / "nope.jsonl", old))
    with caplog.at_level(logging.WARNING):
        service = Service(replace(config, sources=sources, state_dir=tmp_path / "other"), clock=Clock())
        service.open()
        service.discover()
        service.stop()
    assert caplog.text.count("nope.jsonl: nothing there yet") == 1
    assert caplog.text.count("`rltriage replay` reads it") == 1


def test_a_declared_fact_that_nobody_knows_is_said(setup, tmp_path, caplog):
    """As `replay` does: once for the run, with what was meant."""
    import logging
    from dataclasses import replace

    write(tmp_path, "r1", 0.1)
    config = setup().config
    source = replace(config.sources[0], config={"kl_ceof": 0.1})
    with caplog.at_level(logging.WARNING):
        service = Service(replace(config, sources=(source,), state_dir=tmp_path / "other"), clock=Clock())
        service.open()
        for _ in range(2):
            write(tmp_path, "r1", *[0.1] * 6, start=1)
            turn(service)
        service.stop()
    assert caplog.text.count("did you mean 'kl_coef'?") == 1
