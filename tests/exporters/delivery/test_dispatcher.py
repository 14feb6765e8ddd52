"""Who is told what, when it is tried again, and what is repeated: counted from the receivers' journals."""

import random
import threading
from collections import Counter
from dataclasses import replace

import pytest

from rltriage.exporters.delivery.alertmanager import Alertmanager
from rltriage.exporters.delivery.dispatcher import Dispatcher, Route
from rltriage.exporters.delivery.outbox import STEP_ASIDE, Outbox
from rltriage.exporters.delivery.webhook import Webhook


@pytest.fixture
def hook(journal, tmp_path):
    """Builds a dispatcher with one webhook that is told of each alert alone, over the same folder each time."""

    def make(**given) -> Dispatcher:
        fields = {"min_severity": "info", "group_window": 0.0, **given}
        return Dispatcher(Outbox(tmp_path), [Route(Webhook("w", journal.poster(read=0.2)), **fields)], seed=1)

    return make


@pytest.fixture
def am(journal, tmp_path):
    """Builds a dispatcher with one Alertmanager."""
    return lambda **given: Dispatcher(Outbox(tmp_path), [Route(Alertmanager("am", [journal.poster()]), **given)], seed=1)


def drain(dispatcher, now, until):
    """Flush once a second of made-up time until a moment."""
    while now <= until:
        dispatcher.flush(now)
        now += 1.0


def test_an_alert_is_told_once_however_often_it_is_offered(hook, journal, make_alert):
    """A replay after a restart yields the same ids; neither it nor a second process repeats what was said."""
    for _ in range(3):
        dispatcher = hook()
        dispatcher.offer([make_alert(), make_alert(state="resolved")], 1.0)
        dispatcher.offer([make_alert()], 2.0)
        drain(dispatcher, 2.0, 5.0)
    assert journal.alerts() == [("r1/kl-ref-exactly-zero", "firing"), ("r1/kl-ref-exactly-zero", "resolved")]


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_a_receiver_that_recovers_has_missed_nothing(hook, journal, make_alert, status):
    """Whatever it answered meanwhile: every alert arrives once, in its run's order."""
    dispatcher = hook()
    journal.status = status
    for step in range(6):
        dispatcher.offer([make_alert(run=f"r{step % 2}", id=f"{step}", rule=f"x{step}")], 1.0)
    drain(dispatcher, 1.0, 20.0)
    journal.status = 200
    drain(dispatcher, 21.0, 1000.0)
    got = [alert for alert, _ in journal.alerts()]
    assert sorted(got) == [str(n) for n in range(6)]
    assert [g for g in got if int(g) % 2 == 0] == ["0", "2", "4"] and [g for g in got if int(g) % 2] == ["1", "3", "5"]


def test_a_receiver_that_is_down_is_asked_less_and_less(hook, journal, make_alert, caplog):
    """Exponential waits with jitter up to five minutes; it is said when it starts and when it is over."""
    dispatcher = hook()
    journal.status = 500
    dispatcher.offer([make_alert()], 1.0)
    drain(dispatcher, 1.0, 3600.0)
    assert 15 <= len(journal.attempts) <= 35
    journal.status = 200
    drain(dispatcher, 3601.0, 3901.0)
    assert len(journal.entries) == 1 and dispatcher.states["w"].problem == ""
    assert [record.message for record in caplog.records] == ["receiver w: answered 500: no", "receiver w works again"]


def test_a_receiver_may_ask_for_a_longer_wait(hook, journal, make_alert):
    """Retry-After is kept to."""
    dispatcher = hook()
    journal.status, journal.headers = 429, {"Retry-After": "120"}
    dispatcher.offer([make_alert()], 1.0)
    drain(dispatcher, 1.0, 120.0)
    assert len(journal.attempts) == 1
    dispatcher.flush(121.5)
    assert len(journal.attempts) == 2


