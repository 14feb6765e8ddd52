"""Webhooks: one notification for several alerts, in the shape that the user wants."""

import json

import pytest

from rltriage.exporters.delivery.message import Links, compose
from rltriage.exporters.delivery.webhook import Webhook, fill, text, title, values
from rltriage.rules.config_checks import PLACEHOLDERS


@pytest.fixture
def messages(make_alert):
    """Three runs with the same fault: two open, one resolved."""
    return [
        compose(make_alert(run="a", state="resolved"), 1.0),
        compose(make_alert(run="b", severity="warning"), 1.0),
        compose(make_alert(run="c"), 1.0),
    ]


def test_the_default_body_lists_every_alert(journal, messages):
    """With ids and states, so that a receiver can tell what it has seen."""
    assert Webhook("w", journal.poster()).send(messages, 1.0).accepted == {0, 1, 2}
    (body,) = journal.entries
    assert (body["format"], body["status"], body["runs"]) == (1, "firing", ["a", "b", "c"])
    assert journal.alerts()[0] == ("a/kl-ref-exactly-zero", "resolved") and len(journal.alerts()) == 3


def test_a_template_is_data_and_keeps_types(journal, messages):
    """A text that is one placeholder becomes its value; names within a text are filled in; $$ is a dollar sign."""
    body = {"text": "*$title* on $runs, cost $$5", "n": "$count", "deep": [{"all": "${alerts}"}, 1, None, True]}
    Webhook("w", journal.poster(), body).send(messages[1:], 1.0)
    (sent,) = journal.entries
    assert sent["text"].endswith("on b, c, cost $5") and sent["n"] == 2 and len(sent["deep"][0]["all"]) == 2
    assert sent["deep"][1:] == [1, None, True]


def test_no_text_can_break_the_json(make_alert):
    """Quotes, newlines and dollar signs in an alert stay what they are."""
    message = compose(make_alert(summary='a "quoted"\nline with $title and \\ and ${run}'), 1.0)
    filled = fill({"t": "<$text>"}, values([message]))
    assert json.loads(json.dumps(filled)) == filled and "with $title" in " ".join(filled["t"].split())


def test_the_config_knows_exactly_the_names_that_there_are(messages):
    """A placeholder that the configuration accepts is always filled."""
    assert set(values(messages)) == set(PLACEHOLDERS)


def test_the_worst_open_alert_leads(messages):
    """The title is about it and counts the other runs; a closed notification says so."""
    assert title(messages) == "critical: the reference is the policy suspected in c and 2 more runs"
    assert title(messages[:1]).startswith("resolved: ")
    assert values(messages)["run"] == "c" and values(messages[:1])["status"] == "resolved"


def test_a_notification_says_where_to_read_on(journal, make_alert):
    """The leading alert's links, in the body and at the end of the text; nothing where there are none."""
    linked = compose(make_alert(), 1.0, links=Links("http://watch", "http://docs"))
    Webhook("w", journal.poster()).send([linked], 1.0)
    (body,) = journal.entries
    page, runbook = "http://watch/runs/r1/alerts/r1%2Fkl-ref-exactly-zero", "http://docs#ref_is_policy"
    assert (body["page_url"], body["runbook_url"]) == (page, runbook)
    assert body["text"].endswith(f"page: {page}\nrunbook: {runbook}")
    assert body["alerts"][0]["annotations"]["runbook_url"] == runbook
    assert "runbook:" not in text([compose(make_alert(), 1.0)])


def test_a_repeated_notification_can_be_recognised(journal, messages):
    """The same alerts in any order carry the same Idempotency-Key; another state is another one."""
    hook = Webhook("w", journal.poster())
    for batch in (messages, messages[::-1], messages[1:]):
        hook.send(batch, 1.0)
    keys = [seen["Idempotency-Key"] for seen in journal.seen]
    assert keys[0] == keys[1] != keys[2]


def test_a_refused_notification_is_halved(journal, messages):
    """One alert that a receiver will not have does not take the others with it."""
    journal.refuses = lambda body: "b" in body["runs"]
    outcome = Webhook("w", journal.poster()).send(messages, 1.0)
    assert outcome.accepted == {0, 2} and set(outcome.refused) == {1}
