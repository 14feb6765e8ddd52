"""The whole way on one machine, without Docker and without root: `make stack`, or `python deploy/stack.py [--check]`.

Prometheus and Alertmanager (deploy/fetch_servers.sh), `rltriage serve` on a folder of runs, and the reference trainer with
a planted fault that writes there, each on 127.0.0.1: on its usual port where that is free, else on another. The
configurations are those of this folder; only the addresses are put in. Everything lives in a temporary folder and ends with
this program: at Ctrl-C, SIGTERM or SIGHUP, and when a server dies. --check ends by itself once the alert is there,
exit code 0 if it came in time (--limit) both ways (pushed by rltriage, fired by Prometheus) and nothing is left running.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from receiver import Receiver, line

HERE = Path(__file__).resolve().parent
SERVERS = HERE.parent / ".cache" / "servers" / "usr" / "bin"
PORTS = {"page": 8321, "prometheus": 9090, "alertmanager": 9093, "receiver": 9095, "rltriage": 9464}
FAULT, FIRST_TEST = "mask_shift", "mask_equals_policy_tokens"
RUN = "planted-mask-shift"
STEPS = 600
"""Some minutes of training, so that there is something to look at."""
LIMIT = 60.0
"""Seconds from the start of this program to the alert, where nothing else is said."""
STOP_SECONDS = 30.0


class Failed(Exception):
    """One sentence for the user."""


@dataclass
class Program:
    """A child process and where it writes."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:].strip()


@dataclass
class Stack:
    """The running programs and their addresses; `stop` ends them all."""

    folder: Path
    fault: str = FAULT
    limit: float = LIMIT
    addresses: dict[str, str] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    begin: float = field(default_factory=time.monotonic)
    told: list[dict[str, Any]] = field(default_factory=list)
    receiver: Receiver | None = None

    def start(self) -> None:
        """Start all servers and wait until each is ready. The trainer comes last, by `train`."""
        servers = {name: server_command(name) for name in ("prometheus", "prometheus-alertmanager")}
        self.addresses = {name: free_address(port) for name, port in PORTS.items() if name != "receiver"}
        self.receiver = receiver(self.told.append)
        self.addresses["receiver"] = "{}:{}".format(*self.receiver.server_address[:2])
        threading.Thread(target=self.receiver.serve_forever, daemon=True).start()
        self._configure()
        at, folder = self.addresses, self.folder
        command = [*servers["prometheus-alertmanager"], f"--config.file={folder}/alertmanager.yaml", "--log.level=warn"]
        command += [f"--storage.path={folder}/alertmanager", "--cluster.listen-address="]
        self._run("alertmanager", [*command, *self._web("alertmanager")])
        command = [*servers["prometheus"], f"--config.file={folder}/prometheus.yaml", "--log.level=warn"]
        command += [f"--storage.tsdb.path={folder}/tsdb", "--storage.tsdb.retention.time=1d"]
        self._run("prometheus", [*command, *self._web("prometheus")])
        command = [
            *RLTRIAGE,
            "serve",
            "--file",
            f"{folder}/rltriage.yaml",
            "--page",
            at["page"],
            "--listen",
            at["rltriage"],
        ]
        self._run("rltriage", command)
        for name in ("alertmanager", "rltriage", "prometheus"):
            self.wait(partial(get, f"http://{at[name]}/-/ready"), f"{name} to be ready")

    def train(self) -> None:
        """The reference trainer with the planted fault, at low priority: it is the only one that needs a core."""
        command = [*RLTRIAGE, "train", "--fault", self.fault, "--steps", str(STEPS), "--name", RUN]
        self._run("trainer", ["nice", "-n", "10", *command, "--runs", f"{self.folder}/runs", "--label", "team=demo"])

    def wait(self, condition: Callable[[], object], what: str) -> Any:
        """What `condition` gives as soon as that is true. Raises Failed when a program dies, or after `limit` seconds."""
        deadline = time.monotonic() + self.limit
        while not (found := condition()):
            self.check_alive()
            if time.monotonic() > deadline:
                raise Failed(f"waited {self.limit:.0f} s for {what}, in vain")
            self.stopping.wait(0.1)
            if self.stopping.is_set():
                raise KeyboardInterrupt
        return found

    def check_alive(self) -> None:
        """Raises Failed when a program has ended that should not; a trainer at its end is none of them."""
        for program in list(self.programs):
            code = program.process.poll()
            if code is None:
                continue
            if program.name == "trainer" and code in (0, 1):
                self.programs.remove(program)
                print("the trainer is at its end; the servers go on", flush=True)
                continue
            said = program.last_words()
            if said.startswith("unshare:"):
                said += "\nuser namespaces are forbidden here: install prometheus-alertmanager with apt-get instead"
            raise Failed(f"{program.name} ended with exit code {code}:\n{said}")

    def held(self, label: str, value: str) -> list[dict[str, Any]]:
        """What Alertmanager holds with this label."""
        return get(f"http://{self.addresses['alertmanager']}/api/v2/alerts?active=true&filter={label}={value}") or []

    def alerts(self) -> list[dict[str, Any]]:
        """What Alertmanager holds of the planted fault."""
        return [alert for alert in self.held("fault", self.fault) if alert["labels"].get("run") == RUN]

    def fired(self) -> list[dict[str, str]]:
        """The labels of the alerts of the planted fault that Prometheus fires by the compiled rules."""
        found = get(f"http://{self.addresses['prometheus']}/api/v1/alerts") or {"data": {"alerts": []}}
        firing = [alert["labels"] for alert in found["data"]["alerts"] if alert["state"] == "firing"]
        return [labels for labels in firing if labels.get("fault") == self.fault]

    def broken_rules(self) -> list[str]:
        """Every rule that Prometheus could not evaluate, with its error."""
        found = get(f"http://{self.addresses['prometheus']}/api/v1/rules")
        rules = [rule for group in found["data"]["groups"] for rule in group["rules"]]
        return [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] == "err"]

    def stop(self) -> None:
        """End one program after the other, the trainer first and Alertmanager last. Stopping twice does nothing."""
        for program in reversed(self.programs):
            program.process.terminate()
            try:
                program.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                program.process.kill()
                program.process.wait()
        self.programs.clear()
        if self.receiver is not None:
            self.receiver.shutdown()
            self.receiver.server_close()
            self.receiver = None

    def _configure(self) -> None:
        """The files of this folder, with this machine's addresses in the place of the compose file's names."""
        at, folder = self.addresses, self.folder
        for file in (HERE / "prometheus").glob("*.yaml"):
            shutil.copy(file, folder)
        for part in ("targets", "rules"):
            (folder / part).mkdir()
        for name in ("rltriage", "alertmanager", "prometheus"):
            (folder / "targets" / f"{name}.yaml").write_text(f'- targets: ["{at[name]}"]\n')
        compiling = [
            *RLTRIAGE,
            "rules",
            "compile",
            "--page",
            f"http://{at['page']}",
            "-o",
            str(folder / "rules" / "rltriage.yaml"),
        ]
        subprocess.run(compiling, check=True, start_new_session=True)
        put_in(HERE / "alertmanager" / "alertmanager.yaml", folder, {"receiver:9095": at["receiver"]})
        put_in(HERE / "rltriage.yaml", folder, {"alertmanager:9093": at["alertmanager"], "127.0.0.1:8321": at["page"]})
        (folder / "runs").mkdir()

    def _web(self, name: str) -> list[str]:
        address = self.addresses[name]
        return [f"--web.listen-address={address}", f"--web.external-url=http://{address}"]

    def _run(self, name: str, command: list[str]) -> None:
        log = self.folder / f"{name}.log"
        # A session of its own: Ctrl-C in the terminal reaches this program alone, which ends the others in order.
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.programs.append(Program(name, process, log))


