"""Alertmanager's contract, against a receiver that keeps a journal; the real one is in test_real_alertmanager.py."""

import pytest

from rltriage.exporters.delivery.alertmanager import LIFE_SECONDS, Alertmanager, endpoint
from rltriage.exporters.delivery.message import Links, compose


@pytest.fixture
def messages(make_alert):
    """Builds messages of many runs."""
    links = Links("http://watch:9464/")
    return lambda count: [compose(make_alert(run=f"r{n}", time=50.0), 100.0, links=links) for n in range(count)]


def test_the_body_is_an_array_of_alerts_with_aware_times(journal, messages):
    """Open alerts carry their start and an expiry; a value in UTC with its zone, never a naive one."""
    am = Alertmanager("am", [journal.poster()])
    assert am.send(messages(2), 200.0).accepted == {0, 1}
    (body,) = journal.entries
    assert [alert["labels"]["run"] for alert in body] == ["r0", "r1"]
    assert body[0]["startsAt"] == "1970-01-01T00:00:50.000Z"
    assert body[0]["endsAt"] == f"1970-01-01T00:0{int((200 + LIFE_SECONDS) // 60)}:20.000Z"
    assert body[0]["generatorURL"] == "http://watch:9464/runs/r0/alerts/r0%2Fkl-ref-exactly-zero"


def test_a_resolved_alert_ends_when_it_was_seen_to(journal, make_alert):
    """However late it is delivered; and no generatorURL where there is none (an invalid one is a 422)."""
    Alertmanager("am", [journal.poster()]).send([compose(make_alert(state="resolved"), 100.0)], 500.0)
    (alert,) = journal.entries[0]
    assert alert["endsAt"] == "1970-01-01T00:01:40.000Z" and not {"startsAt", "generatorURL"} & set(alert)


def test_stale_and_flapping_alerts_stay_open(journal, make_alert):
    """That rows stopped is no evidence of recovery."""
    am = Alertmanager("am", [journal.poster()])
    for state in ("stale", "flapping"):
        am.send([compose(make_alert(state=state), 100.0)], 100.0)
    assert all(alert["endsAt"] > alert["startsAt"] for (alert,) in journal.entries)


def test_a_bad_alert_is_found_by_halving(journal, messages):
    """A 400 says nothing about the others: all good ones are accepted, the bad one is refused alone."""
    journal.refuses = lambda body: any(alert["labels"]["run"] == "r5" for alert in body)
    outcome = Alertmanager("am", [journal.poster()]).send(messages(9), 100.0)
    assert outcome.accepted == set(range(9)) - {5} and outcome.refused == {5: "answered 400: no"} and not outcome.problem
    stored = [alert["labels"]["run"] for body in journal.entries for alert in body]
    assert sorted(stored) == [f"r{n}" for n in range(9) if n != 5]


@pytest.mark.parametrize("status", [401, 404, 408, 429, 500, 503])
def test_other_failures_are_for_later(journal, messages, status):
    """Neither accepted nor refused: the outbox keeps them."""
    journal.status, journal.headers = status, {"Retry-After": "9"}
    outcome = Alertmanager("am", [journal.poster()]).send(messages(4), 100.0)
    assert not outcome.accepted and not outcome.refused and str(status) in outcome.problem and outcome.retry_after == 9.0
    assert len(journal.attempts) == 1


def test_every_replica_hears_every_alert(two_receivers, messages):
    """Replicas share notifications, not alerts; one that is down is a problem to report, not a failed delivery."""
    one, two = two_receivers
    am = Alertmanager("am", [one.poster(), two.poster()])
    assert am.send(messages(2), 100.0).accepted == {0, 1} and len(one.entries) == len(two.entries) == 1
    two.status = 500
    outcome = am.send(messages(2), 100.0)
    assert outcome.accepted == {0, 1} and "500" in outcome.problem


def test_an_alert_that_one_replica_refuses_and_another_takes_is_accepted(two_receivers, messages):
    """It has been heard."""
    one, two = two_receivers
    two.refuses = lambda body: True
    outcome = Alertmanager("am", [one.poster(), two.poster()]).send(messages(3), 100.0)
    assert outcome.accepted == {0, 1, 2} and not outcome.refused


def test_the_path_is_added_where_it_is_missing():
    """An Alertmanager is usually given by its host and port, sometimes behind a prefix."""
    assert endpoint("http://am:9093/") == endpoint("http://am:9093") == "http://am:9093/api/v2/alerts"
    assert endpoint("http://x/am/api/v2/alerts") == "http://x/am/api/v2/alerts"
