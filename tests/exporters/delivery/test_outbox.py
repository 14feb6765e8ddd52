"""The outbox: accepted once, kept over a crash, in order, and never in the way of its caller."""

import sqlite3
import stat
import subprocess
import sys

import pytest

from rltriage.exporters.delivery.message import compose
from rltriage.exporters.delivery.outbox import FILE, STEP_ASIDE, Outbox, backoff

HOOK = "hook"


@pytest.fixture
def message(make_alert):
    """Builds messages."""
    return lambda **given: compose(make_alert(**given), 1.0)


def ids(entries):
    return [(entry.message.alert, entry.message.state) for entry in entries]


def test_a_key_is_accepted_once(tmp_path, message):
    """The same alert, state and receiver again is refused, before and after delivery and after a restart."""
    box = Outbox(tmp_path)
    assert box.put(HOOK, message(), 1.0)
    assert not box.put(HOOK, message(step=9), 2.0)
    assert box.put("other", message(), 2.0) and box.put(HOOK, message(state="resolved"), 2.0)
    box.delivered(box.due(HOOK, 3.0), 3.0)
    assert not box.put(HOOK, message(), 4.0)
    again = Outbox(tmp_path)
    assert not again.put(HOOK, message(), 5.0) and not again.put("other", message(), 5.0)


def test_what_waits_survives_the_process(tmp_path, message):
    """An outbox that was never closed is read back: same messages, same order, same attempts."""
    box = Outbox(tmp_path)
    for rule in ("a", "b", "c"):
        box.put(HOOK, message(rule=rule), 1.0)
    box.delivered([next(box.due(HOOK, 1.0))], 1.0)
    box.refused(next(box.due(HOOK, 1.0)), 50.0)
    again = Outbox(tmp_path)
    assert ids(again.waiting(HOOK)) == [("r1/b", "firing"), ("r1/c", "firing")]
    assert [entry.refusals for entry in again.waiting(HOOK)] == [1, 0]
    assert again.waiting(HOOK)[0].message == box.waiting(HOOK)[0].message


