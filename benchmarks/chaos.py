"""Kill the service again and again while its receivers, its disk and its clock misbehave, and count what arrived.

    python benchmarks/chaos.py --kills 50

Runs are written row by row while the service follows them; it is killed with SIGKILL at random moments. Its clock jumps by
up to a day at each start and by up to two hours while it runs, its disk is full now and then (RLIMIT_FSIZE), and its
receivers refuse, hang and answer 400, 429 and 500 in between. The receivers' journals are the witnesses: at the end every
transition that a replay of the logs yields must be in the webhook's journal once. A second entry is excused only in the
crash window: the first was answered within WINDOW seconds of a kill, so that its sender cannot have noted the answer, or
since a disk became full that was still full at the kill, so that nothing could be noted. A run's transitions must come
in their order, except that one which was refused with 400 for STEP_ASIDE times, and what waits for it, lets those of other
alerts pass; an alert's own order holds always. Exit code 0 if nothing was lost, repeated or out of order, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rltriage.exporters.delivery.outbox import STEP_ASIDE

WINDOW = 2.0
"""Seconds in which a busy machine gets from a receiver's answer to the note of it on disk."""
NOTING = 3.0
"""Seconds until the service has written to a disk with room again what it could not write to the full one."""
RUNS = 6
SETTLE_SECONDS = 180.0
START_SECONDS = 30.0
CLOCK = "clock"
"""The file beside the configuration that says by how many seconds the service's clock is wrong."""
SERVICE = """
import sys, time
from pathlib import Path
from rltriage.rules.config import load_config
from rltriage.service import Service
file = Path(sys.argv[1])
Service(load_config(file), clock=lambda: time.time() + float((file.parent / "clock").read_text())).run()
"""
PACK = """
version: 1
pack: chaos
rules:
  - {id: clip-high, summary: "clip_frac is {clip_frac}", group: optimizer, severity: critical,
     when: {threshold: {metric: clip_frac, above: 0.5}},
     suspects: {accum_norm: 0.9}, first_test: accumulation_equals_one_pass}
  - {id: reward-low, summary: "reward is {reward}", group: outcome, severity: warning,
     when: {threshold: {metric: reward, below: 0.1}},
     suspects: {ref_is_policy: 0.9}, first_test: kl_after_one_step}
"""

Key = tuple[str, str]
"""(alert id, state): one transition."""


@dataclass
class Journal:
    """One receiver: what it accepted and when, what it refused, and the weather, which decides what it answers."""

    accepted: list[tuple[float, Any]] = field(default_factory=list)
    attempts: int = 0
    refused: Counter[Key] = field(default_factory=Counter)
    weather: Callable[[], str] = lambda: "fair"
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Journal:
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.daemon_threads, self.server.block_on_close = True, False
        self.server.journal = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off is what a kill looks like from here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        journal: Journal = self.server.journal  # type: ignore[attr-defined]
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if len(data) < int(self.headers["Content-Length"]):
            self.close_connection = True  # the sender was killed in the middle
            return
        body = json.loads(data)
        weather = journal.weather()
        journal.attempts += 1
        if weather in ("refuse", "hang"):
            if weather == "hang":
                time.sleep(1.5)
            self.close_connection = True
            return
        with journal.lock:
            if weather == "fair":
                journal.accepted.append((time.monotonic(), body))
            elif weather == "400" and isinstance(body, dict):
                journal.refused.update((alert["id"], alert["state"]) for alert in body["alerts"])
        self.send_response(200 if weather == "fair" else int(weather))
        self.send_header("Content-Length", "0")
        if weather == "429":
            self.send_header("Retry-After", "2")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """The journal is the log."""


@dataclass
class Result:
    """What the journals say. Lost and repeated are (alert id, state).

    `excused` were repeated in the crash window, `unnoted` after a kill on a full disk.

    `told_between_kills` were delivered before the last start, which nobody kills: they are what the kills could harm.
    """

    expected: int
    told_between_kills: int
    kills: int
    attempts: int
    lost: list[Key]
    repeated: list[tuple[str, str, str]]
    excused: list[Key]
    unnoted: list[Key]
    disordered: list[str]
    not_in_alertmanager: list[str]
    exit_code: int
    seconds: float

    @property
    def ok(self) -> bool:
        return not (self.lost or self.repeated or self.disordered or self.not_in_alertmanager or self.exit_code)


