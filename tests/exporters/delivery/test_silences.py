"""The file of silences: what holds when, who may write it, and what a damaged one does."""

import os

import pytest

from rltriage.exporters.delivery.silences import FILE, Silence, Silences
from rltriage.rules.errors import DeliveryError


def test_a_silence_holds_until_it_expires_and_is_then_pruned(tmp_path):
    """An expired one does not hold, and the next write takes it out of the file."""
    silences = Silences(tmp_path)
    silences.add(Silence("r1", "kl-*", 10.0, 20.0, "known"), 10.0)
    assert [each.why for each in silences.active(19.9)] == ["known"]
    assert silences.active(20.0) == ()
    silences.add(Silence("r2", "*", 30.0, None), 30.0)
    assert "known" not in (tmp_path / FILE).read_text()


def test_globs_say_which_runs_and_rules_are_meant():
    """Both must fit."""
    silence = Silence("grpo-*", "kl-*", 0.0)
    assert silence.covers("grpo-7", "kl-ref-exactly-zero")
    assert not silence.covers("ppo-7", "kl-ref-exactly-zero") and not silence.covers("grpo-7", "entropy-collapse")


def test_what_another_process_writes_is_seen(tmp_path):
    """The service reads the file anew when a command has changed it, and only then."""
    service, command = Silences(tmp_path), Silences(tmp_path)
    assert service.active(1.0) == ()
    command.add(Silence("r1", "x", 1.0, 9.0), 1.0)
    command.add(Silence("r1", "x", 2.0, None), 2.0)
    assert [each.created for each in service.active(2.0)] == [2.0], "the second takes the first one's place"
    assert command.end("r1", "x", 3.0) and not command.end("r1", "x", 3.0)
    assert service.active(3.0) == ()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"silences": [{"run": 1}]}', '{"silences": [{"run": 1, "rule": 2, "created": 3}]}']
)
def test_a_damaged_file_is_said_and_changes_nothing(tmp_path, caplog, text):
    """The service keeps what it knew and says so once; a command refuses to write over it."""
    service = Silences(tmp_path)
    service.add(Silence("r1", "x", 1.0, 9.0), 1.0)
    assert len(service.active(1.0)) == 1
    (tmp_path / FILE).write_text(text)
    assert [len(service.active(2.0)) for _ in range(3)] == [1, 1, 1]
    assert len(caplog.records) == 1
    with pytest.raises(DeliveryError, match="delete it"):
        service.add(Silence("r1", "y", 1.0, 9.0), 2.0)


def test_what_is_over_leaves_the_file_but_never_waits_for_a_command(tmp_path):
    """While a command holds the folder, the service goes on; the acknowledgement has ended in memory all the same."""
    fcntl = pytest.importorskip("fcntl")
    service = Silences(tmp_path)
    service.add(Silence("r1", "x", 1.0), 1.0)
    service.over(*service.active(1.0))
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    service.save(2.0)
    assert service.active(2.0) == () and len(Silences(tmp_path).active(2.0)) == 1
    os.close(descriptor)
    service.save(3.0)
    assert Silences(tmp_path).active(3.0) == ()


def test_a_place_without_a_folder_has_none():
    """An outbox in memory has no silences."""
    assert Silences(None).active(1.0) == ()