RLTRIAGE = [sys.executable, "-m", "rltriage"]


def put_in(file: Path, folder: Path, names: Mapping[str, str]) -> None:
    """Copy a configuration, with an address for each name, which must stand in it exactly once."""
    text = file.read_text(encoding="utf-8")
    for name, address in names.items():
        if text.count(name) != 1:
            raise Failed(f"{file} must name {name} exactly once")
        text = text.replace(name, address)
    (folder / file.name).write_text(text, encoding="utf-8")


def server_command(name: str) -> list[str]:
    """How to run a server of the PATH or of deploy/fetch_servers.sh. Raises Failed with the way to get it.

    Debian's Alertmanager has the path of its templates compiled in, so an unpacked one gets a /usr/share of its own.
    """
    other = {"prometheus-alertmanager": "alertmanager"}.get(name, name)
    binary = shutil.which(name) or shutil.which(other) or shutil.which(name, path=str(SERVERS))
    if binary is None:
        raise Failed(f"{name} is missing: `make servers` fetches it on Debian and Ubuntu; elsewhere put it on the PATH")
    share = Path(binary).parents[1] / "share"
    templates = share / "prometheus" / "alertmanager" / "default.tmpl"
    if name != "prometheus-alertmanager" or Path(binary).parent != SERVERS or not templates.exists():
        return [binary]
    if Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
        return [binary]
    return [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount --bind "$0" /usr/share && exec "$@"',
        str(share),
        binary,
    ]


def alive(pid: int) -> bool:
    """Whether a process of ours has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def free_address(port: int) -> str:
    """127.0.0.1 with this port, or with a free one where somebody listens on it."""
    for wanted in (port, 0):
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                free.bind(("127.0.0.1", wanted))
            except OSError:
                continue
            return f"127.0.0.1:{free.getsockname()[1]}"
    raise Failed("no port is free")


def receiver(told: Callable[[dict[str, Any]], None]) -> Receiver:
    """On its usual port, or on a free one: another stack may have taken the port a moment ago."""
    try:
        return Receiver(f"127.0.0.1:{PORTS['receiver']}", told)
    except OSError:
        return Receiver("127.0.0.1:0", told)


def get(url: str) -> Any:
    """The body of an answer as JSON, or as text; None while nobody answers, or it is not ready."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            body = answer.read().decode()
    except (urllib.error.URLError, OSError):
        return None
    return json.loads(body) if body[:1] in "[{" else body