def test_a_put_is_on_disk_when_it_returns(tmp_path):
    """A process that is killed right after `put` has lost nothing."""
    script = (
        "import os, sys, pathlib\n"
        "from rltriage.exporters.delivery.outbox import Outbox\n"
        "from rltriage.exporters.delivery.message import Message\n"
        "box = Outbox(pathlib.Path(sys.argv[1]))\n"
        "box.put('hook', Message('id', 'r', 'x', 'firing', 'critical', '', 't', 't', 1.0, 1.0, 3), 1.0)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=60).returncode == -9
    assert ids(Outbox(tmp_path).waiting(HOOK)) == [("id", "firing")]


def test_a_batch_is_written_once_and_even_if_it_ends_badly(tmp_path, message):
    """One wait for the disk for all alerts of a row; what was accepted before an error stays accepted."""
    box = Outbox(tmp_path)
    writes = []
    box._db.set_trace_callback(lambda sql: writes.append(sql) if sql.startswith("COMMIT") else None)
    with pytest.raises(KeyError), box.batch():
        for rule in ("a", "b", "c"):
            box.put(HOOK, message(rule=rule), 1.0)
        raise KeyError
    assert len(writes) == 1 and len(Outbox(tmp_path).waiting(HOOK)) == 3


def test_a_run_waits_for_its_earlier_messages(message):
    """Order holds within a run and a receiver; other runs and receivers go on."""
    box = Outbox(None)
    box.put(HOOK, message(run="a"), 1.0, due=10.0)
    box.put(HOOK, message(run="a", state="resolved"), 1.0)
    box.put(HOOK, message(run="b"), 1.0)
    assert ids(box.due(HOOK, 2.0)) == [("b/kl-ref-exactly-zero", "firing")]
    assert [e.message.run for e in box.due(HOOK, 10.0)] == ["a", "a", "b"]


def test_a_message_that_keeps_being_refused_steps_aside(message):
    """Its run's other alerts get through; its own later states still wait for it."""
    box = Outbox(None)
    box.put(HOOK, message(rule="bad"), 1.0)
    box.put(HOOK, message(rule="good"), 1.0)
    box.put(HOOK, message(rule="bad", state="resolved"), 1.0)
    bad = box.waiting(HOOK)[0]
    for _ in range(STEP_ASIDE - 1):
        box.refused(bad, 60.0)
    assert ids(box.due(HOOK, 2.0)) == []
    box.refused(bad, 100.0)
    assert ids(box.due(HOOK, 2.0)) == [("r1/good", "firing")]
    assert len(ids(box.due(HOOK, 100.0))) == 3


@pytest.mark.parametrize("back", [1.0, 300.0, 3000.0, 86400.0])
def test_a_clock_that_was_set_back_holds_nothing_up(tmp_path, message, back):
    """By seconds or by a day, at once or over a restart: nothing waits longer than it was meant to."""
    box = Outbox(tmp_path)
    box.put(HOOK, message(run="collected"), 1e6, due=1e6 + 60.0)
    box.put(HOOK, message(run="refused"), 1e6)
    for _ in range(3):
        box.refused(box.waiting(HOOK)[1], 1e6 + backoff(2))
    assert not ids(box.due(HOOK, 1e6, window=60.0))
    for each in (box, Outbox(tmp_path)):
        assert len(ids(each.due(HOOK, 1e6 - back, window=60.0))) == 2, "further off than the wait"
        assert len(ids(each.due(HOOK, 1e6 + 60.0, window=60.0))) == 2
    at_once = Outbox(None)
    at_once.put(HOOK, message(), 1e6)
    assert ids(at_once.due(HOOK, 1e6 - back, window=0.0))


def test_the_newest_state_of_a_series_is_kept(tmp_path, message):
    """After a restart a reminded receiver is reminded of the newest state, not of an older alert with the same labels."""
    box = Outbox(tmp_path)
    for given in ({"id": "1"}, {"id": "1", "state": "resolved"}, {"id": "2"}):
        box.put(HOOK, message(**given), 1.0)
    box.delivered(list(box.due(HOOK, 2.0)), 2.0, keep=True)
    assert ids(box.live(HOOK)) == ids(Outbox(tmp_path).live(HOOK)) == [("2", "firing")]
    box.forget(box.live(HOOK))
    assert box.live(HOOK) == [] == Outbox(tmp_path).live(HOOK)


def test_the_folder_is_its_owners_alone(tmp_path, message):
    """Whatever the umask and whatever the folder was before."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    Outbox(folder).put(HOOK, message(), 1.0)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_full_disk_costs_durability_only(tmp_path, message, caplog):
    """Messages are accepted, deduplicated and delivered from memory; it is said once, and made good when there is room."""
    box = Outbox(tmp_path)
    box.put(HOOK, message(rule="before"), 1.0)
    pages = box._db.execute("PRAGMA page_count").fetchone()[0]
    box._db.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(50):
        assert box.put(HOOK, message(rule=f"r{number}", summary="x" * 3000), 1.0)
    assert "full" in box.degraded and not box.put(HOOK, message(rule="r7"), 1.0)
    box.delivered(list(box.due(HOOK, 1.0))[:20], 2.0)
    assert len(box.waiting(HOOK)) == 31
    box.retry_disk()
    assert box.degraded and sum("in memory only" in record.message for record in caplog.records) == 1
    box._db.execute("PRAGMA max_page_count = 100000")
    box.retry_disk()
    assert not box.degraded
    again = Outbox(tmp_path)
    assert ids(again.waiting(HOOK)) == ids(box.waiting(HOOK))
    assert not again.put(HOOK, message(rule="r7"), 9.0)


def test_a_locked_file_costs_durability_only(tmp_path, message):
    """Another process holds the file: nothing is raised, and only the first change waits for the lock."""
    box = Outbox(tmp_path)
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for number in range(100):
        assert box.put(HOOK, message(rule=f"r{number}"), 1.0)
    assert "locked" in box.degraded and box.disk_errors == 1
    other.execute("COMMIT")
    box.retry_disk()
    assert not box.degraded and len(Outbox(tmp_path).waiting(HOOK)) == 100


def test_a_file_that_was_locked_at_the_start_is_joined_later(tmp_path, message):
    """What memory accepted meanwhile comes after what the disk holds, and what the disk knows is not said again."""
    first = Outbox(tmp_path)
    first.put(HOOK, message(rule="old"), 1.0)
    first.put(HOOK, message(rule="said"), 1.0)
    first.delivered([first.waiting(HOOK)[1]], 1.0)
    first.close()
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    box = Outbox(tmp_path)
    assert box.degraded
    for rule in ("new", "old", "said", "newer"):
        box.put(HOOK, message(rule=rule), 2.0)
    box.delivered([box.waiting(HOOK)[0]], 2.0)
    other.close()
    box.retry_disk()
    assert not box.degraded and ids(box.waiting(HOOK)) == [("r1/old", "firing"), ("r1/newer", "firing")]
    again = Outbox(tmp_path)
    assert ids(again.waiting(HOOK)) == ids(box.waiting(HOOK))
    assert not any(again.put(HOOK, message(rule=rule), 3.0) for rule in ("new", "old", "said", "newer"))


def test_what_was_said_before_the_file_could_be_joined_is_not_said_again(tmp_path, message):
    """The disk holds it as waiting, memory delivered it meanwhile; a reminded receiver is reminded of the newest state."""
    first = Outbox(tmp_path)
    first.put(HOOK, message(), 1.0)
    first.put(HOOK, message(rule="later"), 1.0)
    first.close()
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    box = Outbox(tmp_path)
    for given in ({}, {"state": "resolved"}, {"rule": "later"}):
        box.put(HOOK, message(**given), 2.0)
    box.delivered(box.waiting(HOOK)[:2], 3.0, keep=True)
    other.close()
    box.retry_disk()
    for each in (box, Outbox(tmp_path)):
        assert ids(each.waiting(HOOK)) == [("r1/later", "firing")]
        assert ids(each.live(HOOK)) == [("r1/kl-ref-exactly-zero", "resolved")]
        assert not each.put(HOOK, message(), 4.0) and not each.put(HOOK, message(state="resolved"), 4.0)


START_ON_A_FULL_DISK = """
import os, pathlib, resource, sys
from rltriage.exporters.delivery.message import Message
from rltriage.exporters.delivery.outbox import Outbox
message = lambda rule: Message(rule, "r", rule, "firing", "critical", "", "t", "t", 1.0, 1.0, 3)
folder, hard = pathlib.Path(sys.argv[1]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
if sys.argv[2] == "killed":
    box = Outbox(folder)
    for rule in ("said", "waits"):
        box.put("hook", message(rule), 1.0)
    box.delivered(box.waiting("hook")[:1], 1.0)
    os.kill(os.getpid(), 9)
resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
box = Outbox(folder)
print([box.put("hook", message(rule), 2.0) for rule in ("said", "waits", "new")], bool(box.degraded))
print([entry.message.rule for entry in box.waiting("hook")])
box.delivered(box.waiting("hook")[:1], 3.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
box.retry_disk()
print(box.degraded or "on disk")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on the size of files stands for the full disk")
def test_a_start_on_a_full_disk_knows_what_was_said(tmp_path, message):
    """After a kill the file can be read though nothing can be written: nothing is said again, and with room all is kept."""
    command = [sys.executable, "-c", START_ON_A_FULL_DISK, str(tmp_path)]
    assert subprocess.run([*command, "killed"], timeout=60).returncode == -9
    (tmp_path / f"{FILE}-shm").unlink()  # as after a reboot
    ran = subprocess.run([*command, "full"], capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == ["[False, False, True] True", "['waits', 'new']", "on disk"], ran.stderr
    again = Outbox(tmp_path)
    assert ids(again.waiting(HOOK)) == [("new", "firing")]
    assert not any(again.put(HOOK, message(id=rule), 4.0) for rule in ("said", "waits", "new"))


def test_a_damaged_file_is_moved_aside(tmp_path, message, caplog):
    """The service starts with an empty outbox and says so."""
    (tmp_path / FILE).write_bytes(b"not a database at all" * 200)
    box = Outbox(tmp_path)
    assert box.put(HOOK, message(), 1.0) and not box.degraded
    assert (tmp_path / "outbox.damaged").exists() and "is damaged" in caplog.text


def test_a_folder_that_cannot_be_made_costs_durability_only(tmp_path, message):
    """A file stands where the folder should be."""
    (tmp_path / "state").write_text("")
    box = Outbox(tmp_path / "state")
    assert box.put(HOOK, message(), 1.0) and box.degraded


def test_waiting_messages_are_bounded_and_the_least_severe_go_first(message):
    """A receiver that is dead for weeks costs bounded memory, and critical alerts outlast the rest."""
    box = Outbox(None, max_waiting=3)
    for number, severity in enumerate(("critical", "info", "warning", "info", "critical")):
        box.put(HOOK, message(rule=f"r{number}", severity=severity), 1.0)
    assert [entry.message.severity for entry in box.waiting(HOOK)] == ["critical", "warning", "critical"]
    assert box.dropped == 2


def test_old_keys_are_pruned_by_number_and_nothing_that_waits(tmp_path, message):
    """The file stays bounded; keys that are still needed stay."""
    box = Outbox(tmp_path, max_keys=10)
    box.put(HOOK, message(rule="waits"), 1.0)
    for number in range(40):
        box.put(HOOK, message(run=f"run{number}"), 1.0)
    box.delivered(box.waiting(HOOK)[1:], 1.0)
    assert box.prune() == 31
    again = Outbox(tmp_path, max_keys=10)
    assert ids(again.waiting(HOOK)) == [("r1/waits", "firing")]
    assert not again.put(HOOK, message(run="run39"), 2.0) and again.put(HOOK, message(run="run0"), 2.0)


def test_delivered_messages_keep_their_key_and_not_their_text(tmp_path, message):
    """What was said is remembered in a few bytes."""
    box = Outbox(tmp_path)
    box.put(HOOK, message(), 1.0)
    box.delivered(box.waiting(HOOK), 1.0)
    bodies = sqlite3.connect(tmp_path / FILE).execute("SELECT body FROM outbox").fetchall()
    assert bodies == [(None,)]


@pytest.mark.parametrize("body", ["{}", "[" * 100_000])
def test_an_unreadable_message_is_skipped(tmp_path, message, body):
    """One bad body does not keep the others from being delivered."""
    box = Outbox(tmp_path)
    box.put(HOOK, message(rule="a"), 1.0)
    box.put(HOOK, message(rule="b"), 1.0)
    box.close()
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("UPDATE outbox SET body = ? WHERE seq = 1", (body,))
    assert ids(Outbox(tmp_path).waiting(HOOK)) == [("r1/b", "firing")]