@pytest.mark.parametrize("back", [5.0, 600.0, 3000.0, 86400.0])
@pytest.mark.parametrize(("status", "headers"), [(500, {}), (429, {"Retry-After": "2"}), (400, {})])
def test_a_clock_that_is_set_back_does_not_delay_delivery(hook, journal, make_alert, status, headers, back):
    """By seconds or by a day, while the receiver fails or refuses: the wait that the other clock had set is void."""
    dispatcher = hook()
    journal.status, journal.headers = status, headers
    dispatcher.offer([make_alert()], 1e9)
    dispatcher.flush(1e9)
    journal.status = 200
    dispatcher.flush(1e9 - back)
    assert len(journal.entries) == 1


@pytest.mark.parametrize("back", [30.0, 1800.0])
def test_a_clock_that_is_set_back_prolongs_no_window(hook, journal, make_alert, back):
    """What is collected waits for its window at most, also over a restart."""
    hook(group_window=60.0).offer([make_alert()], 1e9)
    drain(hook(group_window=60.0), 1e9 - back, 1e9 - back + 61.0)
    assert len(journal.entries) == 1


@pytest.mark.parametrize("window", [0.0, 60.0])
def test_an_alert_that_is_refused_does_not_end_before_it_fires(hook, journal, make_alert, window):
    """One request that holds several states is halved; what comes behind the refused one in its run waits with it."""
    dispatcher = hook(group_window=window)
    journal.refuses = lambda body: any(alert["state"] == "firing" and alert["run"] == "r1" for alert in body["alerts"])
    dispatcher.offer([make_alert(), make_alert(run="r2"), make_alert(state="resolved"), make_alert(rule="b")], 1.0)
    drain(dispatcher, 1.0 + window, 3.0 + window)
    assert journal.alerts() == [("r2/kl-ref-exactly-zero", "firing")]
    journal.refuses = lambda body: False
    drain(dispatcher, 4.0 + window, 200.0 + window)
    told = [alert for alert in journal.alerts() if alert[0].startswith("r1/")]
    assert told == [("r1/kl-ref-exactly-zero", "firing"), ("r1/kl-ref-exactly-zero", "resolved"), ("r1/b", "firing")]


def test_a_service_that_stops_begins_no_further_request(hook, journal, make_alert):
    """What were sent after the outbox is closed could not be noted, and the next start would send it again."""
    dispatcher = hook()
    dispatcher.offer([make_alert(run=f"r{number}") for number in range(5)], 1.0)
    journal.refuses = lambda body: dispatcher.wind_up()  # type: ignore[func-returns-value]
    assert dispatcher.flush(1.0) == 1 and len(journal.attempts) == 1
    assert len(hook().outbox.waiting("w")) == 4


def test_a_hanging_receiver_raises_nothing_and_loses_nothing(hook, journal, make_alert):
    """Its time limit is the flush's."""
    dispatcher = hook()
    journal.hang = threading.Event()
    dispatcher.offer([make_alert()], 1.0)
    assert dispatcher.flush(1.0) == 0
    journal.hang.set()
    journal.hang = None
    drain(dispatcher, 2.0, 10.0)
    assert len(journal.entries) == 1


def test_one_alert_that_is_refused_does_not_hold_up_its_run_for_ever(hook, journal, make_alert):
    """After a few refusals the others go on; the refused one is tried until it is taken."""
    dispatcher = hook()
    journal.refuses = lambda body: body["alerts"][0]["rule"] == "bad"
    dispatcher.offer([make_alert(rule="bad"), make_alert(rule="good"), make_alert(rule="bad", state="resolved")], 1.0)
    drain(dispatcher, 1.0, 400.0)
    assert journal.alerts() == [("r1/good", "firing")]
    journal.refuses = lambda body: False
    drain(dispatcher, 401.0, 1200.0)
    assert journal.alerts()[1:] == [("r1/bad", "firing"), ("r1/bad", "resolved")]