class Writer(threading.Thread):
    """Appends rows to every run: healthy and faulty stretches in turn, so that alerts fire and resolve."""

    def __init__(self, folder: Path, seed: int, pause: float) -> None:
        super().__init__(daemon=True)
        self.folder, self.pause = folder, pause
        self.random = random.Random(seed)
        self.done = threading.Event()

    def run(self) -> None:
        bad = [[False, False] for _ in range(RUNS)]
        step = 0
        while not self.done.wait(self.pause):
            for run in range(RUNS):
                for which in range(2):
                    if self.random.random() < 1 / 12:
                        bad[run][which] = not bad[run][which]
                row = {"step": step, "clip_frac": 0.9 if bad[run][0] else 0.1, "reward": 0.0 if bad[run][1] else 0.7}
                row["loss"] = self.random.random()  # rows that repeat would be taken for copies
                with open(self.folder / f"run{run}.jsonl", "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            step += 1


def expected(folder: Path, pack_file: Path) -> dict[str, list[Key]]:
    """What must have been said of each run, in order: every transition of a replay of what was written."""
    from rltriage.engine.sources import open_source
    from rltriage.replaying import replay
    from rltriage.rules.loader import load_rules

    pack = load_rules(pack_file)
    found: dict[str, list[Key]] = {}

    class Sink:
        def publish(self, run: Any, row: Any, report: Any) -> None:
            if row is not None:
                told = [(alert.id, alert.state) for alert in report.alerts if alert.state != "pending"]
                found.setdefault(run.id, []).extend(told)

        def end(self, run_id: str, state: str, now: float) -> None:
            """A replay ends; the runs of the service go on."""

    for path in sorted(folder.glob("*.jsonl")):
        for _ in replay(open_source(str(path)), pack, run_id=path.stem, sinks=[Sink()]):
            pass
    return found


def configure(folder: Path, hook: str, alertmanager: str) -> Path:
    """The service's configuration, rules and an empty folder of logs."""
    (folder / "logs").mkdir()
    (folder / "rules.yaml").write_text(PACK)
    (folder / CLOCK).write_text("0.0")
    file = folder / "rltriage.yaml"
    file.write_text(
        "version: 1\nstate_dir: state\nlisten: 127.0.0.1:0\n"
        "rules: {packs: [], extra: [rules.yaml]}\nsources: [{path: logs}]\nreceivers:\n"
        f"  - {{name: hook, webhook: '{hook}', group_window: 0}}\n"
        f"  - {{name: am, alertmanager: '{alertmanager}'}}\n"
    )
    return file


class Storm(threading.Thread):
    """Changes everything every now and then: what the receivers answer, the clock, whether the disk is full.

    `full` are the stretches (from, until) in which a process could not write.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.random = random.Random(seed)
        self.mood = {"hook": "fair", "am": "fair"}
        self.process: subprocess.Popen[bytes] | None = None
        self.full: list[tuple[float, float]] = []
        self._full_since = 0.0
        self._lock = threading.Lock()
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self.random.uniform(0.2, 1.0)):
            for name in self.mood:
                self.mood[name] = self.random.choice(["fair"] * 4 + ["refuse", "hang", "400", "429", "500"])
            if self.random.random() < 0.1:
                self.clock(self.random.uniform(-7200, 7200))
            with self._lock:
                self._disk(self.random.random() < 0.1)

    def clock(self, offset: float) -> None:
        """Set the service's clock wrong by `offset` seconds."""
        part = self.folder / f"{CLOCK}.part"
        with self._lock:
            part.write_text(str(offset))
            os.replace(part, self.folder / CLOCK)

    def kill(self, process: subprocess.Popen[bytes]) -> float:
        """SIGKILL; the moment of it. The next process finds a disk with room."""
        with self._lock:
            at = time.monotonic()
            process.kill()
            process.wait()
            self._note(at)
            self.process = None
        return at

    def end(self) -> None:
        """Fair weather, a disk with room and the right time from now on."""
        self._over.set()
        self.join()
        self.mood.update(hook="fair", am="fair")
        self.clock(0.0)

    def _disk(self, full: bool) -> None:
        """A process whose files may not grow is one whose disk is full, and needs neither root nor a disk of its own."""
        if self.process is None or not hasattr(resource, "prlimit"):
            return
        if full and not self._full_since:
            self._full_since = time.monotonic()
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        with suppress(ProcessLookupError):
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (1 if full else hard, hard))
        if not full:
            self._note(time.monotonic())

    def _note(self, until: float) -> None:
        if self._full_since:
            self.full.append((self._full_since, until))
        self._full_since = 0.0


