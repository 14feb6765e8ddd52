"""The flight recorder: when it keeps a step, what it keeps, and that the step can be repeated bit by bit."""

import errno
import hashlib
import json
import math
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from rltriage.cli.recorder import command
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
    check_replay(tmp_path, record(tmp_path, fault, tasks_per_step=4))


def test_the_reference_of_a_kl_term_is_recorded_too(tmp_path):
    """A replay without the frozen reference would give another KL."""
    record(tmp_path, kl_coef=0.1, tasks_per_step=4)
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
    record(tmp_path, "nonfinite", at=8, tasks_per_step=2)
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


def always(folder, **bounds):
    """A recorder that keeps every step."""
    return FlightRecorder(folder, trigger=lambda *_: "always", **bounds)


def steps(folder):
    """The recorded steps."""
    return [recording.step for recording in list_recordings(folder)]


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, caplog):
    """The recording is lost whole, its space is given back, and the next one succeeds."""
    recorder, write = always(tmp_path), Path.write_bytes

    def full(file, data):
        write(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    fill(recorder, [1])
    assert list(tmp_path.iterdir()) == [] and "No space left" in caplog.text
    monkeypatch.setattr(Path, "write_bytes", write)
    fill(recorder, [2])
    assert steps(tmp_path) == [2]


def test_a_kill_while_writing_leaves_no_recording_and_no_rubbish(tmp_path):
    """A process that dies before the rename has recorded nothing; the next recording clears its files away."""
    child = os.fork()
    if child == 0:
        Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        fill(always(tmp_path), [1])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert len(list(tmp_path.glob(".step-1.*.partial"))) == 1 and steps(tmp_path) == []
    fill(always(tmp_path), [2])
    assert [path.name for path in tmp_path.iterdir()] == ["step-2"]


def test_writers_leave_each_others_files_alone(tmp_path):
    """Two runs in one folder: the half-written recording of a live process stays, an hour-old one of anybody goes."""
    mine, old = (tmp_path / f".step-{n}.{os.getppid()}-7.partial" for n in (1, 2))
    mine.mkdir(parents=True)
    old.mkdir()
    os.utime(old, (0, 0))
    first, second = always(tmp_path, max_steps=3), always(tmp_path, max_steps=3)
    for step in range(3):
        fill(first, [step])
        fill(second, [step, step + 10])
    assert mine.exists() and not old.exists() and len(steps(tmp_path)) == 3


def test_damaged_recordings_do_not_lift_the_bounds(tmp_path):
    """They count and go like any other: otherwise one broken file would let the folder grow for good."""
    for step in range(3):
        (tmp_path / f"step-{step}").mkdir(parents=True)
        (tmp_path / f"step-{step}" / "meta.json").write_text("{")
    fill(always(tmp_path, max_steps=2), range(3, 9))
    assert len(list(tmp_path.glob("step-*"))) == 2


def test_links_are_neither_followed_nor_deleted_through(tmp_path):
    """A link in a recording's place is replaced, one beside it is no recording, and what they point at stays."""
    outside, folder = tmp_path / "outside", tmp_path / "recorder"
    outside.mkdir()
    folder.mkdir()
    (outside / "precious").write_text("here")
    for step in (1, 2):
        (folder / f"step-{step}").symlink_to(outside)
    fill(always(folder, max_steps=1), [1, 3])
    assert (outside / "precious").read_text() == "here" and len(steps(folder)) == 1


def test_a_file_that_is_a_link_is_not_read(recording):
    """Its bytes would be those of another file."""
    file = recording / "step-1" / "meta.json"
    file.rename(recording / "elsewhere")
    file.symlink_to(recording / "elsewhere")
    with pytest.raises(SourceError, match=r"meta\.json: is no regular file"):
        list_recordings(recording)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no file of tensors"),
        (b"\xff" * 8, "no file of tensors"),  # a header of 2**64 - 1 bytes
        ((99_999_999).to_bytes(8, "little") + b"{", "no file of tensors"),
        (b"\x40" + b"\0" * 7 + b'{"ids":{"dtype":"I64","shape":[9],"data_offsets":[0,72]}}    ', "no file of tensors"),
    ],
    ids=["empty", "endless header", "huge header", "tensors beyond the end"],
)
def test_a_file_of_tensors_that_is_none_is_refused(recording, data, message):
    """Also when the hashes were made to fit: nothing is allocated for what a header only claims."""
    tampered(recording, lambda meta: meta["sha256"].update({"batch.safetensors": hashlib.sha256(data).hexdigest()}))
    (recording / "step-1" / "batch.safetensors").write_bytes(data)
    with pytest.raises(SourceError, match=rf"batch\.safetensors: is {message}"):
        replay_step(recording, 1)


def tampered(folder, change):
    """Alter a recording's meta.json."""
    file = folder / "step-1" / "meta.json"
    meta = json.loads(file.read_text())
    change(meta)
    file.write_text(json.dumps(meta))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: meta.update(step=7), "is that of step 7"),
        (lambda meta: meta["environment"].update(threads=10**6), "1000000 as number of threads"),
        (lambda meta: meta["environment"].pop("threads"), "None as number of threads"),
        (lambda meta: meta["statistics"].update(entropy="0x1p99999"), "no number as float hex"),
        (lambda meta: meta["statistics"].update(entropy=1.5), "no number as float hex"),
        (lambda meta: meta.update(fault={}), "is no step of the reference trainer"),
        (lambda meta: meta["config"].update(group_size=0), "is no step of the reference trainer"),
        (lambda meta: meta["config"].update(epochs=10**9), "is no step of the reference trainer"),
        (lambda meta: meta["config"].update(cmd="rm"), "is no step of the reference trainer"),
        (lambda meta: meta.update(padding="x" * (1 << 20)), "is larger than 1048576 bytes"),
    ],
)
def test_a_meta_file_that_was_tampered_with_is_one_clear_error(recording, change, message):
    """Whatever it says, a replay ends, and does not end in a traceback."""
    tampered(recording, change)
    with pytest.raises(SourceError, match=message):
        replay_step(recording, 1)


def test_a_meta_file_nested_without_end_is_refused(recording):
    """The parser's recursion has a limit that is no ValueError."""
    (recording / "step-1" / "meta.json").write_text("[" * 200_000)
    with pytest.raises(SourceError, match=r"is not the meta\.json of a recording"):
        list_recordings(recording)


def test_the_command_lists_the_good_beside_the_damaged(recording):
    """One broken recording does not hide the others; what a recording says moves no cursor."""
    tampered(recording, lambda meta: meta.update(reason="\x1b[2J spike"))
    (recording / "step-2").mkdir()
    (recording / "step-3").mkdir()
    (recording / "step-3" / "meta.json").write_text("{}")
    found = CliRunner().invoke(command, ["list", str(recording.rename(recording.parent / "recorder").parent)])
    assert found.exit_code == 1
    assert found.stdout.startswith("step     1 ") and found.stdout.endswith(" MB  ?[2J spike\n")
    assert [line.split(":")[0] for line in found.stderr.splitlines()] == ["damaged", "damaged"]


def test_recording_does_not_change_the_run(healthy, run):
    """Same rows with and without a recorder."""
    assert healthy[1].metrics == run(steps=2)[1]