def addresses(stack: Stack) -> str:
    """Where to look."""
    at = {name: f"http://{address}" for name, address in stack.addresses.items()}
    return (
        f"on-call page   {at['page']}\n"
        f"Prometheus     {at['prometheus']}/alerts\n"
        f"Alertmanager   {at['alertmanager']}/#/alerts\n"
        f"gauges         {at['rltriage']}/metrics\n"
        f"logs           {stack.folder}/*.log"
    )


def found(alert: dict[str, Any], seconds: float) -> str:
    """The alert for people."""
    labels, notes = alert["labels"], alert["annotations"]
    # The catalogue leaves the probe to the user; here the trainer is the reference trainer with this fault.
    command = notes.get("first_test_command", "-").replace("--probe MODULE:FUNCTION", f"--fault {labels['fault']}")
    return (
        f"\nAlertmanager has the alert, {seconds:.0f} s after the start:\n"
        f"  {labels['severity']} {labels['alertname']} in {labels['run']}\n"
        f"  fault        {labels['fault']}\n"
        f"  first test   {labels['first_test']}\n"
        f"  run it with  {command}\n"
        f"  {notes['summary']}"
    )


def watch(stack: Stack, check: bool) -> None:
    """Wait for the alert, show it, and go on until something ends, or, with `check`, until both ways have shown it."""
    alert = stack.wait(stack.alerts, f"an alert of {stack.fault}")[0]
    seconds = time.monotonic() - stack.begin
    print(found(alert, seconds), flush=True)
    if check:
        checked(stack, seconds)
        return
    print("\nwhat the receiver hears (Ctrl-C ends everything):", flush=True)
    while not stack.stopping.wait(0.5):
        stack.check_alive()
        while stack.told:
            print(line(stack.told.pop(0)), flush=True)


def checked(stack: Stack, seconds: float) -> None:
    """Raises Failed for whatever a user would miss: a late alert, one that only one side has, a rule in error."""
    if seconds > stack.limit:
        raise Failed(f"the alert took {seconds:.0f} s, more than {stack.limit:.0f}")
    fired = stack.wait(stack.fired, "Prometheus to fire the compiled rule")
    told = stack.wait(lambda: [each for each in stack.told if each["labels"].get("fault") == stack.fault], "the receiver")
    names = {labels["alertname"] for labels in fired}
    stack.wait(lambda: names <= {alert["labels"]["alertname"] for alert in stack.alerts()}, "Alertmanager to have them all")
    held = stack.alerts()
    wanted = {"run": RUN, "team": "demo", "fault": stack.fault, "severity": "critical"}
    for labels in [*fired, *(alert["labels"] for alert in (*held, *told))]:
        if any(labels.get(name) != value for name, value in wanted.items()) or not labels.get("first_test"):
            raise Failed(f"the alert's labels are not those of the planted fault: {labels}")
    if len({alert["labels"]["alertname"] for alert in held}) != len(held):
        raise Failed("pushed and pulled alerts differ in their labels: Alertmanager holds some twice")
    if FIRST_TEST not in {alert["labels"]["first_test"] for alert in held}:
        raise Failed(f"no alert names {FIRST_TEST} as first test")
    if not all({"summary", "description", "first_test_command"} <= alert["annotations"].keys() for alert in held):
        raise Failed("an alert lacks its summary, description or command")
    stack.wait(lambda: stack.held("alertname", "RltriageWatchdog"), "the alerts on rltriage itself")
    if stack.broken_rules():
        raise Failed(f"Prometheus cannot evaluate {'; '.join(stack.broken_rules())}")
    print(f"\nchecked: {len(held)} alerts, each pushed or pulled under the same labels; the receiver heard {len(told)}")


def main() -> int:
    """Start, watch, and stop whatever happens; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--check", action="store_true", help="end once the alert is there; exit 0 if all is as it should be"
    )
    parser.add_argument("--fault", default=FAULT, help=f"the fault to plant; {FAULT} if you do not say otherwise")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds until the alert must be there; 60")
    options = parser.parse_args()
    if options.check and options.fault != FAULT:
        parser.error(f"--check knows what to expect of {FAULT} alone")
    with tempfile.TemporaryDirectory(prefix="rltriage-stack-") as folder:
        stack = Stack(Path(folder), options.fault, options.limit)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: stack.stopping.set())
        pids: list[int] = []
        try:
            stack.start()
            print(f"{addresses(stack)}\n\ntraining the reference agent with {stack.fault} switched on ...", flush=True)
            stack.train()
            pids = [program.process.pid for program in stack.programs]
            watch(stack, options.check)
        except Failed as problem:
            print(f"stack: {problem}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            pass
        finally:
            stack.stop()
        left = [pid for pid in pids if alive(pid)]
        if left:
            print(f"stack: still running: {left}", file=sys.stderr)
            return 1
        print("\neverything has stopped", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
