"""The flight recorder: when it keeps a step, what it keeps, and that the step can be repeated bit by bit."""

import json
import math
import shutil

import pytest
import torch

from rltriage.engine.report import Alert, StepReport
from rltriage.engine.rows import Row
from rltriage.rules.errors import SourceError
from rltriage.trainer import TrainConfig, train
from rltriage.trainer.recorder import FlightRecorder, Trigger, find_recording, list_recordings
from rltriage.trainer.replay import replay_step


def row(step, grad_norm):
    """A row with a gradient norm."""
    return Row(step, {"grad_norm": grad_norm})


def critical(step):
    """A report in which a critical alert starts to fire."""
    alert = Alert("id", "run", "sampler-gap", "firing", "critical", "consistency", step, step, 0, "", {}, (), "")
    return StepReport(step, (alert,))


def fired(norms):
    """Steps at which the default trigger fires on a series of gradient norms."""
    trigger = Trigger()
    return [step for step, norm in enumerate(norms) if trigger(row(step, norm), None)]


def test_the_trigger_fires_above_three_running_medians():
    """Not before five rows, not at exactly three times, and a spike does not raise its own limit much."""
    assert fired([0.2] * 6 + [0.6, 0.61, 0.2, 0.61]) == [7, 9]
    assert fired([5.0, 0.2, 0.2, 0.2]) == []


def test_the_trigger_fires_on_nan_and_infinity_at_any_row():
    """NaN is not greater than anything, so the condition is written as its negation."""
    assert fired([math.nan, 0.2, 0.2]) == [0]
    assert fired([0.2] * 6 + [math.inf, 0.2]) == [6]


def test_the_trigger_fires_when_a_critical_alert_starts():
    """The report that `emit` returns is read; a row without one, or another object, is not."""
    trigger = Trigger()
    assert trigger(row(0, 0.2), critical(0)) == "critical alert sampler-gap"
    assert trigger(row(1, 0.2), StepReport(1)) == "" == trigger(row(2, 0.2), object())


def record(folder, fault=None, at=1, **config):
    """A short run that records the step `at`."""
    recorder = FlightRecorder(folder, trigger=lambda row, report: "asked for" if row.step == at else "")
    rows = train(TrainConfig(**config), fault=fault, steps=at + 1, checks=False, eval_tasks=(), recorder=recorder)
    return rows[at]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """A healthy run's recording, made once, and the row of its step."""
    folder = tmp_path_factory.mktemp("healthy")
    return folder, record(folder)


@pytest.fixture
def recording(healthy, tmp_path):
    """A copy of it that a test may damage."""
    return shutil.copytree(healthy[0], tmp_path / "copy")


def check_replay(folder, recorded):
    """Every statistic of the update comes out again."""
    outcome = replay_step(folder, 1)
    assert outcome.exact and outcome.differences == () and outcome.compared > 15
    assert find_recording(folder, 1).statistics == dict(recorded.metrics)


def test_a_replayed_step_gives_the_same_bits(healthy):
    """Model, Adam's moments, batch and generator are enough: every update statistic is equal (chapter 18.8)."""
    check_replay(*healthy)


@pytest.mark.parametrize("fault", ["mask_shift", "dropout_active", "accum_norm"])
def test_a_step_of_a_faulty_trainer_replays_with_its_fault(tmp_path, fault):
    """The fault's own arithmetic, its dropout masks included, is repeated bit by bit."""
    check_replay(tmp_path, record(tmp_path, fault))


def test_the_reference_of_a_kl_term_is_recorded_too(tmp_path):
    """A replay without the frozen reference would give another KL."""
    record(tmp_path, kl_coef=0.1)
    assert replay_step(tmp_path, 1).exact


def test_a_replay_says_which_number_moved(recording):
    """With one statistic altered, exactly that one is named."""
    file = recording / "step-1" / "meta.json"
    meta = json.loads(file.read_text())
    meta["statistics"]["entropy"] = (1.5).hex()
    meta["environment"]["torch"] = "0.0"
    file.write_text(json.dumps(meta))
    outcome = replay_step(recording, 1)
    assert [(m.name, m.recorded) for m in outcome.moved] == [("entropy", 1.5)]
    assert outcome.differences == (f"torch is {torch.__version__}, was 0.0",)


def test_a_replay_shows_the_episodes_that_dominate(tmp_path):
    """The NaN episode comes first, with its text."""
    record(tmp_path, "nonfinite", at=8)
    outcome = replay_step(tmp_path, 8)
    assert outcome.exact
    assert math.isnan(outcome.dominant[0].reward + outcome.dominant[0].advantage)
    assert outcome.dominant[0].text.startswith("<bos> <task> fix")


def test_a_changed_file_is_refused(recording):
    """A recording whose bytes are not those that were hashed would replay something else."""
    file = recording / "step-1" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with pytest.raises(SourceError, match=r"model\.safetensors: is damaged or was changed"):
        replay_step(recording, 1)


@pytest.mark.parametrize("text", ["", "[]", '{"format": 9}', '{"format": 1, "step": "2"}'])
def test_a_broken_meta_file_is_one_clear_error(tmp_path, text):
    """Empty, of another format, or incomplete."""
    (tmp_path / "step-2").mkdir()
    (tmp_path / "step-2" / "meta.json").write_text(text)
    with pytest.raises(SourceError, match=r"meta\.json: "):
        list_recordings(tmp_path)


def test_a_step_that_was_not_recorded_is_refused(tmp_path):
    """The error lists the steps that were."""
    with pytest.raises(SourceError, match="step 4 was not recorded: nothing was"):
        find_recording(tmp_path, 4)


def fill(recorder, steps):
    """Record steps with a tensor of 1,000 floats each."""
    for step in steps:
        recorder.before_update({"batch": {"x": torch.zeros(1000)}}, {})
        recorder.after_row(row(step, 1.0), None)


def test_recordings_are_bounded_and_the_onset_survives(tmp_path):
    """Beyond the bound the oldest of the later half goes: the first steps stay, and the newest ones."""
    fill(FlightRecorder(tmp_path, max_steps=4, trigger=lambda *_: "always"), range(10))
    assert [r.step for r in list_recordings(tmp_path)] == [0, 1, 8, 9]


def test_bytes_are_bounded_and_one_recording_is_always_kept(tmp_path):
    """A bound smaller than one recording keeps one."""
    fill(FlightRecorder(tmp_path, max_bytes=10, trigger=lambda *_: "always"), range(3))
    assert len(list_recordings(tmp_path)) == 1


def test_nothing_half_written_is_listed(tmp_path):
    """A folder that was being written when the process died is not a recording; a repeated step replaces its own."""
    (tmp_path / ".step-1.99.partial").mkdir()
    recorder = FlightRecorder(tmp_path, trigger=lambda *_: "always")
    fill(recorder, [1, 1])
    assert [r.step for r in list_recordings(tmp_path)] == [1]


def test_a_disk_that_fails_costs_the_recording_not_the_run(tmp_path, caplog):
    """The recorder logs and returns."""
    (tmp_path / "file").write_text("in the way")
    recorder = FlightRecorder(tmp_path / "file", trigger=lambda *_: "always")
    recorder.before_update({"batch": {"x": torch.zeros(1)}}, {})
    assert recorder.after_row(row(0, 1.0), None) is None
    assert "could not be recorded" in caplog.text


def test_recording_does_not_change_the_run(healthy, run):
    """Same rows with and without a recorder."""
    assert healthy[1].metrics == run(steps=2)[1]