def run(kills: int, seed: int, folder: Path, pause: float = 0.1, most: int = 8) -> Result:
    """One session of `kills` kills in `folder`: every sixth while the service starts, the others while it delivers.

    A row comes every `pause` seconds; a kill comes after two to `most` requests that the webhook accepted.
    """
    started = time.monotonic()
    storm = Storm(folder, seed)
    with Journal() as hook, Journal() as am:
        hook.weather, am.weather = lambda: storm.mood["hook"], lambda: storm.mood["am"]
        file = configure(folder, hook.url, am.url)
        writer = Writer(folder / "logs", seed, pause)
        writer.start()
        storm.start()
        killed = [_life(file, storm, hook, most, early=number % 6 == 5) for number in range(kills)]
        before = len(_told(hook))
        writer.done.set()
        writer.join()
        storm.end()
        wanted = expected(folder / "logs", folder / "rules.yaml")
        code = _last_life(file, lambda: _settled(wanted, hook, am))
        return _judge(wanted, hook, am, killed, storm.full, before, code, time.monotonic() - started)


def _start(file: Path) -> subprocess.Popen[bytes]:
    log = open(file.parent / "service.log", "ab")  # noqa: SIM115 (belongs to the process)
    return subprocess.Popen([sys.executable, "-c", SERVICE, str(file)], stdout=log, stderr=log)


def _life(file: Path, storm: Storm, hook: Journal, most: int, early: bool) -> float:
    """One start and its kill; the moment of the kill."""
    chance = random.Random(storm.random.random())
    # Not after seconds: on a busy machine the kill would come before anything was done.
    enough = len(hook.accepted) + chance.randint(2, most)
    storm.clock(chance.choice([0.0, chance.uniform(-7200, 7200), chance.uniform(-86400, 86400)]))
    process = storm.process = _start(file)
    deadline = time.monotonic() + START_SECONDS
    while not early and len(hook.accepted) < enough and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.005)
    with suppress(subprocess.TimeoutExpired):
        process.wait(chance.uniform(0.0, 1.0))
        raise RuntimeError(f"the service ended by itself: {(file.parent / 'service.log').read_text()[-2000:]}")
    return storm.kill(process)


def _last_life(file: Path, settled: Callable[[], bool]) -> int:
    """A last start in fair weather, stopped gently once all is said and then some; its exit code."""
    process = _start(file)
    deadline = time.monotonic() + SETTLE_SECONDS
    while not settled() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.1)
    time.sleep(2.0)  # anything said twice would be said now
    process.send_signal(signal.SIGTERM)
    return process.wait(60)


def _told(hook: Journal) -> list[tuple[float, str, Key]]:
    """(when, run, (alert id, state)) of everything that the webhook accepted."""
    with hook.lock:
        return [(at, a["run"], (a["id"], a["state"])) for at, body in hook.accepted for a in body["alerts"]]


def _in_alertmanager(am: Journal) -> dict[str, str]:
    """Alert id -> the newest state that Alertmanager accepted."""
    with am.lock:
        alerts = [alert["annotations"] for _, body in am.accepted for alert in body]
    return {found["alert_id"]: found["state"] for found in alerts}


def _last_states(wanted: dict[str, list[Key]]) -> dict[str, str]:
    return {alert: state for told in wanted.values() for alert, state in told}


def _settled(wanted: dict[str, list[Key]], hook: Journal, am: Journal) -> bool:
    keys = {key for _, _, key in _told(hook)}
    states = _in_alertmanager(am)
    last = _last_states(wanted)
    return all(key in keys for told in wanted.values() for key in told) and all(
        states.get(alert) == state for alert, state in last.items()
    )


