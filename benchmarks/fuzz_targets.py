"""What hostile input is given to, by name. See `fuzz.py`."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import logging
import resource
import signal
import socket
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click
import yaml

from rltriage.cli import root as command_line
from rltriage.engine.feed import Feed
from rltriage.engine.intake import Intake
from rltriage.engine.reference import read_reference
from rltriage.engine.report import EMPTY
from rltriage.engine.rows import Record, Row, Run
from rltriage.engine.ruletests import run_rule_tests
from rltriage.engine.rundir import RunDirectory
from rltriage.engine.sources import open_source, prometheus
from rltriage.exporters.gauges import Gauges
from rltriage.exporters.http import Web, serve_metrics
from rltriage.exporters.jsonlines import alert_json, dumps
from rltriage.exporters.page.board import Board

from rltriage.exporters.report.plain import report_json
from rltriage.nonnumbers import NonNumbers
from rltriage.rules.catalogue import load_catalogue
from rltriage.rules.config import parse_config
from rltriage.rules.errors import RltriageError
from rltriage.rules.explain import describe_rule
from rltriage.rules.loader import check_rules, dump_pack, load_rules
from rltriage.rules.model import RulePack
from rltriage.rules.profiles import load_profile
from rltriage.watching import Journal, WatchedRun

ROOT = Path(__file__).parents[1]
SECONDS = 5.0
"""Processor time for one input of at most 64 KiB; the slowest that is not hostile takes a tenth of it."""
BYTES = 2 << 30
"""Memory that one input may take besides what the process has."""


@dataclass(frozen=True, slots=True)
class Target:
    """Valid inputs to begin with, and what takes one; it raises if the input is not taken as it should be."""

    seeds: list[bytes]
    judge: Callable[[bytes], None]


class TooSlow(BaseException):
    """More processor time than any input may cost. No Exception, so that nothing catches it."""


def bounded(judge: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The judge with limits on processor time and memory, and with an eye on what is logged with a traceback."""

    def stop(*_: object) -> None:
        raise TooSlow

    def judged(data: bytes) -> None:
        seen = _Tracebacks()
        before, hard = resource.getrlimit(resource.RLIMIT_AS)
        logging.getLogger("rltriage").addHandler(seen)
        previous = signal.signal(signal.SIGVTALRM, stop)
        resource.setrlimit(resource.RLIMIT_AS, (_size() + BYTES, hard))
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            judge(data)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            resource.setrlimit(resource.RLIMIT_AS, (before, hard))
            signal.signal(signal.SIGVTALRM, previous)
            logging.getLogger("rltriage").removeHandler(seen)
        if seen.error is not None:
            raise seen.error

    return judged


