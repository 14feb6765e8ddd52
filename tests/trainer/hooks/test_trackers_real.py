"""Alerts in the real trackers: wandb offline and disabled, Trackio's store, an MLflow run's tags, TensorBoard's text."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rltriage.trainer.hooks.trackers import Post, Trackers

POST = Post("critical: mask_shift suspected", "logp_gap is 0.7\n  since step 3", "critical", 3, {"fault": "mask_shift"})
SHOW = f"""
from rltriage.trainer.hooks.trackers import Post, Trackers
trackers = Trackers()
trackers.post(Post({POST.title!r}, {POST.text!r}, "critical", 3, {{"fault": "mask_shift"}}))
trackers.close()
assert trackers.failures == 0, "an alert did not arrive"
"""


def run(script: str, folder: Path, **environ: str) -> str:
    """A script in a process of its own: trackers leave threads, services and current runs behind."""
    kept = {name: value for name, value in os.environ.items() if name != "WANDB_MODE"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**kept, "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1", **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def records(folder: Path) -> list[Any]:
    """Every record of the one run file there, by wandb's own classes."""
    from wandb.proto import wandb_internal_pb2 as protobuf

    (path,) = {path.resolve() for path in folder.glob("wandb/*/run-*.wandb")}
    data, at, found = path.read_bytes(), 7, []
    while at + 7 <= len(data):
        length = int.from_bytes(data[at + 4 : at + 6], "little")
        found.append(protobuf.Record.FromString(data[at + 7 : at + 7 + length]))
        at += 7 + length
    return found


def test_wandb_offline(tmp_path: Path) -> None:
    """The alert is in the run's file, from where `wandb sync` uploads it, with its level."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    run(f"import wandb\nwandb.init(project='p', mode='offline', dir='.')\n{SHOW}\nwandb.finish()", tmp_path)
    alerts = [record.alert for record in records(tmp_path) if record.WhichOneof("record_type") == "alert"]
    assert [(alert.title, alert.text, alert.level) for alert in alerts] == [(POST.title, POST.text, "ERROR")]


def test_wandb_disabled(tmp_path: Path) -> None:
    """A run that is switched off takes the alert and nothing fails."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    run(f"import wandb\nwandb.init(project='p', mode='disabled', dir='.')\n{SHOW}\nwandb.finish()", tmp_path)
    assert not list(tmp_path.glob("wandb/**/*.wandb"))


def test_trackio(tmp_path: Path) -> None:
    """The alert is in the project's store, and so is the run that our source reads back."""
    pytest.importorskip("trackio", reason="trackio is not installed")
    script = f"""
import trackio
trackio.init(project="p", name="mine", config={{"beta": 0.04}})
for step in range(3):
    trackio.log({{"reward": step / 4, "reward_std": 0.1, "kl": 0.1, "completions/mean_length": 9.0}})
{SHOW}
trackio.finish()
"""
    run(script, tmp_path, TRACKIO_DIR=str(tmp_path))
    (store,) = tmp_path.glob("*.db")
    with sqlite3.connect(store) as connection:
        alerts = connection.execute("SELECT title, text, level FROM alerts").fetchall()
    assert [(title, text, level.lower()) for title, text, level in alerts] == [(POST.title, POST.text, "error")]
    from rltriage.engine.feed import Feed
    from rltriage.engine.sources import open_source

    feed = Feed(open_source(str(store)), "p")
    assert [(intake.run.id, row.step, row.metrics["reward"]) for intake, row in feed.rows()] == [
        ("mine", 0, 0.0),
        ("mine", 1, 0.25),
        ("mine", 2, 0.5),
    ]
    assert feed.intakes["mine"].run.facts["kl_coef"].value == 0.04 and feed.intakes["mine"].run.profile == "trl"


def test_mlflow(tmp_path: Path) -> None:
    """The open run gets the tags."""
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
    script = f"""
import json, mlflow
mlflow.set_tracking_uri({(tmp_path / "store").as_uri()!r})
with mlflow.start_run() as run:
{chr(10).join("    " + line for line in SHOW.splitlines())}
print(json.dumps(mlflow.MlflowClient().get_run(run.info.run_id).data.tags))
"""
    tags = json.loads(run(script, tmp_path, MLFLOW_ALLOW_FILE_STORE="true").splitlines()[-1])
    assert tags["rltriage.fault"] == "mask_shift"


def test_tensorboard(tmp_path: Path) -> None:
    """The text is in the event file of the open writer, at the step of the alert."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    trackers = Trackers({name: sys.modules[name] for name in ("torch.utils.tensorboard.writer",)})
    trackers.post(POST)
    trackers.close()
    writer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (tensor,) = events.Tensors("rltriage/alert/text_summary")
    assert tensor.step == 3 and b"logp_gap is 0.7" in tensor.tensor_proto.string_val[0] and trackers.failures == 0