def test_what_nobody_is_to_hear_is_not_sent(hook, journal, make_alert):
    """Pending and explained alerts, alerts under the receiver's severity, and the end of what was never told."""
    dispatcher = hook(min_severity="warning")
    quiet = make_alert(rule="quiet", explained_by="logp-gap")
    low = make_alert(rule="low", severity="info")
    dispatcher.offer([make_alert(state="pending"), quiet, low], 1.0)
    dispatcher.offer([replace(alert, state="resolved") for alert in (quiet, low)], 2.0)
    assert dispatcher.flush(3.0) == 0 and not journal.attempts


def test_an_alert_that_is_explained_later_still_ends_where_it_was_told(hook, journal, make_alert):
    """A receiver that heard it fire hears it end."""
    dispatcher = hook()
    dispatcher.offer([make_alert()], 1.0)
    dispatcher.offer([make_alert(state="resolved", explained_by="logp-gap")], 2.0)
    dispatcher.flush(3.0)
    assert [state for _, state in journal.alerts()] == ["firing", "resolved"]


def test_a_pager_hears_critical_alerts_with_a_suspect_only(hook, journal, make_alert):
    """`page: true`."""
    dispatcher = hook(page=True)
    dispatcher.offer(
        [make_alert(rule="a"), make_alert(rule="b", suspects=()), make_alert(rule="c", severity="warning")], 1.0
    )
    dispatcher.flush(1.0)
    assert journal.alerts() == [("r1/a", "firing")]


def test_a_match_takes_globs_of_labels(hook, journal, make_alert):
    """The run's own labels included; every label named must fit."""
    dispatcher = hook(match={"run": ("grpo-*", "ppo-*"), "team": ("post",)})
    for run, team in (("grpo-1", "post"), ("grpo-2", "pre"), ("sft-1", "post"), ("ppo-9", "post")):
        dispatcher.offer([make_alert(run=run)], 1.0, labels={"team": team})
    dispatcher.flush(1.0)
    assert [body["runs"] for body in journal.entries] == [["grpo-1"], ["ppo-9"]]


def test_many_runs_with_one_fault_are_one_notification(hook, journal, make_alert):
    """Within the window; another fault is another notification, and the next window opens with the next alert."""
    dispatcher = hook(group_window=60.0)
    for number in range(40):
        dispatcher.offer([make_alert(run=f"r{number}")], 1.0 + number)
    dispatcher.offer([make_alert(run="other", suspects=(), rule="nan")], 5.0)
    drain(dispatcher, 41.0, 120.0)
    assert sorted(len(body["alerts"]) for body in journal.entries) == [1, 40]
    dispatcher.offer([make_alert(run="late")], 130.0)
    drain(dispatcher, 130.0, 189.0)
    assert len(journal.entries) == 2
    drain(dispatcher, 190.0, 191.0)
    assert journal.entries[2]["runs"] == ["late"]


def test_order_within_a_run_holds_across_groups(hook, journal, make_alert):
    """A fault's second alert does not overtake another fault's that came between."""
    dispatcher = hook(group_window=10.0)
    other = make_alert(rule="b", suspects=())
    dispatcher.offer([make_alert(rule="a"), other, make_alert(rule="c")], 1.0)
    drain(dispatcher, 1.0, 30.0)
    assert [alert for alert, _ in journal.alerts()] == ["r1/a", "r1/b", "r1/c"]


def test_open_alerts_are_re_sent_before_they_expire(am, journal, make_alert):
    """Every minute, with a later end each time, for as long as they are open; also after a restart."""
    dispatcher = am()
    dispatcher.offer([make_alert()], 0.0)
    drain(dispatcher, 0.0, 600.0)
    ends = [body[0]["endsAt"] for body in journal.entries]
    assert 10 <= len(ends) <= 13 and ends == sorted(ends) and len({body[0]["startsAt"] for body in journal.entries}) == 1
    drain(am(), 601.0, 700.0)
    assert len(journal.entries) > len(ends)