def _size() -> int:
    """Bytes of address space that the process has (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


class _Tracebacks(logging.Handler):
    """Keeps the first exception that was logged instead of raised."""

    error: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and self.error is None:
            self.error = record.exc_info[1]


@cache
def _pack() -> RulePack:
    return load_rules("triage")


def _yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def _json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


def _rows(count: int = 12) -> list[dict[str, Any]]:
    return [
        {"step": step, "reward": 0.1 * (step % 5), "entropy": 0.5 - 0.02 * step, "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-6,
         "approx_kl": 0.01, "clip_frac": 0.0, "length": 90.0 + step, "truncated_frac": 0.1, "logp_gap": 0.02}
        for step in range(count)
    ]  # fmt: skip


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(_json(row) + b"\n" for row in rows)


# Rules.


def rules(folder: Path) -> Target:
    """A pack beside another one that it may extend: checked, and if it loads, dumped, explained and run over rows."""
    every = _yaml("docs/examples/every_kind.yaml")
    shipped = _yaml("rules/packs/triage.yaml")
    (folder / "base.yaml").write_text(json.dumps({**every, "rules": every["rules"][:5]}), encoding="utf-8")
    base, file = every["rules"][0], folder / "pack.yaml"
    seeds = [_json({**every, "rules": [rule]}) for rule in every["rules"]]
    seeds += [_json({"version": 1, "rules": [rule]}) for rule in shipped["rules"]]
    seeds += [
        _json({"version": 1, "extends": ["base.yaml"], "override": {base["id"]: {"for": 2, "when": base["when"]}},
               "disable": [every["rules"][1]["id"]]}),
        b"version: 1\nx-a: &a {reward: 1}\nrules:\n  - &r\n    id: a\n    summary: \"{reward:.3g} {step} {config.lr}\"\n"
        b"    group: outcome\n    severity: info\n    when: {threshold: {metric: reward, above: 1e-2}}\n    suspects: {}\n"
        b"    first_test: run_invariants\n",
    ]  # fmt: skip

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        problems = check_rules([file])
        assert all(str(problem) and problem.mark.line >= 1 and problem.mark.column >= 1 for problem in problems)
        if any(problem.level == "error" for problem in problems):
            return
        pack = load_rules(file)
        dump_pack(pack)
        for rule in pack.rules[:3]:
            describe_rule(rule, pack.catalogue)
        watched = WatchedRun(Run("run"), pack, ())
        for row in _rows(8):
            watched.emit(Row(row.pop("step"), {**row, "reward": float("nan") if len(row) % 2 else 1e308}))
        assert not watched.monitor.failed_rules, watched.monitor.failed_rules

    return Target(seeds, judge)


def ruletests(folder: Path) -> Target:
    """A file of rule tests, run."""
    tests = _yaml("docs/examples/every_kind.tests.yaml")["tests"]
    pack = load_rules(ROOT / "docs/examples/every_kind.yaml")
    file = folder / "pack.tests.yaml"

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        with contextlib.suppress(RltriageError):
            assert all(result.passed or result.message for result in run_rule_tests(file, pack, pack.catalogue))

    return Target([_json({"version": 1, "tests": [test]}) for test in tests], judge)


def profile(folder: Path) -> Target:
    """A profile of the user's own: loaded, and used."""
    file = folder / "mine.yaml"

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        with contextlib.suppress(RltriageError):
            load_profile(file)
            intake = Intake("run", str(file), {"beta": 0.1, "learning_rate": 1e-6, "algorithm": "ppo"})
            for row in _rows(3):
                intake.rows(Record({**row, "rewards/mean": 1.0, "loss": "0.1", "kl": None}))

    return Target([_json(_yaml(f"rules/profiles/{path.name}")) for path in (ROOT / "rules/profiles").glob("*.yaml")], judge)


# Configurations.

CONFIG = {
    "sources": [{"path": "logs/*.jsonl", "profile": "trl", "labels": {"team": "core"}, "config": {"kl_coef": 0.1},
                 "reference": ["healthy.json"]}, {"metrics": "http://host:9000/metrics"},
                {"prometheus": {"env": "URL"}, "query": "up"}],
    "rules": {"packs": ["triage"], "extra": ["mine.yaml"]}, "listen": "127.0.0.1:9464", "quiet_rules": True,
    "web": {"tls": {"cert_file": "a.pem", "key_file": "b.pem"}, "basic_auth": {"prom": {"env": "P"}}, "token": {"file": "t"}},
    "receivers": [{"name": "a", "webhook": "https://host/x", "body": {"text": "$text $run"}, "headers": {"X-A": {"env": "A"}},
                   "min_severity": "warning", "match": {"run": ["a*"], "team": "core"}, "group_window": "60s", "page": True},
                  {"name": "b", "alertmanager": ["http://host:9093"], "basic_auth": {"username": "u", "password": {"env": "P"}}}],
    "state_dir": "state", "retention": "3d", "external_url": "https://host", "runbook_url": "https://host/$fault",
}  # fmt: skip


