"""What logs cost that were written to be dear: time in proportion to their length, and bounded memory."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from fuzzing.bounds import bounded

from rltriage.engine import feed
from rltriage.engine.feed import Feed
from rltriage.engine.sources import csv_table, open_source
from rltriage.engine.sources.files import read_start

KEYS = "reward=0.5 loss=0.1 step=1\n"
VERL = "step:1 - actor/pg_loss:0.5 - actor/kl:0.1\n"
DICT = "{'loss': 0.5, 'reward': 1.0}\n"


def long_lines(n: int) -> dict[str, str]:
    """Lines of about `n` characters, each after a row of the format that is to read it, and before another one."""
    return {
        "one word": KEYS + "a" * n,
        "many words": KEYS + "a " * (n // 2),
        "digits": KEYS + "loss=" + "1" * (n - 9) + "x",
        "half a launcher's prefix": KEYS + "(a " + "pid=" * (n // 4),
        "spaces before a launcher's suffix": KEYS + "x" + " " * n + "[repeated x",
        "half launcher's suffixes": KEYS + "x" + "[repeated 2x across " * (n // 20),
        "spaces before a dict": DICT + "step" + " " * n + "x{'a': 1}",
        "a word before a dict": DICT + "a" * n + "{'a': 1}",
        "commas of a call": DICT + "{'loss': f(" + "," * n + "}",
        "quotes of a value": DICT + "{'a': 1,\n \"" + '":' * (n // 2) + " ",
        "lines of a dict": DICT + DICT + "{'loss':\n" + " 1,\n" * (n // 4),
        "many dicts": KEYS + "a" * (n // 2) + " b:{}" * (n // 10),
        "no pair of verl's": VERL + "step:1 - " + "a" * n,
        "digits of verl's": VERL + "step:1 - a:" + "1" * n + "x\nfoo",
        "slashes after verl's": VERL + "a/" * (n // 2),
        "lines after verl's": VERL + "- x:1\n" * (n // 6),
        "spaces in a table": KEYS + "|" + " " * n + "x",
        "spaces in a cell": KEYS + "| a |" + " " * n + "x",
        "runs of a chart": ",".join(f"r{i} - m,r{i} - m__MIN" for i in range(n // 20))
        + "\n"
        + "1," * (n // 20 * 2 - 1)
        + "1",
    }


@pytest.mark.parametrize("length", [19_000, 65_000])
@pytest.mark.parametrize("name", sorted(long_lines(0)))
def test_a_long_line_costs_no_time(tmp_path: Path, name: str, length: int) -> None:
    """A line of tens of thousands of characters takes a fraction of a second in each format, not minutes."""
    path = tmp_path / "log"
    path.write_text("\n".join([long_lines(length)[name]] * 2))

    def read(_: bytes) -> None:
        assert list(Feed(open_source(str(path)), "run").rows())

    bounded(read, seconds=4.0)(b"")


def test_a_line_too_long_for_a_row_is_counted(tmp_path: Path) -> None:
    """More than 65,536 characters of console text are no row; what follows is read."""
    path = tmp_path / "log"
    path.write_text(KEYS + "x" * 70_000 + "\n" + KEYS)
    source = open_source(str(path))
    assert len(list(source.records())) == 2
    assert source.stats.bad == 1 and "longer than 65536 characters" in source.stats.examples[0].reason


def test_a_step_of_verl_that_is_no_number(tmp_path: Path) -> None:
    """A second `step:` in a row, of text, does not end the reading."""
    path = tmp_path / "log"
    path.write_text(VERL + "step:2 - step:two - actor/pg_loss:0.25\n" + VERL)
    assert [row.metrics.get("loss") for _, row in Feed(open_source(str(path)), "run").rows()] == [0.5, 0.25, 0.5]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("{'loss': 1, 'reward': tensor(0.5, device='cuda:0')}", {"loss": 1, "reward": "0.5"}),
        ("{'loss': 1, 'reward': tensor(0.5, [1, 2])}", {"loss": 1, "reward": "0.5"}),
        ("{'loss': 1, 'note': 'a } b', 'reward': 2}", {"loss": 1, "note": "a } b", "reward": 2}),
        ("{'loss': 1, 'note': 'it\\'s }', 'reward': 2}", {"loss": 1, "note": "it's }", "reward": 2}),
        ("{'loss': 1,\n 'note': 'a } b',\n 'reward': {'mean': 2}\n}", {"loss": 1, "note": "a } b", "reward": {"mean": 2}}),
    ],
)
def test_braces_quotes_and_calls_of_a_dict(tmp_path: Path, line: str, values: dict[str, object]) -> None:
    """A dict ends where its braces do, over one line or several, whatever its texts hold."""
    path = tmp_path / "log"
    path.write_text(DICT + line + "\n" + DICT)
    assert [dict(record.values) for record in open_source(str(path)).records()][1] == values


def test_runs_of_a_chart_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table whose columns name more runs than anybody draws the first are read."""
    monkeypatch.setattr(csv_table, "MAX_RUNS", 3)
    path = tmp_path / "chart.csv"
    header = [f"r{i} - {name}{end}" for i in range(5) for name in ("loss", "kl") for end in ("", "__MIN")]
    path.write_text(",".join(["Step", *header]) + "\n" + ",".join(["1"] * (len(header) + 1)) + "\n")
    source = open_source(str(path))
    records = list(source.records())
    assert [record.run for record in records] == ["r0", "r1", "r2"]
    assert source.stats.bad == 1 and "5 runs: the first 3 are read" in source.stats.examples[0].reason
    assert all(record.values == {"Step": "1", "loss": "1", "kl": "1"} for record in records)


def test_runs_of_a_log_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log whose every line names another run fills no memory: what is beyond the bound is counted."""
    monkeypatch.setattr(feed, "MAX_RUNS", 3)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps({"step": n, "reward": 1.0, "run": f"r{n % 5}"}) + "\n" for n in range(10)))
    read = Feed(open_source(str(path)), "run")
    assert sorted(intake.run.id for intake, _ in read.rows()) == ["r0", "r0", "r1", "r1", "r2", "r2"]
    assert read.source.stats.bad == 4 and "at most 3" in read.source.stats.examples[0].reason


def test_a_packed_document_is_read_in_one_go(tmp_path: Path) -> None:
    """Unpacking costs time in proportion to what comes out, not to its square."""
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(bytes(96 << 20), 1))

    def read(_: bytes) -> None:
        assert read_start(str(path), 96 << 20) == (bytes(96 << 20), True)

    bounded(read, seconds=5.0)(b"")


@pytest.mark.parametrize("rows", [1, 3])
def test_a_first_row_longer_than_the_sample(tmp_path: Path, rows: int) -> None:
    """JSON Lines whose first row is hundreds of thousands of characters long are still JSON Lines."""
    path = tmp_path / "log.jsonl"
    names = {f"a/rather/long/name/of/a/metric/{n}": 0.5 for n in range(9000)}
    path.write_text("".join(json.dumps({"step": n, "reward": 1.0, **names}) + "\n" for n in range(rows)))
    assert [row.step for _, row in Feed(open_source(str(path)), "run").rows()] == list(range(rows))
