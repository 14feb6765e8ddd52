"""`make stack`: the whole way with real servers, once; and that nothing of it outlives the program."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import receiver
import stack

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "deploy" / "stack.py")]
PATIENCE = 120


@pytest.fixture(scope="module")
def servers(server_binary):
    """Prometheus and Alertmanager are there."""
    for name in ("prometheus", "prometheus-alertmanager"):
        server_binary(name)
    pytest.importorskip("uvicorn", reason="the page needs the extra 'web'")


@pytest.fixture(scope="module")
def running(servers, tmp_path_factory):
    """A running stack without its trainer, ended with the tests: one of them ends it on its way."""
    found = stack.Stack(tmp_path_factory.mktemp("stack"), limit=PATIENCE)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def test_a_planted_fault_is_an_alert_and_everything_stops(servers):
    """`make stack-check`: pushed and pulled as one alert, with fault and first test, told to the receiver.

    The minute is that of an idle machine (24 s were measured); other tests run beside this one, so it has three.
    """
    pytest.importorskip("torch")
    ran = subprocess.run(
        [*PROGRAM, "--check", "--limit", "180"], capture_output=True, text=True, timeout=4 * PATIENCE, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"fault +mask_shift", ran.stdout) and re.search(r"first test +\w+", ran.stdout)
    assert "each pushed or pulled under the same labels" in ran.stdout and "everything has stopped" in ran.stdout


def test_ctrl_c_ends_everything_in_order(servers):
    """Also before there is an alert; exit code 0, and no port is held any more."""
    with subprocess.Popen(PROGRAM, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        said = ""
        while "logs" not in said:
            line = process.stdout.readline()
            assert line, f"it ended by itself: {said}"
            said += line
        process.send_signal(signal.SIGINT)
        said += process.communicate()[0]
        watchdog.cancel()
    assert process.returncode == 0 and "everything has stopped" in said, said
    for port in re.findall(r"http://127\.0\.0\.1:(\d+)", said):
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", int(port)))
    assert not Path(re.search(r"logs +(\S+)/", said)[1]).exists(), "the temporary folder is left behind"


def test_prometheus_loads_every_rule_and_finds_every_target(running):
    """The compiled pack, the alerts on rltriage itself, and all jobs up: the files of deploy/ fit together."""
    url = f"http://{running.addresses['prometheus']}"
    up = running.wait(lambda: _jobs(stack.get(f"{url}/api/v1/query?query=up==1")), "the targets")
    assert up <= {"rltriage", "alertmanager", "prometheus"}
    running.wait(lambda: len(_jobs(stack.get(f"{url}/api/v1/query?query=up==1"))) == 3, "all three")
    groups = stack.get(f"{url}/api/v1/rules")["data"]["groups"]
    assert {group["file"].rsplit("/", 1)[1] for group in groups} >= {"rltriage.yaml", "meta-alerts.yaml"}
    assert running.broken_rules() == []


def _jobs(answer):
    return {entry["metric"]["job"] for entry in answer["data"]["result"]}


def test_a_server_that_dies_ends_the_others(running):
    """It is said which one and what its log says; then no process is left."""
    pids = [program.process.pid for program in running.programs]
    victim = next(program for program in running.programs if program.name == "prometheus")
    victim.process.kill()
    victim.process.wait(PATIENCE)
    with pytest.raises(stack.Failed, match="prometheus ended with exit code -9"):
        running.check_alive()
    running.stop()
    assert pids and not [pid for pid in pids if stack.alive(pid)]


def test_a_port_that_is_taken_is_replaced():
    """Somebody's own Prometheus keeps its port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert stack.free_address(port) != f"127.0.0.1:{port}"


def test_two_stacks_at_once_each_have_a_receiver():
    """The second takes another port, also where the first took the usual one after it was looked at."""
    with stack.receiver(lambda alert: None) as one, stack.receiver(lambda alert: None) as other:
        assert one.server_address != other.server_address


def test_a_missing_server_is_one_sentence_with_the_way_to_get_it(monkeypatch):
    """Nothing has been started by then."""
    monkeypatch.setattr(stack, "SERVERS", Path("/nowhere"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(stack.Failed, match="prometheus is missing: `make servers`"):
        stack.server_command("prometheus")


def test_an_address_goes_where_the_name_stands_once(tmp_path):
    """A configuration that no longer names it would silently keep the compose file's address."""
    file, folder = tmp_path / "a.yaml", tmp_path / "to"
    folder.mkdir()
    file.write_text("url: http://receiver:9095/\n")
    stack.put_in(file, folder, {"receiver:9095": "127.0.0.1:1"})
    assert (folder / "a.yaml").read_text() == "url: http://127.0.0.1:1/\n"
    with pytest.raises(stack.Failed, match="exactly once"):
        stack.put_in(file, folder, {"alertmanager:9093": "127.0.0.1:1"})


def test_the_receiver_prints_alerts_and_refuses_the_rest():
    """One line an alert; what is no notification is answered with 400 and not printed."""
    told = []
    with receiver.Receiver("127.0.0.1:0", told.append) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        labels = {"alertname": "A", "fault": "mask_shift", "run": "r", "severity": "critical"}
        alert = {"status": "firing", "labels": labels, "annotations": {"summary": "s", "first_test": "t"}}
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps({"alerts": [alert]}).encode()), timeout=30) as a:
            assert a.status == 200
        for body in (b"no json", b"[]", b'{"alerts": 1}', b'{"alerts": [1]}'):
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(urllib.request.Request(url, body), timeout=30)
        server.shutdown()
    assert told == [alert]
    assert receiver.line(alert) == "firing   critical mask_shift in r: s; first test: t"
