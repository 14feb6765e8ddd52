"""A finished run becomes blocks that a real Prometheus toolchain reads back value for value."""

import subprocess

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse

from rltriage.engine.report import EMPTY, StepReport
from rltriage.engine.rows import Row, Run
from rltriage.exporters.backfill import Recording
from rltriage.exporters.gauges import Gauges
from rltriage.rules.errors import SourceError

START = 1_700_000_000.0
ROWS = [Row(step, {"reward": step / 8, "length_pass": 3.0, "x/y": float("nan")}, START + 60 * step) for step in range(5)]


def backfill(runs, metrics):
    """The lines of runs that no rule has anything to say about."""
    gauges, recording = Gauges(metrics), Recording()
    for run, rows in runs:
        for row in rows:
            gauges.publish(run, row, EMPTY)
            recording.take(run, row, gauges.samples_of(run.id))
    return recording.lines()


def test_every_value_has_its_row_s_time(metrics):
    """Families are contiguous, series in the order of time, whatever the order of the rows."""
    text = "".join(backfill([(Run("a"), ROWS), (Run("b", {"project": "gym"}), ROWS[::-1])], metrics))
    families = {family.name: family for family in parse(text)}
    rewards = [(s.labels["run"], float(s.timestamp), s.value) for s in families["rltriage_reward_mean"].samples]
    assert rewards == [(run, row.time, row.metrics["reward"]) for run in "ab" for row in ROWS]
    assert [s.value for s in families["rltriage_training_step"].samples] == [0, 1, 2, 3, 4] * 2
    assert families["rltriage_outcome_response_length_mean_tokens"].samples[0].labels["outcome"] == "correct"


def test_two_rows_at_one_time_are_one_sample(metrics):
    """Prometheus holds one value a timestamp; the later row wins."""
    text = "".join(backfill([(Run("a"), [Row(1, {"reward": 1.0}, START), Row(2, {"reward": 2.0}, START)])], metrics))
    samples = [s for family in parse(text) if family.name == "rltriage_reward_mean" for s in family.samples]
    assert [s.value for s in samples] == [2.0]


def test_a_row_without_time_is_refused(metrics):
    """The error names the run, the step and what to log."""
    with pytest.raises(SourceError, match="run a has no time at step 3: log `time`"):
        "".join(backfill([(Run("a"), [Row(3, {"reward": 1.0})])], metrics))


def test_alerts_and_states_are_recorded_as_they_were(metrics, alert):
    """A finished run's alerts have the times of its rows, for annotations."""
    gauges, recording, run = Gauges(metrics), Recording(), Run("demo")
    for step, report in enumerate((EMPTY, StepReport(1, (alert,)), EMPTY)):
        gauges.publish(run, Row(step, {"reward": 1.0}, START + step), report)
        recording.take(run, Row(step, {"reward": 1.0}, START + step), gauges.samples_of("demo"))
    found = {family.name: family.samples for family in parse("".join(recording.lines()))}
    assert [(float(s.timestamp), s.value) for s in found["rltriage_alert_firing"]] == [(START + 1, 1), (START + 2, 1)]
    running = [s.value for s in found["rltriage_run_state"] if s.labels["state"] == "running"]
    assert running == [1, 1, 1] and gauges.samples_of("other") == []


def test_promtool_makes_blocks_of_it(server_binary, metrics, tmp_path):
    """What went in comes out of the blocks."""
    promtool = server_binary("promtool")
    source, data = tmp_path / "run.om", tmp_path / "data"
    source.write_text("".join(backfill([(Run("a"), ROWS)], metrics)))
    (data / "wal").mkdir(parents=True)
    made = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=168h", str(source), str(data)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    dump = subprocess.run([promtool, "tsdb", "dump", str(data)], capture_output=True, text=True, timeout=60).stdout
    found = {tuple(line.split("} ")[1].split()) for line in dump.splitlines() if "rltriage_reward_mean" in line}
    assert found == {(f"{row.metrics['reward']:g}", str(int(row.time * 1000))) for row in ROWS}
