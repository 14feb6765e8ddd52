"""People's chat, mail and pagers, through apprise's own JSON service."""

import sys
import threading

import pytest

from rltriage.exporters.delivery.apprise_ import Apprise
from rltriage.exporters.delivery.message import Links, compose
from rltriage.rules.errors import DeliveryError


def url_of(journal):
    return journal.url.replace("http://", "json://")


def test_a_notification_arrives_with_title_text_and_kind(journal, make_alert):
    """Several alerts are one notification."""
    messages = [compose(make_alert(run=run), 1.0) for run in ("a", "b")]
    assert Apprise("chat", lambda: url_of(journal)).send(messages, 1.0).accepted == {0, 1}
    (body,) = journal.entries
    assert body["title"].endswith("in a and 1 more run") and body["type"] == "failure"
    assert "ref_is_policy" in body["message"] and "kl-ref-exactly-zero in b" in body["message"]


def test_a_notification_links_to_page_and_runbook(journal, make_alert):
    """At its end, where chats make them clickable."""
    message = compose(make_alert(), 1.0, links=Links("http://watch", "http://docs"))
    Apprise("chat", lambda: url_of(journal)).send([message], 1.0)
    (body,) = journal.entries
    assert (
        "runbook: http://docs#ref_is_policy" in body["message"] and "page: http://watch/runs/r1/alerts/" in body["message"]
    )


def test_a_failure_is_for_later(journal, make_alert):
    """apprise says only that it failed, so nothing is refused for good."""
    journal.status = 500
    outcome = Apprise("chat", lambda: url_of(journal)).send([compose(make_alert(), 1.0)], 1.0)
    assert not outcome.accepted and not outcome.refused and outcome.problem


def test_a_hanging_server_costs_its_time_limit(journal, make_alert):
    """The limit of the URL holds; without one ours is added."""
    journal.hang = threading.Event()
    outcome = Apprise("chat", lambda: url_of(journal) + "?cto=1&rto=0.2").send([compose(make_alert(), 1.0)], 1.0)
    assert outcome.problem


def test_problems_never_quote_the_url(make_alert):
    """An apprise URL is a secret as a whole."""

    def missing() -> str:
        raise DeliveryError("the environment variable X is not set")

    for url in (lambda: "nonsense://secret", lambda: "", missing):
        outcome = Apprise("chat", url).send([compose(make_alert(), 1.0)], 1.0)
        assert outcome.problem and "secret" not in outcome.problem


def test_without_apprise_the_error_says_what_to_install(monkeypatch):
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(DeliveryError, match=r"rltriage\[notify\]"):
        Apprise("chat", lambda: "json://x")