def config(folder: Path) -> Target:
    """A `rltriage.yaml`."""

    def judge(data: bytes) -> None:
        with contextlib.suppress(RltriageError):
            parse_config(data.decode("utf-8", "surrogateescape"), "rltriage.yaml", folder)

    return Target([_json(CONFIG), *(_json({key: value}) for key, value in CONFIG.items()), yaml.safe_dump(CONFIG).encode()], judge)


def reference(folder: Path) -> Target:
    """A file of a healthy reference: read, and asked."""
    file = folder / "healthy.json"
    shipped = json.loads(next((ROOT / "rules/references").glob("*.json")).read_text(encoding="utf-8"))
    metrics = dict(list(shipped["metrics"].items())[:2])
    few = {name: {part: values[:3] for part, values in columns.items()} for name, columns in metrics.items()}
    seed = {**shipped, "phases": shipped["phases"][:3], "metrics": few}

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        with contextlib.suppress(RltriageError):
            read = read_reference(file)
            watched = WatchedRun(Run("run"), _pack(), (), [read])
            for row in _rows(2):
                watched.emit(Row(row.pop("step"), row))
            assert not watched.monitor.failed_rules

    return Target([_json(seed)], judge)


# Rows.


class _Odd:
    """An object of the training loop that is no number, and says so loudly."""

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _objects() -> dict[str, Any]:
    cycle: dict[str, Any] = {}
    cycle["a"] = cycle["b"] = cycle
    return {"@float": Decimal("0.1"), "@error": _Odd(), "@array": memoryview(b"abc"), "@bytes": b"\xff", "@complex": 1j,
            "@set": {1}, "@cycle": cycle, "@huge": 10**400, "@object": object(), "@key": {1: {None: 2.0}}}  # fmt: skip


def rows(folder: Path) -> Target:
    """JSON lines as the rows that a training loop logs: evaluated, shown and written as `rltriage.watch` does it."""
    objects = _objects()
    seeds = [_lines(_rows()), _lines([{"step": n, "actor/pg_loss": 0.1, "critic/score/mean": n / 9, "actor/ppo_kl": 0.0} for n in range(9)])]
    seeds += [_lines([{"config": {"beta": 0.1}}, *({"train": {"reward": n, "kl": 0}, "global_step": n} for n in range(6))])]
    number = iter(range(1 << 60))

    def value(given: Any, depth: int = 0) -> Any:
        if isinstance(given, dict) and depth < 50:
            return {key: value(inner, depth + 1) for key, inner in given.items()}
        return objects.get(given, given) if isinstance(given, str) else given

    def judge(data: bytes) -> None:
        board, gauges = Board(_pack()), Gauges(_pack().catalogue.metrics, _pack().rules)
        directory = RunDirectory(folder / str(next(number)), "run", resume=True)
        intake, odd = Intake("run", config={"kl_coef": 0.1}), NonNumbers()
        watched = WatchedRun(intake.run, _pack(), (gauges, board, Journal(directory, _pack().catalogue)))
        for line in data.split(b"\n")[:40]:
            with contextlib.suppress(ValueError, RecursionError):
                given = value(json.loads(line))
                if isinstance(given, dict):
                    _log(given, intake, watched, odd)
        for row in intake.finish():
            watched.emit(row, intake.run)
        watched.end("finished", 0.0)
        assert not watched.failures and not watched.monitor.failed_rules, watched.monitor.failed_rules
        _shown(board, gauges)

    return Target(seeds, judge)


def _log(given: Mapping[str, Any], intake: Intake, watched: WatchedRun, odd: NonNumbers) -> None:
    try:
        odd.look("run", given)
    except RecursionError:
        return  # a mapping that holds itself: `Watch.log` counts it
    for row in intake.rows(Record(given)):
        assert type(row.step) is int and all(type(number) is float for number in row.metrics.values()), row
        watched.emit(row, intake.run)


