"""Sources of every kind: files, directories, databases, servers."""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
import struct
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fuzzing.bounds import Target
from fuzzing.seeds import as_json, lines, sample
from rltriage.engine.feed import Feed
from rltriage.engine.reference import read_reference
from rltriage.engine.sources import open_source, prometheus
from rltriage.rules.errors import RltriageError


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
    b"".join(
        b"step:%d - actor/pg_loss:0.5 - actor/ppo_kl:np.float64(0.%d) - critic/score/mean:1\nsaving\n" % (n, n)
        for n in range(6)
    ),
    b"".join(b"\r 5%%|# | %d/9{'loss': 0.5, 'reward': nan, 'kl': tensor(0.1)}\n" % n for n in range(6)),
    b"".join(b"----------\n| train/ | |\n|  loss | %d |\n|  reward | 1 |\n----------\n" % n for n in range(6)),
    b"".join(b"[%d/9] loss: 0.5, reward: 1 kl=[0.1]\neval_acc: 0.5\n" % n for n in range(6)),
    b"".join(b"Step %d | Loss 0.1 | Reward 0.2 | Entropy 0.5\n" % n for n in range(6)),
    b"".join(
        b"(TaskRunner pid=1) \x1b[32mstep %d: {'loss': 1,\n 'reward': {'mean': 0.5},\n 'kl': np.float64(nan)}\n" % n
        for n in range(6)
    ),
    b"step,reward,loss\n" + b"".join(b'%d,0.5,"1"\n' % n for n in range(6)),
    b"Step;a - reward;a - reward__MIN;a - reward__MAX\n" + b"".join(b"%d;0.5;0.1;1\n" % n for n in range(6)),
    b"".join(as_json({"log": f"loss={n} reward=1\n", "stream": "stdout", "time": "2026-01-01"}) + b"\n" for n in range(6)),
    b"".join(b'2026-01-01T00:00:00.000Z stdout F {"step": %d, "loss": 1, "reward": 2}\n' % n for n in range(6)),
    "".join(f'{{"step": {n}, "reward": 1}}\n' for n in range(6)).encode("utf-16"),
)


def logs(folder: Path) -> Target:
    """A text log of any kind: consoles, tables, dicts, CSV, JSON, in UTF-8, UTF-16, or packed and cut off."""
    seeds = [*LOGS, lines(sample()), lines([{"step": n, "data": {"reward": 1}, "run": "a"} for n in range(6)])]
    seeds += [
        as_json({"log_history": sample(4), "epoch": 1}),
        as_json(sample(4)),
        as_json({"reward": [1, 2], "loss": [2, 3]}),
    ]
    seeds += [gzip.compress(lines(sample())), gzip.compress(as_json(sample(6)))]

    def judge(data: bytes) -> None:
        cut = zlib.crc32(data) % (len(data) + 1)
        _read(folder / "log", data, cut)
        if cut % 4 == 0:
            _read(folder / "packed", gzip.compress(data, 1)[: None if cut % 8 else cut], cut)

    return Target(seeds, judge)


def rundir(folder: Path) -> Target:
    """A run's directory: `run.json` in the first line, rows in the others."""
    run = {
        "format": 1,
        "id": "a",
        "labels": {"team": "core"},
        "config": {"kl_coef": 0.1, "trainer": {"lr": 1}},
        "profile": "trl",
    }
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

    return Target([as_json(run) + b"\n" + lines(sample(6))], judge)


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
    seeds = [
        event(1, simple_value=0.5) + _HERE + event(2, tensor=make_tensor_proto(0.5)),
        event(1, tensor=make_tensor_proto([1, 2])),
        event(1, tensor=make_tensor_proto("text")),
        event(1, tensor=make_tensor_proto([[0.5]])) + _HERE + event(3, simple_value=1.0),
    ]

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
    lines = [
        ["a", "2026-01-02T03:04:05+00:00", "x", 1, {"reward": 0.5}],
        ["b", "2026", "x", 2, {"loss": 1}],
        ["a", "", "", -1, {}],
    ]
    file = folder / "store.db"

    def judge(data: bytes) -> None:
        file.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id, timestamp, run_name, step, metrics)")
            connection.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_id, run_name, config)")
            for line in data.split(b"\n"):
                with contextlib.suppress(ValueError, TypeError, RecursionError, sqlite3.Error, OverflowError):
                    given = list(json.loads(line))
                    cells = [cell if isinstance(cell, str | int | float | None) else json.dumps(cell) for cell in given[:5]]
                    connection.execute(
                        "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?,?,?,?,?)", cells
                    )
                    connection.execute("INSERT INTO configs (run_id, run_name, config) VALUES (?, ?, ?)", cells[2:])
        stored = file.read_bytes()
        _read(file, stored, len(stored))
        _read(file, stored[: zlib.crc32(data) % len(stored)], 0)

    return Target([b"\n".join(map(as_json, lines))], judge)


def mlflow(folder: Path) -> Target:
    """MLflow's store in files, one of which is hostile."""
    from mlflow.tracking import MlflowClient

    store = folder / "mlruns"
    with patch.dict("os.environ", MLFLOW_ALLOW_FILE_STORE="true"):
        client = MlflowClient(tracking_uri=store.as_uri())
        run = client.create_run(client.create_experiment("x"), run_name="n").info.run_id
        for step in range(3):
            client.log_metric(run, "reward", step / 4, step=step, timestamp=1_700_000_000_000 + step)
        client.log_param(run, "beta", "0.1")
    files = sorted(path for path in store.rglob("*") if path.is_file())
    whole = {path: path.read_bytes() for path in files}

    def judge(data: bytes) -> None:
        file = files[zlib.crc32(data) % len(files)]
        file.write_bytes(data)
        try:
            with patch.dict("os.environ", MLFLOW_ALLOW_FILE_STORE="true"), contextlib.suppress(RltriageError):
                for _, row in Feed(open_source(f"mlflow:{store.as_uri()}"), "run").rows():
                    assert type(row.step) is int
        finally:
            file.write_bytes(whole[file])

    return Target(list(whole.values()), judge)


def answers(folder: Path) -> Target:
    """What a Prometheus server or a page of metrics answers, every question alike."""
    page = (
        b'# TYPE a gauge\na{run="x",outcome="fail"} 0.5\n'
        b'training_global_step{run="x"} 3\nrltriage_training_reward{run="y"} NaN\n'
    )
    series = {"metric": {"__name__": "a", "run": "x"}, "values": [[1.0, "0.5"], [2.0, "NaN"]]}
    server = {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
    clock = {"status": "success", "data": {"resultType": "scalar", "result": [1.7e9, "1700000000"]}}
    seeds = [
        page,
        as_json(clock) + b"\n" + as_json(server),
        as_json(clock) + b"\n" + as_json({"status": "error", "error": "x"}),
    ]

    def judge(data: bytes) -> None:
        now, _, rest = data.decode("utf-8", "replace").partition("\n")
        original = prometheus._get
        prometheus._get = lambda url, login: (
            data.decode("utf-8", "replace") if "metrics" in url else now if "query=time" in url else rest
        )
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
