"""What people's own loops print and save: key-value lines, tables, CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rltriage.engine.rows import Record
from rltriage.engine.sources import open_source
from rltriage.engine.sources.base import SourceStats, to_float
from rltriage.engine.sources.console_log import Console
from rltriage.engine.sources.csv_table import delimiter_of
from rltriage.engine.sources.key_value import MAX_TEXT, pairs


def read(path: Path, text: str) -> tuple[list[Record], Any]:
    path.write_text(text, encoding="utf-8")
    source = open_source(str(path))
    return list(source.records()), source


def numbers(record: Record) -> dict[str, float | None]:
    return {name: to_float(value) for name, value in record.values.items()}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step=3 loss=0.5 reward=1e-3", {"step": 3.0, "loss": 0.5, "reward": 0.001}),
        ("[run]   7/100 | loss=-4.5 | acc=62.5%", {"loss": -4.5, "acc": 0.625}),
        ("Epoch:[1/1](4/9), Reward: -1.5, Avg Response Len: 82.88,", {"Reward": -1.5, "Avg Response Len": 82.88}),
        (
            "Step 12 | 3.1s | Loss 0.25 | Grad. Norm 0.5 | LR 1e-6 |",
            {"Step": 12.0, "Loss": 0.25, "Grad. Norm": 0.5, "LR": 1e-6},
        ),
        ("2025-09-23 09:01:00,984 - train - INFO - rl_loss: -0.25, time: 9", {"rl_loss": -0.25, "time": 9.0}),
        ("INFO reward: np.float32(0.5) kl: tensor(0.1, device='cuda:0')", {"reward": 0.5, "kl": 0.1}),
        (
            "loss: 0.5, data: {'n': 4, 'sum': {'reward': 2.0}, 'name': 'x'}",
            {"loss": 0.5, "data/n": 4.0, "data/sum/reward": 2.0},
        ),
        ("listening on http://127.0.0.1:8000 pid: 4321", {"pid": 4321.0}),
        ("loss: nan, reward: inf", {"loss": None, "reward": float("inf")}),
    ],
)
def test_pairs_of_a_line(line: str, found: dict[str, float | None]) -> None:
    """Names with spaces and dots, percentages, numbers in calls and in dicts; times and addresses are no pairs."""
    values = {name: to_float(value) for name, value in pairs(line).items()}
    assert {name: None if value != value else value for name, value in values.items()} == found


LOOP = """\
Using device cuda:0, world_size: 8, port: 29500
beta: 0.04
[run] 1/100 | loss=0.5 | reward=0.1
some chatter about nothing
eval_acc: 0.25
[run] 2/100 | loss=0.4 | reward=0.2
[run] 3/100 | loss=0.3 | reward=0.3"""


def test_rows_of_a_loop(tmp_path: Path) -> None:
    """A fraction is the step, start-up chatter is no row, and a lonely evaluation joins the next row."""
    records, source = read(tmp_path / "train.log", LOOP)
    assert source.kind == "console"
    assert [record.step for record in records] == [1, 2, 3]
    assert numbers(records[1]) == {"eval_acc": 0.25, "loss": 0.4, "reward": 0.2}


def test_epochs_are_counted_through(tmp_path: Path) -> None:
    """`Epoch [2/3] (1/50)` is step 51, so that a new epoch is no restart."""
    text = "Epoch [1/3] (50/50), Reward: 0.1, Loss: 0.5\nEpoch [2/3] (1/50), Reward: 0.1, Loss: 0.5\n"
    assert [record.step for record in read(tmp_path / "a", text)[0]] == [50, 51]


def test_a_specific_format_is_not_shadowed_by_chatter() -> None:
    """Once dict lines are seen, key-value chatter is no row any more."""
    console = Console(SourceStats())
    lines = ["loss scale: 1.0, reward model: 2", "{'loss': 0.5, 'reward': 0.1}", "loss scale: 1.0, reward model: 2"]
    assert [len(list(console.feed(n, line) or ())) for n, line in enumerate(lines)] == [1, 1, 0]


def test_an_endless_console_line_is_counted() -> None:
    """A line too long to be a row is refused without being searched."""
    stats = SourceStats()
    assert not list(Console(stats).feed(1, "loss=1 " * MAX_TEXT) or ())
    assert stats.bad == 1


TABLE = """\
Using cpu device
------------------------------------------
| rollout/                |              |
|    ep_rew_mean          | {reward}         |
| time/                   |              |
|    total_timesteps      | {step}         |
| train/                  |              |
|    approx_kl            | 0.0093132645 |
------------------------------------------
"""


def test_sb3_tables(tmp_path: Path) -> None:
    """Each table is a record whose names carry their section."""
    text = TABLE.format(reward=21.6, step=2048) + "Eval num_timesteps=2048\n" + TABLE.format(reward=25, step=4096)
    records, _ = read(tmp_path / "out", text)
    assert [numbers(record) for record in records] == [
        {"rollout/ep_rew_mean": 21.6, "time/total_timesteps": 2048.0, "train/approx_kl": 0.0093132645},
        {"rollout/ep_rew_mean": 25.0, "time/total_timesteps": 4096.0, "train/approx_kl": 0.0093132645},
    ]


def test_tables_with_drawn_lines(tmp_path: Path) -> None:
    """The lines that rich draws are the same table."""
    text = "┏━━━━━━━━┳━━━━━━┓\n┃ metric ┃ value ┃\n┡━━━━━━━━╇━━━━━━┩\n"
    text += "│ reward │ 0.5 │\n│ loss │ 1e-3 │\n└────────┴──────┘\n"
    assert [numbers(record) for record in read(tmp_path / "out", text)[0]] == [{"reward": 0.5, "loss": 0.001}]


def test_csv_rows(tmp_path: Path) -> None:
    """Empty cells are absent, quotes and carriage returns are handled, a short line is counted."""
    text = 'step,"train/loss",reward\r\n1,0.5,\r\n2,nan,0.25\r\n3,1\r\n4,,0.5'
    records, source = read(tmp_path / "x", text)
    assert source.kind == "csv"
    assert [record.values for record in records] == [
        {"step": "1", "train/loss": "0.5"},
        {"step": "2", "train/loss": "nan", "reward": "0.25"},
        {"step": "4", "reward": "0.5"},
    ]
    assert source.stats.examples[0].line == 4


def test_a_csv_written_anew_with_more_columns_goes_on(tmp_path: Path) -> None:
    """SB3 rewrites progress.csv when a metric first appears: rows that were read are not read twice."""
    path = tmp_path / "progress.csv"
    path.write_text("step,reward\n1,0.5\n2,0.5\n")
    source = open_source(str(path))
    assert len(source.poll()) == 2
    path.write_text("step,reward,train/loss\n1,0.5,\n2,0.5,\n3,0.5,0.1\n")
    assert [record.values["step"] for record in source.poll()] == ["3"]
    path.write_text("step,reward\n1,0.5\n")
    assert [record.values["step"] for record in source.poll()] == ["1"]


def test_a_wandb_chart_export_is_one_run_a_column(tmp_path: Path) -> None:
    """`run - metric` columns become one record per run; the bounds beside them are left out."""
    text = "Step,a-1 - train/reward,a-1 - train/reward__MIN,b - train/reward,b - train/reward__MIN\n"
    text += "1,0.5,0.5,0.25,0.25\n2,,,0.5,0.5\n"
    assert read(tmp_path / "x.csv", text)[0] == [
        Record({"Step": "1", "train/reward": "0.5"}, run="a-1"),
        Record({"Step": "1", "train/reward": "0.25"}, run="b"),
        Record({"Step": "2", "train/reward": "0.5"}, run="b"),
    ]


@pytest.mark.parametrize(
    ("lines", "delimiter"),
    [
        (["a,b", "1,2"], ","),
        (["a\tb", "1\t"], "\t"),
        (["a;b", "1;x", "2;y"], ";"),
        (["loss=1, reward=2", "loss=2, reward=3"], None),
        (["1,2", "3,4"], None),
        (["a,b", "hello"], None),
        (["a,b"], None),
    ],
)
def test_what_a_table_is(lines: list[str], delimiter: str | None) -> None:
    """Names first and as many cells with numbers after: anything else is no table."""
    assert delimiter_of(lines) == delimiter
