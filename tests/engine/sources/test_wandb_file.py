"""W&B's run files, written by the real wandb offline."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from rltriage.engine.feed import Feed
from rltriage.engine.sources import open_source
from rltriage.engine.sources.wandb_file import WandbSource, find_run_files
from rltriage.rules.errors import SourceError

pytest.importorskip("wandb", reason="wandb is not installed")

SCRIPT = """
import wandb
run = wandb.init(project="p", mode="offline", dir=".", name="mine", config={"beta": 0.04, "nested": {"num_iterations": 2}})
for step in range(300):
    run.log({"train/reward": step / 4, "train/reward_std": 0.1, "train/kl": float("nan") if step == 2 else 0.1,
             "train/completions/mean_length": 9.0, "train/global_step": step + 10, "histogram": wandb.Histogram([1, 2, 3]),
             "profiling": {"seconds": 0.5}, "table": wandb.Table(columns=["a"], data=[["x" * 40]])})
run.finish()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `wandb` with one offline run of 300 rows, more than two blocks long."""
    path = tmp_path_factory.mktemp("wandb_run")
    environ = {**os.environ, "WANDB_SILENT": "true", "WANDB_MODE": "offline"}
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=path, env=environ, check=True, capture_output=True, timeout=120)
    return path / "wandb"


@pytest.fixture
def data(folder: Path) -> bytes:
    """The run file's bytes."""
    (path,) = find_run_files(str(folder))
    return Path(path).read_bytes()


def test_a_run_as_wandb_wrote_it(folder: Path) -> None:
    """The folder, its run directory and the file are the same run: step, time, configuration, NaN; no media, no copy."""
    (path,) = find_run_files(str(folder))
    for where in (folder, Path(path).parent, Path(path)):
        feed = Feed(open_source(str(where)), "x")
        rows = [row for _, row in feed.rows()]
        intake = feed.intakes["mine"]
        assert feed.source.kind == "wandb run file" and len(rows) == 300 and feed.source.stats.bad == 0
        assert [row.step for row in rows[:2]] == [10, 11] and rows[1].metrics["reward"] == 0.25
        assert rows[2].metrics["kl_ref"] != rows[2].metrics["kl_ref"] and rows[0].metrics["profiling/seconds"] == 0.5
        assert rows[0].time is not None and not [name for name in rows[0].metrics if "histogram" in name or "table" in name]
        facts = {name: fact.value for name, fact in intake.run.facts.items()}
        assert intake.run.profile == "trl" and (facts["kl_coef"], facts["updates_per_batch"]) == (0.04, 2)


def test_a_run_file_that_grows(tmp_path: Path, data: bytes) -> None:
    """However the bytes arrive, the rows are those of the whole file."""
    path = tmp_path / "run-x.wandb"
    path.write_bytes(data[:7])
    source = WandbSource(str(path), [str(path)])
    seen = source.poll()
    for end in (*range(5000, len(data), 7777), len(data)):
        path.write_bytes(data[:end])
        seen += source.poll()
    assert seen == list(WandbSource(str(path), [str(path)]).records()) and source.stats.records == 300


def test_damage_costs_its_block(tmp_path: Path, data: bytes) -> None:
    """A block of zeros in the middle is counted; what follows is read again."""
    path = tmp_path / "run-x.wandb"
    path.write_bytes(data[:32768] + b"\xff" * 32768 + data[65536:])
    source = WandbSource(str(path), [str(path)])
    found = list(source.records())
    assert source.stats.bad >= 1 and 50 < len(found) < 300
    assert found[-1].values["train/global_step"] == 309


def test_no_damaged_value_is_taken(tmp_path: Path, data: bytes) -> None:
    """Flipped bits and lost bytes cost rows, never change one; polls that find nothing new count nothing again."""
    path, draw = tmp_path / "run-x.wandb", random.Random(1)
    path.write_bytes(data)
    right = {row.values.get("train/global_step"): row for row in WandbSource(str(path), [str(path)]).records()}
    for _ in range(30):
        damaged = bytearray(data)
        for place in (draw.randrange(7, len(data) - 100) for _ in range(draw.choice([1, 5]))):
            damaged[place] ^= 1 << draw.randrange(8)
            if draw.random() < 0.3:
                del damaged[place : place + draw.randrange(1, 40)]
        path.write_bytes(damaged)
        source = WandbSource(str(path), [str(path)])
        found = list(source.records())
        assert [row.values for row in found] == [right[row.values.get("train/global_step")].values for row in found]
        bad = source.stats.bad
        assert bad and source.poll() == source.poll() == [] and source.stats.bad == bad


def test_a_large_file_is_read_in_portions(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a record is longer than a portion."""
    path = tmp_path / "run-x.wandb"
    path.write_bytes(data)
    whole = list(WandbSource(str(path), [str(path)]).records())
    monkeypatch.setattr("rltriage.engine.sources.wandb_file._PORTION", 32768)
    assert list(WandbSource(str(path), [str(path)]).records()) == whole


def test_without_wandb_it_says_what_to_do(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One clear error with the extra to install, or the export instead."""
    path = tmp_path / "run-x.wandb"
    path.write_bytes(data)
    monkeypatch.setitem(sys.modules, "wandb.proto.wandb_internal_pb2", None)
    with pytest.raises(SourceError, match=r"rltriage\[wandb\].*export"):
        open_source(str(path))


def test_a_run_file_that_cannot_be_opened_stops_no_other(tmp_path: Path, data: bytes) -> None:
    """The others are read, and the one is refused once; where it is the only one that is an error."""
    bad, good = tmp_path / "run-a.wandb", tmp_path / "run-b.wandb"
    bad.mkdir()
    good.write_bytes(data)
    source = WandbSource(str(tmp_path), [str(bad), str(good)])
    assert sum("train/global_step" in record.values for record in source.records()) == 300
    assert source.poll() == [] and source.stats.bad == 1 and "run-a.wandb" in source.stats.examples[0].reason
    with pytest.raises(SourceError, match=r"run-a\.wandb"):
        list(WandbSource(str(bad), [str(bad)]).records())