def _shown(board: Board, gauges: Gauges) -> None:
    """Everything that people and programs may ask about the run."""
    for openmetrics in (False, True):
        gauges.render(openmetrics).decode()
    for summary in board.summaries():
        report = board.report(summary.outlook.id)
        assert report is not None
        json.loads(dumps(report_json(report)))
        for alert in summary.outlook.standing:
            json.loads(dumps(alert_json(alert, board.pack.catalogue)))


# Sources.


def _read(path: Path, data: bytes, cut: int) -> None:
    """A file read as a whole, then followed while it grows."""
    path.write_bytes(data)
    try:
        for intake, row in Feed(open_source(str(path)), "run").rows():
            assert type(row.step) is int and type(intake.run.id) is str, row
            assert row.time is None or type(row.time) is float, row
            assert all(type(number) is float for number in row.metrics.values()), row
    except RltriageError as error:
        assert str(path.parent) in str(error) or path.name in str(error), error
    path.write_bytes(data[:cut])
    feed = Feed(open_source(str(path), follow=True), "run")
    with contextlib.closing(feed.source):
        for end in (cut, len(data), len(data)):
            with path.open("ab") as file:
                file.write(data[path.stat().st_size : end])
            feed.poll()


LOGS = (
    b"".join(b"step:%d - actor/pg_loss:0.5 - actor/ppo_kl:np.float64(0.%d) - critic/score/mean:1\nsaving\n" % (n, n) for n in range(6)),
    b"".join(b"\r 5%%|# | %d/9{'loss': 0.5, 'reward': nan, 'kl': tensor(0.1)}\n" % n for n in range(6)),
    b"".join(b"----------\n| train/ | |\n|  loss | %d |\n|  reward | 1 |\n----------\n" % n for n in range(6)),
    b"".join(b"[%d/9] loss: 0.5, reward: 1 kl=[0.1]\neval_acc: 0.5\n" % n for n in range(6)),
    b"".join(b"Step %d | Loss 0.1 | Reward 0.2 | Entropy 0.5\n" % n for n in range(6)),
    b"".join(b"(TaskRunner pid=1) \x1b[32mstep %d: {'loss': 1,\n 'reward': {'mean': 0.5},\n 'kl': np.float64(nan)}\n" % n for n in range(6)),
    b"step,reward,loss\n" + b"".join(b"%d,0.5,\"1\"\n" % n for n in range(6)),
    b"Step;a - reward;a - reward__MIN;a - reward__MAX\n" + b"".join(b"%d;0.5;0.1;1\n" % n for n in range(6)),
    b"".join(_json({"log": f"loss={n} reward=1\n", "stream": "stdout", "time": "2026-01-01"}) + b"\n" for n in range(6)),
    b"".join(b"2026-01-01T00:00:00.000Z stdout F {\"step\": %d, \"loss\": 1, \"reward\": 2}\n" % n for n in range(6)),
    "".join('{"step": %d, "reward": 1}\n' % n for n in range(6)).encode("utf-16"),
)  # fmt: skip


def logs(folder: Path) -> Target:
    """A text log of any kind: consoles, tables, dicts, CSV, JSON, in UTF-8, UTF-16, or packed and cut off."""
    seeds = [*LOGS, _lines(_rows()), _lines([{"step": n, "data": {"reward": 1}, "run": "a"} for n in range(6)])]
    seeds += [_json({"log_history": _rows(4), "epoch": 1}), _json(_rows(4)), _json({"reward": [1, 2], "loss": [2, 3]})]
    seeds += [gzip.compress(_lines(_rows())), gzip.compress(_json(_rows(6)))]

    def judge(data: bytes) -> None:
        cut = zlib.crc32(data) % (len(data) + 1)
        _read(folder / "log", data, cut)
        if cut % 4 == 0:
            _read(folder / "packed", gzip.compress(data, 1)[: None if cut % 8 else cut], cut)

    return Target(seeds, judge)