def test_a_run_that_goes_on_has_no_stale_alerts_at_receivers(am, journal, make_alert):
    """An alert that goes stale and comes back has one id all the time: what was said of it at first goes on being true."""
    dispatcher = am()
    for now, state in ((0.0, "firing"), (10.0, "stale"), (20.0, "firing"), (30.0, "stale")):
        dispatcher.offer([make_alert(state=state)], now)
        drain(dispatcher, now, now + 9.0)
    drain(dispatcher, 40.0, 300.0)
    assert {alert["annotations"]["state"] for body in journal.entries for alert in body} == {"firing"}


def test_a_resolved_alert_is_re_sent_for_five_minutes(am, journal, make_alert):
    """With one and the same end; then it is forgotten."""
    dispatcher = am()
    dispatcher.offer([make_alert()], 0.0)
    dispatcher.flush(0.0)
    dispatcher.offer([make_alert(state="resolved")], 10.0)
    drain(dispatcher, 10.0, 1000.0)
    resolved = [body[0] for body in journal.entries if body[0]["annotations"]["state"] == "resolved"]
    assert 5 <= len(resolved) <= 7 and {alert["endsAt"] for alert in resolved} == {"1970-01-01T00:00:10.000Z"}
    count = len(journal.attempts)
    drain(dispatcher, 1001.0, 1200.0)
    assert len(journal.attempts) == count


def test_an_alert_that_fires_again_is_not_resolved_by_the_old_ones_echo(am, journal, make_alert):
    """Alertmanager knows labels, not ids: only the newest state of a series is repeated."""
    dispatcher = am()
    for now, given in ((0.0, {"id": "1"}), (5.0, {"id": "1", "state": "resolved"}), (10.0, {"id": "2", "since_step": 90})):
        dispatcher.offer([make_alert(**given)], now)
        dispatcher.flush(now)
    drain(dispatcher, 11.0, 400.0)
    told = [body[0]["annotations"]["state"] for body in journal.entries]
    assert told[:3] == ["firing", "resolved", "firing"] and set(told[3:]) == {"firing"}


def test_a_series_is_in_one_batch_once(am, journal, make_alert):
    """Two states of one series in one array would have no order."""
    dispatcher = am()
    dispatcher.offer([make_alert(), make_alert(state="resolved"), make_alert(rule="x")], 0.0)
    dispatcher.flush(0.0)
    sizes = [[alert["labels"]["alertname"] for alert in body] for body in journal.entries]
    assert sizes[:2] == [["KlRefExactlyZero"], ["KlRefExactlyZero", "X"]]


def test_an_alert_whose_severity_changes_leaves_no_old_series_open(am, journal, make_alert):
    """A config fact that becomes known lifts the cap at info: the old labels end, the new ones fire and resolve."""
    dispatcher = am(min_severity="info")
    for now, given in ((0.0, {"severity": "info"}), (1.0, {}), (2.0, {}), (3.0, {"state": "resolved"})):
        dispatcher.offer([make_alert(**given)], now)
        dispatcher.flush(now)
    told = [(alert["labels"]["severity"], alert["annotations"]["state"]) for body in journal.entries for alert in body]
    info = [state for severity, state in told if severity == "info"]
    critical = [state for severity, state in told if severity == "critical"]
    assert info == ["firing", "superseded"] and critical == ["firing", "resolved"]


def test_windows_end_when_the_service_stops(hook, journal, make_alert):
    """It may never come back."""
    dispatcher = hook(group_window=600.0)
    dispatcher.offer([make_alert()], 1.0)
    assert dispatcher.flush(2.0) == 0
    dispatcher.hasten(3.0)
    assert dispatcher.flush(3.0) == 1