def _out_of_order(order: list[Key], told: list[tuple[float, Key]], aside: set[Key]) -> str:
    """The first transition of a run that came before one that was due before it, and when; "" if there is none.

    Others may pass one that stepped aside and the later ones of its alert, which wait for it.
    """
    first = {key: at for at, key in reversed(told)}
    aside_alerts: set[str] = set()
    for number, key in enumerate(order):
        if key in aside:
            aside_alerts.add(key[0])
        for later in order[number + 1 :]:
            excused = later[0] != key[0] and key[0] in aside_alerts
            if not excused and key in first and later in first and first[later] < first[key]:
                return f"{' '.join(later)} came {first[key] - first[later]:.2f} s before {' '.join(key)}"
    return ""


def _judge(
    wanted: dict[str, list[Key]],
    hook: Journal,
    am: Journal,
    killed: list[float],
    full: list[tuple[float, float]],
    before: int,
    code: int,
    seconds: float,
) -> Result:
    told = _told(hook)
    first: dict[Key, float] = {}
    last: dict[Key, float] = {}
    repeated: list[tuple[str, str, str]] = []
    excused: list[Key] = []
    unnoted: list[Key] = []
    windows: set[float] = set()
    blind = [(begin, kill) for begin, end in full for kill in killed if begin <= kill <= end + NOTING]
    for at, _, key in told:
        before_it = last.get(key)
        last[key] = at
        if before_it is None:
            first[key] = at
            continue
        nearest = min((kill for kill in killed if kill <= at), key=lambda kill: abs(kill - before_it), default=0.0)
        if any(begin - WINDOW <= before_it <= kill <= at for begin, kill in blind):
            unnoted.append(key)
        # Before the kill; after it where the sender was dead before the receiver got to what it had sent. One a kill:
        # a receiver is sent one request at a time.
        elif abs(nearest - before_it) <= WINDOW and nearest not in windows:
            windows.add(nearest)
            excused.append(key)
        else:
            repeated.append((*key, f"{at - before_it:.2f} s later, nearest kill {nearest - before_it:+.2f} s"))
    keys = [key for keys in wanted.values() for key in keys]
    aside = {key for key, times in hook.refused.items() if times >= STEP_ASIDE}
    found = {
        run: _out_of_order(order, [(at, key) for at, of, key in told if of == run], aside) for run, order in wanted.items()
    }
    disordered = [f"{run}: {what}" for run, what in found.items() if what]
    states = _in_alertmanager(am)
    missing = [alert for alert, state in _last_states(wanted).items() if states.get(alert) != state]
    lost = [key for key in keys if key not in first]
    counts = (len(keys), before, len(killed), hook.attempts)
    return Result(*counts, lost, repeated, excused, unnoted, disordered, missing, code, seconds)


def main() -> None:
    """Run the sessions and print what the journals say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=1, help="at once, each with a seed of its own")
    parser.add_argument("--record", action="store_true", help="keep the result, and write it into docs/delivery.md")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.sessions)
    with ThreadPoolExecutor(options.sessions) as pool:
        results = dict(zip(seeds, pool.map(_session, [options.kills] * options.sessions, seeds), strict=True))
    if options.record:
        from record import record

        command = f"python benchmarks/chaos.py --kills {options.kills} --seed {options.seed} --sessions {options.sessions}"
        counted = [
            {"seed": seed, **{k: len(v) if isinstance(v, list) else v for k, v in asdict(result).items()}}
            for seed, result in results.items()
        ]
        record("chaos", command, counted)
    sys.exit(0 if all(result.ok for result in results.values()) else 1)


def _session(kills: int, seed: int) -> Result:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        result = run(kills, seed, folder)
        if not result.ok:
            sys.stderr.write((folder / "service.log").read_text()[-4000:])
    for alert, state, when in result.repeated:
        print(f"repeated: {alert} {state} {when}")
    for what in result.disordered:
        print(f"out of order: {what}")
    print(
        f"{result.kills} kills in {result.seconds:.0f} s: {result.expected} notifications due, "
        f"{result.told_between_kills} told before the last start, {len(result.lost)} lost, "
        f"{len(result.repeated)} repeated, {len(result.excused)} repeated in the crash window, "
        f"{len(result.unnoted)} after a kill on a full disk, "
        f"{len(result.disordered)} runs out of order, {len(result.not_in_alertmanager)} alerts wrong in Alertmanager, "
        f"{result.attempts} attempts",
        flush=True,
    )
    return result


if __name__ == "__main__":
    main()
