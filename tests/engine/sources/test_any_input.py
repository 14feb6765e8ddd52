"""Whatever a log holds, reading it ends, raises nothing but SourceError, and gives rows of numbers."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltriage.engine.feed import Feed
from rltriage.engine.intake import Intake
from rltriage.engine.rows import Record
from rltriage.engine.sources import open_source
from rltriage.engine.sources.base import SourceStats
from rltriage.engine.sources.console_log import Console
from rltriage.engine.sources.lines import LineSource
from rltriage.rules.errors import SourceError

NAMES = st.sampled_from(
    ["step", "loss", "reward", "run", "time", "actor/pg_loss", "critic/score/mean", "config", "data", "a/b", "kl", "", "ü"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("tensor(0.5)"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=3,
)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(st.dictionaries(NAMES, JSON, max_size=4), max_size=7))
def test_any_records_become_rows_of_numbers(records: list[dict[str, Any]]) -> None:
    """Any JSON object is taken: steps are integers, metrics floats, and no record gives two rows."""
    intake = Intake("run")
    rows = [row for record in records for row in intake.rows(Record(record))] + intake.finish()
    assert len(rows) + sum(intake.skipped.values()) == len(records)
    assert all(type(row.step) is int and all(type(v) is float for v in row.metrics.values()) for row in rows)


PARTS = st.sampled_from(
    [
        *(
            "step:1 - actor/pg_loss:0.5 - ",
            "critic/score/mean:np.float64(0.1)",
            "{'loss': 0.5, 'reward': ",
            "nan}",
            "}",
            "{",
        ),
        *(
            "reward=0.5 ",
            "kl: 0.1, ",
            "| rollout/ | |",
            "| ep_rew_mean | 1 |",
            "-----------",
            "\n",
            "\r",
            "\x1b[32m",
            " - ",
            "1/9 ",
        ),
        *('{"step": 1, "loss": 2}', "[1, 2]", "a,b,c", "\x00", "'", '"', "é", "(TaskRunner pid=1) ", "eval_acc: 0.5"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(PARTS, max_size=30))
def test_any_text_ends_in_rows_or_one_error(tmp_path_factory: pytest.TempPathFactory, parts: list[str]) -> None:
    """Any mixture of the formats' pieces is read to its end, or is one SourceError."""
    path = tmp_path_factory.mktemp("text") / "log"
    path.write_bytes("".join(parts).encode())
    try:
        rows = list(Feed(open_source(str(path)), "run").rows())
    except SourceError as error:
        assert str(path) in str(error)
    else:
        assert all(type(value) is float for _, row in rows for value in row.metrics.values())


LOGS = {
    "verl": "".join(f"step:{n} - actor/pg_loss:{n / 8} - actor/ppo_kl:np.float64(0.{n})\nsaving\n" for n in range(9)),
    "dict": "".join(f"\r 5%|# | {n}/9{{'loss': {n / 8}, 'reward': nan}}\n" for n in range(9)),
    "table": "".join(f"----------\n| train/ | |\n|  loss | {n} |\n|  reward | 1 |\n----------\n" for n in range(9)),
    "loop": "".join(f"[{n}/9] loss: {n / 8}, reward: 1\neval_acc: 0.{n}\n" for n in range(1, 9)),
}


@pytest.mark.parametrize("name", sorted(LOGS))
@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 700), max_size=25))
def test_following_a_console_equals_reading_it(
    tmp_path_factory: pytest.TempPathFactory, name: str, cuts: list[int]
) -> None:
    """Every console format gives the same records however its bytes arrive."""
    text = LOGS[name].encode()
    path = tmp_path_factory.mktemp("console") / "log"
    path.write_bytes(b"")
    stats = SourceStats()
    source = LineSource(str(path), "console", Console(stats), stats)
    seen: list[Record] = []
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    with open(path, "ab", buffering=0) as file:
        for start, end in pairwise(edges):
            file.write(text[start:end])
            seen += source.poll()
    seen += list(source.records())
    source.close()
    assert [json.dumps(record.values, default=str) for record in seen] == [
        json.dumps(record.values, default=str) for record in open_source(str(path)).records()
    ]
    assert len(seen) >= 8
