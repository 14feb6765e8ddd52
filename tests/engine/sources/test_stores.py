"""Trackers' local stores."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rltriage.engine.feed import Feed
from rltriage.engine.sources import open_source
from rltriage.engine.sources.mlflow_store import MlflowStore
from rltriage.rules.errors import SourceError

# The tables of trackio 0.43, without its columns for uploads.
TRACKIO = """
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
                      run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL);
CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
                      config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id));
"""
WHEN = "2026-01-02T03:04:05+00:00"


def add(connection: sqlite3.Connection, run_id: str, name: str, step: int, metrics: Any) -> None:
    row = (run_id, WHEN, name, step, json.dumps(metrics).encode())
    connection.execute("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", row)
    connection.commit()


def test_a_trackio_project(tmp_path: Path) -> None:
    """Runs of one name are told apart, the configuration becomes facts, and a poll gives what is new."""
    path = tmp_path / "project.db"
    connection = sqlite3.connect(path)
    connection.executescript(TRACKIO)
    config = json.dumps({"beta": 0.04, "num_iterations": 2})
    connection.execute("INSERT INTO configs (run_id, run_name, config, created_at) VALUES ('a1', 'x', ?, '')", (config,))
    for step in range(2):
        add(connection, "a1", "x", step, {"reward": 0.5, "reward_std": 0.1, "kl": 0.1, "completion_length": 9})
        add(connection, "b2", "x", step, {"reward": 0.25, "loss": 0.5})
    add(connection, "b2", "x", 2, [1])
    feed = Feed(open_source(str(path)), "project")
    found = [(intake.run.id, row.step, row.metrics["reward"], row.time) for intake, row in feed.poll()]
    assert found == [(run, step, reward, 1767323045.0) for step in range(2) for run, reward in (("x", 0.5), ("x-b2", 0.25))]
    facts = feed.intakes["x"].run.facts
    assert (facts["kl_coef"].value, facts["kl_coef"].provenance) == (0.04, "logged")
    assert feed.intakes["x"].run.profile == "trl" and feed.source.stats.bad == 1
    assert feed.poll() == []
    add(connection, "a1", "x", 2, {"reward": 0.75})
    assert [row.step for _, row in feed.poll()] == [2]
    connection.close()


def test_a_trackio_project_with_other_types(tmp_path: Path) -> None:
    """SQLite keeps any value in any column: ids and names become text, and a step that is no whole number is counted."""
    path = tmp_path / "project.db"
    connection = sqlite3.connect(path)
    connection.executescript(TRACKIO.replace("TEXT NOT NULL", "").replace("step INTEGER NOT NULL", "step"))
    for run_id, step in ((1, "x"), (2, 1e308), (3, b"2"), (4, 5.0)):
        add(connection, run_id, 7, step, {"reward": 0.5})  # type: ignore[arg-type]
    connection.close()
    found = [(intake.run.id, row.step) for intake, row in Feed(open_source(str(path)), "project").rows()]
    assert found == [("7", 0), ("7-2", 0), ("7-3", 0), ("7-4", 5)]


def test_another_database_is_no_log(tmp_path: Path) -> None:
    """An SQLite file of something else, and a broken one, are one clear error."""
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(SourceError, match="neither a Trackio project nor an MLflow store"):
        open_source(str(tmp_path / "x.db"))
    (tmp_path / "y.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 200)
    with pytest.raises(SourceError, match="not readable as SQLite"):
        open_source(str(tmp_path / "y.db"))


def test_an_mlflow_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs written by MLflow's own client come back with their steps, times and parameters; a poll gives what is new."""
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "store").as_uri()
    client = mlflow.MlflowClient(tracking_uri=uri)
    run = client.create_run(client.create_experiment("e"), run_name="mine").info.run_id
    client.log_param(run, "ppo_epochs", 2)
    for step in range(2):
        for name in ("actor/pg_loss", "actor/ppo_kl", "val-core/d/acc/mean_at_1"):
            client.log_metric(run, name, step / 4, step=step, timestamp=1_700_000_000_000 + step)
    feed = Feed(open_source(f"mlflow:{uri}"), "store")
    rows = feed.poll()
    assert [(intake.run.id, row.step, row.metrics["eval_pass"]) for intake, row in rows] == [
        ("mine", 0, 0.0),
        ("mine", 1, 0.25),
    ]
    assert rows[0][1].time == 1_700_000_000.0 and feed.intakes["mine"].run.facts["updates_per_batch"].value == 2
    assert feed.poll() == []
    client.log_metric(run, "actor/pg_loss", 9.0, step=2)
    assert [row.metrics for _, row in feed.poll()] == [{"loss": 9.0}]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("*/*/metrics/reward", "1700000000000 half\n"),
        ("*/*/metrics/reward", "\udc80"),
        ("*/*/metrics/reward", "1" * 400 + " 0.5 0\n"),
        ("*/*/meta.yaml", "[" * 400),
        ("*/*/meta.yaml", "run_id: [x"),
        ("*/*/meta.yaml", "start_time: x"),
        ("[1-9]*/meta.yaml", "- x"),
        ("[1-9]*/meta.yaml", "{}"),
        ("*/*/params/beta", "\udcff"),
    ],
)
def test_a_damaged_mlflow_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog, file: str, content: str) -> None:
    """Whatever MLflow's client stumbles over is one clear error, or a run that is left out, and shows no traceback."""
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = tmp_path / "store"
    client = mlflow.MlflowClient(tracking_uri=store.as_uri())
    run = client.create_run(client.create_experiment("e"), run_name="mine").info.run_id
    client.log_param(run, "beta", "0.1")
    client.log_metric(run, "reward", 0.5, step=0)
    (path,) = store.glob(file)
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    source = open_source(f"mlflow:{store.as_uri()}")
    try:
        list(source.records())
    except SourceError as error:
        assert str(error).startswith(f"mlflow:{store.as_uri()}"[7:]) and "\n" not in str(error)
        assert source.poll() == [] and source.stats.bad == 1
    assert not any(record.exc_info for record in caplog.records if record.name.startswith("mlflow.store"))


