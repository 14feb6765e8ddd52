"""A real Alertmanager takes what we send: fires with fault and first test, resolves, and knows one alert as one."""

import json
import os
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from rltriage.engine.report import Suspect
from rltriage.exporters.delivery.alertmanager import Alertmanager, endpoint
from rltriage.exporters.delivery.dispatcher import Dispatcher, Route
from rltriage.exporters.delivery.http import Poster
from rltriage.exporters.delivery.message import Links, compose
from rltriage.exporters.delivery.outbox import Outbox

PAUSE = threading.Event()
CONFIG = """
route:
  {receiver: hook, group_by: [run], group_wait: 0s, group_interval: 1s, repeat_interval: 1h,
   routes: [{matchers: ['fault="mask_shift"', 'severity="critical"', 'team=~"post.*"'], receiver: posttraining}]}
receivers:
  - {name: hook, webhook_configs: [{url: 'URL', send_resolved: true}]}
  - {name: posttraining, webhook_configs: [{url: 'URL', send_resolved: true}]}
"""


@pytest.fixture
def real(server_command, tmp_path, journal):
    """The address of an Alertmanager that passes everything on to the journal."""
    command = server_command("prometheus-alertmanager")
    (tmp_path / "alertmanager.yml").write_text(CONFIG.replace("URL", journal.url))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [*command, f"--config.file={tmp_path / 'alertmanager.yml'}", f"--storage.path={tmp_path / 'am'}"]
    command += [f"--web.listen-address={address}", "--cluster.listen-address=", "--log.level=error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    url = f"http://{address}"
    try:
        ready = until(lambda: get(f"{url}/-/ready") is not None or process.poll() is not None) and process.poll() is None
        if not ready and os.environ.get("CI") != "1":
            pytest.skip(f"Alertmanager does not start here: {process.stderr and process.stderr.read1()!r}")
        assert ready
        yield url
    finally:
        process.terminate()
        process.communicate(timeout=10)


def get(url):
    """The body of an answer, or None while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read()
    except (urllib.error.URLError, ConnectionError):
        return None


def until(condition, seconds=20.0):
    """Wait for a server's state; what it is when the time is up is the caller's to judge."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        PAUSE.wait(0.05)
    return condition()


def active(url):
    """The labels of the alerts that Alertmanager holds to be active."""
    return [alert["labels"] for alert in json.loads(get(f"{url}/api/v2/alerts?active=true"))]


def test_an_alert_fires_with_fault_and_first_test_and_resolves(real, journal, tmp_path, make_alert):
    """Through the outbox, as in service; the webhook behind Alertmanager hears both."""
    route = Route(Alertmanager("am", [Poster(lambda: endpoint(real))]))
    dispatcher = Dispatcher(Outbox(tmp_path / "state"), [route], links=Links("http://watch:9464", "http://docs/faults"))
    dispatcher.offer([make_alert()], time.time(), labels={"team": "post"})
    assert dispatcher.flush(time.time()) == 1
    assert until(lambda: active(real))
    (labels,) = active(real)
    assert labels["fault"] == "ref_is_policy" and labels["first_test"] == "kl_after_one_step" and labels["team"] == "post"
    dispatcher.flush(time.time() + 61)  # re-sent, and still one alert
    assert len(active(real)) == 1
    assert until(lambda: any(body["status"] == "firing" for body in journal.entries))
    dispatcher.offer([make_alert(state="resolved", step=20)], time.time(), labels={"team": "post"})
    dispatcher.flush(time.time() + 62)
    assert until(lambda: not active(real)) and until(lambda: journal.entries[-1]["status"] == "resolved")
    (told,) = journal.entries[-1]["alerts"]
    assert "ref_is_policy" in told["annotations"]["suspects"]
    assert told["annotations"]["runbook_url"] == "http://docs/faults#ref_is_policy"
    assert told["generatorURL"] == "http://watch:9464/runs/r1/alerts/r1%2Fkl-ref-exactly-zero"


def test_its_silences_hold_over_every_re_send(real, journal, tmp_path, make_alert):
    """What Alertmanager silences by our labels stays silent while the alert is repeated and when it gets worse."""
    silence = {
        "matchers": [{"name": "run", "value": "quiet", "isRegex": False, "isEqual": True}],
        "startsAt": "2020-01-01T00:00:00Z", "endsAt": "2100-01-01T00:00:00Z", "createdBy": "test", "comment": "known",
    }  # fmt: skip
    request = urllib.request.Request(
        f"{real}/api/v2/silences", json.dumps(silence).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        identity = json.loads(answer.read())["silenceID"]
    dispatcher = Dispatcher(Outbox(tmp_path / "state"), [Route(Alertmanager("am", [Poster(lambda: endpoint(real))]))])
    dispatcher.offer([make_alert(run="quiet"), make_alert(run="loud")], time.time())
    dispatcher.flush(time.time())
    for minute in (1, 2):
        dispatcher.offer([make_alert(run="quiet", rule=f"later-{minute}")], time.time())
        dispatcher.flush(time.time() + 61 * minute)
    assert until(lambda: journal.entries)
    held = [a for a in json.loads(get(f"{real}/api/v2/alerts")) if a["labels"]["run"] == "quiet"]
    assert len(held) == 3 and all(alert["status"]["silencedBy"] == [identity] for alert in held)
    assert {alert["labels"]["run"] for body in journal.entries for alert in body["alerts"]} == {"loud"}


def test_its_routes_see_fault_severity_and_the_runs_own_labels(real, journal, tmp_path, make_alert):
    """One alert goes down the route of its fault and team, the other does not."""
    dispatcher = Dispatcher(Outbox(tmp_path / "state"), [Route(Alertmanager("am", [Poster(lambda: endpoint(real))]))])
    shifted = (Suspect("mask_shift", "", 0.9),)
    dispatcher.offer([make_alert(run="a", suspects=shifted)], time.time(), labels={"team": "posttraining"})
    dispatcher.offer([make_alert(run="b", suspects=shifted), make_alert(run="c")], time.time(), labels={"team": "pre"})
    dispatcher.flush(time.time())
    assert until(lambda: len(journal.entries) == 3)
    told = {body["alerts"][0]["labels"]["run"]: body["receiver"] for body in journal.entries}
    assert told == {"a": "posttraining", "b": "hook", "c": "hook"}


def test_it_stores_the_good_alerts_of_a_refused_batch(real, make_alert):
    """Its 400 covers one label; the others are accepted and the bad one is named alone."""
    good = [compose(make_alert(run=f"r{number}"), time.time()) for number in range(5)]
    bad = compose(make_alert(run="bad"), time.time())
    bad.labels["not-a-name"] = "x"  # type: ignore[index]
    outcome = Alertmanager("am", [Poster(lambda: endpoint(real))]).send([*good[:3], bad, *good[3:]], time.time())
    assert outcome.accepted == {0, 1, 2, 4, 5} and set(outcome.refused) == {3}
    assert until(lambda: len(active(real)) == 5)


def test_odd_texts_are_taken(real, make_alert):
    """Whatever a run is called: control characters, quotes, other scripts, halves of surrogate pairs, long names."""
    odd = ['a "b"\n\\', "\u0000\u001f", "\ud800", "\u904b\u884c \u2603", "x" * 5000, "{}", " "]
    messages = [compose(make_alert(run=name, id=name, summary=name), time.time()) for name in odd]
    outcome = Alertmanager("am", [Poster(lambda: endpoint(real))]).send(messages, time.time())
    assert not outcome.refused and not outcome.problem and len(outcome.accepted) == len(odd)