def rundir(folder: Path) -> Target:
    """A run's directory: `run.json` in the first line, rows in the others."""
    run = {"format": 1, "id": "a", "labels": {"team": "core"}, "config": {"kl_coef": 0.1, "trainer": {"lr": 1}}, "profile": "trl"}
    run["ended"] = {"state": "finished", "time": 1.5}

    def judge(data: bytes) -> None:
        first, _, rest = data.partition(b"\n")
        (folder / "run.json").write_bytes(first)
        (folder / "rows.jsonl").write_bytes(rest)
        with contextlib.suppress(RltriageError):
            for intake, row in Feed(open_source(str(folder)), "run").rows():
                assert type(row.step) is int and type(intake.run.id) is str
        with contextlib.suppress(RltriageError):
            read_reference(folder)

    return Target([_json(run) + b"\n" + _lines(_rows(6))], judge)


def events(folder: Path) -> Target:
    """TensorBoard events, one after each separator, framed rightly so that their content is what is hostile."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import masked_crc32c
    from tensorboard.util.tensor_util import make_tensor_proto

    def event(step: int, **content: Any) -> bytes:
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="losses/approx_kl", **content)])
        return bytes(event_pb2.Event(wall_time=1.7e9, step=step, summary=summary).SerializeToString())

    def framed(data: bytes) -> bytes:
        head = struct.pack("<Q", len(data))
        crc = (struct.pack("<I", masked_crc32c(part)) for part in (head, data))
        return head + next(crc) + data + next(crc)

    start = framed(event_pb2.Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
    seeds = [event(1, simple_value=0.5) + _HERE + event(2, tensor=make_tensor_proto(0.5)), event(1, tensor=make_tensor_proto([1, 2])),
             event(1, tensor=make_tensor_proto("text")), event(1, tensor=make_tensor_proto([[0.5]])) + _HERE + event(3, simple_value=1.0)]  # fmt: skip

    def judge(data: bytes) -> None:
        whole = start + b"".join(framed(part) for part in data.split(_HERE))
        _read(folder / "events", whole, zlib.crc32(data) % (len(whole) + 1))

    return Target(seeds, judge)


_HERE = b"\xff\x00\xff\x00"


def wandb(folder: Path) -> Target:
    """W&B's records, one after each separator, framed rightly."""
    from wandb.proto import wandb_internal_pb2 as proto

    def framed(data: bytes) -> bytes:
        data = data[:30_000]
        return struct.pack("<IHB", zlib.crc32(data, zlib.crc32(b"\x01")), len(data), 1) + data

    run, row = proto.Record(), proto.Record()
    run.run.run_id, run.run.display_name = "id", "name"
    run.run.config.update.add(key="beta", value_json="0.1")
    for names, value in ((["train/reward"], "0.5"), (["profiling", "seconds"], '"NaN"'), (["h", "_type"], '"histogram"')):
        row.history.item.add(nested_key=names, value_json=value)
    row.history.item.add(key="_step", value_json="1")
    seeds = [run.SerializeToString() + _HERE + row.SerializeToString() + _HERE + row.SerializeToString()]

    def judge(data: bytes) -> None:
        whole = b":W&B\x00\x00\x00" + b"".join(framed(part) for part in data.split(_HERE))
        _read(folder / "run.wandb", whole, zlib.crc32(data) % (len(whole) + 1))
        _read(folder / "raw.wandb", b":W&B\x00\x00\x00" + data, len(data) // 2)

    return Target(seeds, judge)


def trackio(folder: Path) -> Target:
    """Trackio's store: each line is a list of a run's id, time, name, step and metrics, with the types that it has."""
    lines = [["a", "2026-01-02T03:04:05+00:00", "x", 1, {"reward": 0.5}], ["b", "2026", "x", 2, {"loss": 1}], ["a", "", "", -1, {}]]
    file = folder / "store.db"

    def judge(data: bytes) -> None:
        file.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id, timestamp, run_name, step, metrics)")
            connection.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_id, run_name, config)")
            for line in data.split(b"\n"):
                with contextlib.suppress(ValueError, RecursionError, sqlite3.Error, OverflowError):
                    given = json.loads(line)
                    cells = [cell if isinstance(cell, str | int | float | None) else json.dumps(cell) for cell in given[:5]]
                    connection.execute("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?,?,?,?,?)", cells)
                    connection.execute("INSERT INTO configs (run_id, run_name, config) VALUES (?, ?, ?)", cells[2:])
        stored = file.read_bytes()
        _read(file, stored, len(stored))
        _read(file, stored[: zlib.crc32(data) % len(stored)], 0)

    return Target([b"\n".join(map(_json, lines))], judge)