@pytest.mark.parametrize("file", ["metrics/reward", "params/beta", "meta.yaml"])
def test_a_damaged_mlflow_run_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    """The others are read, also while they go on; the damaged one is refused once, with its id and the reason."""
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = tmp_path / "a store"
    client = mlflow.MlflowClient(tracking_uri=store.as_uri())
    experiments = [client.create_experiment(name) for name in ("e", "f")]
    runs = {}
    for name, where in (("a", 0), ("damaged", 0), ("b", 0), ("deleted", 0), ("c", 1)):
        runs[name] = client.create_run(experiments[where], run_name=name).info.run_id
        client.log_param(runs[name], "beta", "0.1")
        client.log_metric(runs[name], "reward", 0.5, step=0)
    client.delete_run(runs["deleted"])
    (damaged,) = store.glob(f"*/{runs['damaged']}/{file}")
    damaged.write_bytes(b"\xff [half")
    source = open_source(f"mlflow:{store.as_uri()}")
    assert sorted(record.run for record in source.poll() if "reward" in record.values) == ["a", "b", "c"]
    client.log_metric(runs["b"], "reward", 0.75, step=1)
    assert [(record.run, record.step) for record in source.poll()] == [("b", 1)]
    assert source.stats.bad == 1 and f"cannot read run {runs['damaged']}" in source.stats.examples[0].reason


def test_runs_of_an_mlflow_experiment_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest are read, and that there are more is said once."""
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr("rltriage.engine.sources.mlflow_store.MAX_RUNS", 2)
    uri = (tmp_path / "store").as_uri()
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("e")
    for number in range(3):
        run = client.create_run(experiment, start_time=1_700_000_000_000 + number, run_name=f"r{number}").info.run_id
        client.log_metric(run, "reward", 0.5, step=0)
    source = open_source(f"mlflow:{uri}")
    assert sorted(record.run for record in source.poll()) == ["r1", "r2"]
    assert source.poll() == []
    assert source.stats.bad == 1 and "more than 2 runs" in source.stats.examples[0].reason


def test_a_damaged_trackio_project_gives_what_precedes_the_damage(tmp_path: Path) -> None:
    """A poll keeps the rows that it has read when it meets a damaged page, and says once what is wrong."""
    path = tmp_path / "project.db"
    connection = sqlite3.connect(path)
    connection.executescript(TRACKIO)
    source = open_source(str(path))
    rows = [("a1", WHEN, "x", step, json.dumps({"reward": 0.5, "note": "x" * 200})) for step in range(400)]
    connection.executemany("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 // 4096 * 4096 : (len(data) // 2 // 4096 + 1) * 4096] = b"\xff" * 4096
    path.write_bytes(data)
    steps = [record.step for record in source.poll()]
    assert 0 < len(steps) < 400 and steps == list(range(len(steps)))
    assert source.poll() == []
    assert source.stats.bad == 1 and "Trackio" in source.stats.examples[0].reason


def test_no_mlflow_store(tmp_path: Path) -> None:
    """An address that is no store is one clear error."""
    pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    with pytest.raises(SourceError, match="MLflow"):
        list(MlflowStore("nonsense://x").records())
