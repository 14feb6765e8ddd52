"""What silences keep back, counted from a receiver's journal over made-up time."""

import pytest

from rltriage.exporters.delivery.alertmanager import Alertmanager
from rltriage.exporters.delivery.dispatcher import Dispatcher, Route
from rltriage.exporters.delivery.outbox import Outbox
from rltriage.exporters.delivery.silences import Silence, Silences
from rltriage.exporters.delivery.webhook import Webhook

RULE = "kl-ref-exactly-zero"
ID = f"r1/{RULE}"


@pytest.fixture
def silences(tmp_path) -> Silences:
    """What a command would write."""
    return Silences(tmp_path)


@pytest.fixture
def hook(journal, tmp_path):
    """Builds a dispatcher with one webhook over the same folder each time, as a restarted service would."""

    def make() -> Dispatcher:
        route = Route(Webhook("w", journal.poster()), min_severity="info", group_window=0.0)
        return Dispatcher(Outbox(tmp_path), [route], silences=Silences(tmp_path), seed=1)

    return make


def test_a_silenced_alert_is_told_when_the_silence_expires(hook, journal, silences, make_alert):
    """Others are told at once; if it still fires then, it is told once."""
    silences.add(Silence("r1", "kl-*", 0.0, 100.0), 0.0)
    dispatcher = hook()
    dispatcher.offer([make_alert(), make_alert(rule="other"), make_alert(run="r2")], 1.0)
    dispatcher.flush(2.0)
    assert sorted(journal.alerts()) == [("r1/other", "firing"), (f"r2/{RULE}", "firing")]
    assert dispatcher.silenced(2.0) == 1
    for now in (99.0, 100.0, 101.0):
        dispatcher.flush(now)
        assert ((ID, "firing") in journal.alerts()) == (now >= 100.0)
    dispatcher.offer([make_alert(state="resolved")], 102.0)
    dispatcher.flush(102.0)
    assert journal.alerts().count((ID, "firing")) == 1 and journal.alerts()[-1] == (ID, "resolved")
    assert dispatcher.silenced(102.0) == 0


def test_a_silence_that_is_ended_by_hand_is_over_at_the_next_flush(hook, journal, silences, make_alert):
    """`silence end` needs no restart."""
    silences.add(Silence("*", "*", 0.0, 1e6), 0.0)
    dispatcher = hook()
    dispatcher.offer([make_alert(), make_alert(state="flapping")], 1.0)
    dispatcher.flush(2.0)
    assert journal.attempts == []
    silences.end("*", "*", 3.0)
    dispatcher.flush(3.0)
    assert journal.alerts() == [(ID, "firing"), (ID, "flapping")]


def test_of_an_alert_that_came_and_went_in_silence_nobody_hears(hook, journal, silences, make_alert):
    """Also not when a restart replays the log after the silence is over."""
    silences.add(Silence("*", "*", 0.0, 100.0), 0.0)
    history = [make_alert(), make_alert(state="flapping"), make_alert(state="resolved")]
    dispatcher = hook()
    dispatcher.offer(history, 1.0)
    dispatcher.flush(200.0)
    dispatcher.close()
    again = hook()
    again.offer(history, 201.0)
    again.flush(202.0)
    assert journal.attempts == []


def test_the_end_of_an_alert_that_was_told_is_told_in_silence_too(hook, journal, silences, make_alert):
    """Whoever heard that it fires hears that it is over; what happened in between is kept back."""
    dispatcher = hook()
    dispatcher.offer([make_alert()], 1.0)
    silences.add(Silence("*", "*", 2.0, 100.0), 2.0)
    dispatcher.offer([make_alert(state="flapping")], 3.0)
    dispatcher.flush(4.0)
    dispatcher.offer([make_alert(state="resolved")], 5.0)
    dispatcher.flush(6.0)
    assert journal.alerts() == [(ID, "firing"), (ID, "resolved")]


def test_a_restart_in_a_silence_keeps_it(hook, journal, silences, make_alert):
    """The replay offers the alert again; it is kept back again and told when the silence ends."""
    silences.add(Silence("*", "*", 0.0, 100.0), 0.0)
    for now in (1.0, 50.0):
        dispatcher = hook()
        dispatcher.offer([make_alert()], now)
        dispatcher.flush(now + 1)
        assert journal.attempts == []
    dispatcher.flush(100.0)
    assert journal.alerts() == [(ID, "firing")]


def test_an_acknowledgement_lasts_until_the_last_alert_that_it_covers_has_ended(hook, journal, silences, make_alert):
    """However long that takes; the next alert is told, and the file is empty again."""
    dispatcher = hook()
    dispatcher.offer([make_alert(rule="a"), make_alert(rule="b")], 1.0)
    silences.add(Silence("r1", "*", 2.0), 2.0)
    dispatcher.offer([make_alert(rule="a", state="resolved"), make_alert(rule="c")], 1e7)
    dispatcher.offer([make_alert(rule="b", state="resolved")], 1e7 + 1)
    assert len(silences.active(1e7 + 1)) == 1
    dispatcher.offer([make_alert(rule="c", state="ended")], 1e7 + 2)
    dispatcher.offer([make_alert(rule="d")], 1e7 + 3)
    dispatcher.flush(1e7 + 4)
    told = [alert for alert, _ in journal.alerts()]
    assert sorted(told) == ["r1/a", "r1/a", "r1/b", "r1/b", "r1/d"]
    assert silences.active(1e7 + 4) == ()


def test_an_end_that_a_replay_repeats_ends_no_acknowledgement(hook, journal, silences, make_alert):
    """The log holds earlier alerts of the same rule that came and went before it was made."""
    silences.add(Silence("r1", "*", 50.0), 50.0)
    dispatcher = hook()
    dispatcher.offer([make_alert(id="old", time=10.0), make_alert(id="old", state="resolved", time=20.0)], 100.0)
    dispatcher.offer([make_alert(id="new", time=40.0)], 100.0)
    dispatcher.flush(101.0)
    assert journal.attempts == [] and len(silences.active(101.0)) == 1


def test_an_alertmanager_goes_on_believing_what_it_was_told(journal, tmp_path, silences, make_alert):
    """A silence stops new alerts, not the reminders: without those it would call the old one resolved."""
    route = Route(Alertmanager("am", [journal.poster()]))
    dispatcher = Dispatcher(Outbox(tmp_path), [route], silences=Silences(tmp_path), seed=1)
    dispatcher.offer([make_alert()], 1.0)
    dispatcher.flush(1.0)
    silences.add(Silence("*", "*", 2.0, 1e6), 2.0)
    dispatcher.offer([make_alert(rule="other")], 3.0)
    for now in range(3, 300):
        dispatcher.flush(float(now))
    told = [alert["labels"]["rule"] for body in journal.entries for alert in body]
    assert len(told) > 2 and set(told) == {RULE}