def answers(folder: Path) -> Target:
    """What a Prometheus server or a page of metrics answers, every question alike."""
    page = b'# TYPE a gauge\na{run="x",outcome="fail"} 0.5\ntraining_global_step{run="x"} 3\nrltriage_training_reward{run="y"} NaN\n'
    series = {"metric": {"__name__": "a", "run": "x"}, "values": [[1.0, "0.5"], [2.0, "NaN"]]}
    server = {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
    clock = {"status": "success", "data": {"resultType": "scalar", "result": [1.7e9, "1700000000"]}}
    seeds = [page, _json(clock) + b"\n" + _json(server), _json(clock) + b"\n" + _json({"status": "error", "error": "x"})]

    def judge(data: bytes) -> None:
        now, _, rest = data.decode("utf-8", "replace").partition("\n")
        original = prometheus._get
        prometheus._get = lambda url, login: data.decode("utf-8", "replace") if "metrics" in url else now if "query=time" in url else rest
        try:
            for url in ("http://h/metrics", "http://h:1/?query=up"):
                with contextlib.suppress(RltriageError):
                    for _, row in Feed(open_source(url), "run").rows():
                        assert type(row.step) is int
                with contextlib.suppress(RltriageError):
                    feed = Feed(open_source(url), "run")
                    feed.poll()
                    feed.poll()
        finally:
            prometheus._get = original

    return Target(seeds, judge)


# HTTP.

REQUESTS = (
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5\r\nAccept-Encoding: gzip\r\n\r\n",
    b"HEAD / HTTP/1.0\r\nAuthorization: Basic cHJvbTpzZWNyZXQ=\r\n\r\n",
    b"POST /-/healthy HTTP/1.1\r\nHost: [::1]:1\r\nContent-Length: 5\r\n\r\nabcde",
    b"GET /-/ready?x=%00&y HTTP/1.1\r\nAuthorization: Bearer token\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"GET /runs/team%2Fbroken?token=secret HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
    b"GET /api/runs?q=%ff&severity=critical HTTP/1.1\r\nHost: localhost\r\nCookie: rltriage_page=0; a=\"b\"\r\n\r\n",
    b"GET /api/runs/broken/alerts/broken.kl-ref-exactly-zero.1.1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /static/../page.css HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-5,9999-\r\nIf-Modified-Since: x\r\n\r\n",
    b"GET /openapi.json HTTP/1.1\r\nHost: localhost:80:80\r\n\r\n",
)  # fmt: skip


def endpoint(folder: Path) -> Target:
    """Bytes at the endpoint of the gauges, with and without a login, on a pair of sockets."""
    gauges = Gauges({}, clock=lambda: 0.0)
    gauges.publish(Run("demo"), Row(1, {"reward": 0.5}), EMPTY)
    servers = [serve_metrics(gauges, web=web)._server for web in (Web(), Web(users={"prom": "secret"}, token="token"))]
    for server in servers:
        server.shutdown()

    def judge(data: bytes) -> None:
        for server in servers:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                ours.sendall(data)
                ours.shutdown(socket.SHUT_WR)
                server.finish_request(theirs, ("127.0.0.1", 1))
                theirs.close()
                answer = b"".join(iter(lambda: ours.recv(1 << 16), b""))
            assert not answer or answer.startswith(b"HTTP/1.1 ") or b"HTTP/0.9" in data or b" " not in data.strip(), answer[:50]
            assert b" 500 " not in answer[:20] and b"Traceback" not in answer

    return Target([*REQUESTS], judge)


def page(folder: Path) -> Target:
    """Requests at the on-call page, open and with a token: an answer below 500, and none of it without the token."""
    from rltriage.exporters.page.app import make_app

    board = Board(_pack())
    for name in ("broken", "team/broken", "a<b>"):
        watched = WatchedRun(Run(name), _pack(), (board,))
        for row in _rows():
            watched.emit(Row(row.pop("step"), row))
    local = frozenset({"localhost", "127.0.0.1"})
    apps = [make_app(board, None, local), make_app(board, Web(users={"u": "p"}, token="secret"), None)]

    def judge(data: bytes) -> None:
        for app in apps:
            asyncio.run(_ask(app, data))

    return Target([*REQUESTS], judge)


async def _ask(app: Any, data: bytes) -> None:
    """A request as uvicorn hands it on: what its own parser refuses is not given."""
    head, _, body = data.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    method, target, *_ = [*line.split(b" "), b"GET", b"/"]
    path, _, query = target.partition(b"?")
    if path.startswith(b"/events") or b"/events" in unquote(path.decode("latin-1")).encode():
        return
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (field.partition(b":") for field in fields)]
    scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "scheme": "http",
             "method": method.decode("latin-1").upper(), "path": unquote(path.decode("latin-1")), "raw_path": path,
             "root_path": "", "query_string": query, "headers": headers, "server": ("127.0.0.1", 1), "client": ("1.2.3.4", 5)}  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await asyncio.wait_for(app(scope, receive, send), SECONDS)
    assert sent[0]["type"] == "http.response.start" and sent[0]["status"] < 500, sent[0]
    for name, value in sent[0]["headers"]:
        assert b"\n" not in name + value and b"\r" not in name + value, (name, value)