def test_after_a_replay_what_no_rule_stands_by_is_closed(am, journal, make_alert):
    """Rules that changed while the service was down leave no alert open for ever."""
    dispatcher = am()
    dispatcher.offer([make_alert(rule="kept"), make_alert(rule="gone"), make_alert(rule="gone", run="r2")], 0.0)
    dispatcher.flush(0.0)
    again = am()
    again.offer([make_alert(rule="kept", state="resolved")], 50.0)
    assert again.reconcile("r1", set(), 50.0) == 1, "what waits to be resolved is not superseded as well"
    again.flush(50.0)
    told = [alert for body in journal.entries for alert in body]
    last = {alert["labels"]["run"] + alert["labels"]["alertname"]: alert for alert in told}
    assert last["r1Kept"]["annotations"]["state"] == "resolved"
    assert last["r1Gone"]["annotations"]["state"] == "superseded" and last["r1Gone"]["endsAt"] == "1970-01-01T00:00:50.000Z"


def test_an_alert_that_cannot_be_worded_does_not_stop_the_others(hook, journal, make_alert):
    """`offer` never raises."""
    dispatcher = hook()
    broken = make_alert(rule="broken", values={"x": object()})
    assert dispatcher.offer([broken, make_alert()], 1.0) == 1 and dispatcher.errors == 1


def test_two_flushes_at_once_send_nothing_twice(hook, journal, make_alert):
    """The last flush of a service that stops meets the one in progress."""
    dispatcher = hook()
    dispatcher.offer([make_alert(run=f"r{number}") for number in range(20)], 1.0)
    threads = [threading.Thread(target=dispatcher.flush, args=(1.0,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(journal.alerts()) == len(set(journal.alerts())) == 20


def test_a_test_notification_reaches_every_receiver_at_once(hook, journal):
    """Past the outbox, and again each time."""
    dispatcher = hook()
    assert dispatcher.test(1.0)["w"].accepted and dispatcher.test(2.0)["w"].accepted
    journal.status = 500
    assert "500" in dispatcher.test(3.0)["w"].problem


@pytest.mark.parametrize("window", [0.0, 10.0])
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_said_twice_or_out_of_order_in_any_weather(hook, journal, make_alert, window, seed):
    """Alerts of 8 runs, a receiver that changes its answers, a clock that jumps, restarts without closing.

    The journal holds each transition once, in its run's order; only what was refused STEP_ASIDE times is passed, by others.
    """
    weather = random.Random(seed)
    offered: dict[str, list[tuple[str, str]]] = {}
    dispatcher, wrong = hook(group_window=window), 0.0
    refused: Counter[tuple[str, str]] = Counter()
    for now in range(0, 400, 5):
        journal.status = weather.choice([200, 200, 400, 429, 500])
        if now < 200:
            run, number = f"r{weather.randrange(8)}", now // 5
            for state in ("firing", "resolved")[: weather.randint(1, 2)]:
                offered.setdefault(run, []).append((f"{number}", state))
                dispatcher.offer([make_alert(run=run, id=f"{number}", rule=f"x{number}", state=state)], now + wrong)
        before = len(journal.attempts)
        dispatcher.flush(now + wrong)
        if journal.status == 400:
            alone = [body["alerts"][0] for body in journal.attempts[before:] if len(body["alerts"]) == 1]
            refused.update((alert["id"], alert["state"]) for alert in alone)
        if weather.random() < 0.1:
            dispatcher, wrong = hook(group_window=window), weather.uniform(-4000.0, 4000.0)
    journal.status = 200
    drain(dispatcher, 400.0 + wrong, 1100.0 + wrong)
    told = journal.alerts()
    assert Counter(told) == Counter(each for run in offered.values() for each in run)
    assert not dispatcher.outbox.waiting("w")
    passed = {alert for (alert, _), times in refused.items() if times >= STEP_ASIDE}
    for order in offered.values():
        got = [each for each in told if each in order and each[0] not in passed]
        assert got == [each for each in order if each[0] not in passed]
    assert all(told.index((n, "firing")) < told.index((n, "resolved")) for n, state in told if state == "resolved")