# Commands.

COMMANDS = (
    ["replay", "FILE"], ["replay", "FILE", "--json"], ["report", "FILE", "--format", "json"], ["coverage", "FILE"],
    ["profiles", "check", "FILE"], ["rules", "check", "FILE"], ["rules", "test", "FILE"], ["rules", "list", "--rules", "FILE"],
    ["replay", "LOG", "--rules", "FILE"], ["replay", "LOG", "--profile", "FILE"], ["replay", "LOG", "--reference", "FILE"],
    ["replay", "FILE", "--config", "TEXT"],
)  # fmt: skip


def commands(folder: Path) -> Target:
    """A file for every command that takes one: exit code 0, 1 or 2, one message, no traceback."""
    log = folder / "log.jsonl"
    log.write_bytes(_lines(_rows(6)))
    file = folder / "mine.yaml"
    seeds = [data for make in (rules, ruletests, config, reference, profile) for data in make(folder).seeds[:3]]
    seeds += [*LOGS, _lines(_rows())]

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        words = {"FILE": str(file), "LOG": str(log), "TEXT": data[:80].decode("utf-8", "replace")}
        arguments = [words.get(word, word) for word in COMMANDS[zlib.crc32(data) % len(COMMANDS)]]
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            with contextlib.suppress(RltriageError, click.ClickException):
                assert command_line.main(arguments, "rltriage", standalone_mode=False) in (None, 0, 1, 2)
        assert "Traceback" not in out.getvalue()

    return Target(seeds, judge)


TARGETS: dict[str, Callable[[Path], Target]] = {
    make.__name__: make
    for make in (rules, ruletests, profile, config, reference, rows, logs, rundir, events, wandb, trackio, answers, endpoint, page, commands)
}
