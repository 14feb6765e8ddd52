"""Line sources: what real loggers write is read, what is no row is counted, and following equals reading."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltriage.engine.rows import Record
from rltriage.engine.sources import open_source
from rltriage.engine.sources.base import SourceStats, flatten, to_float, to_step
from rltriage.engine.sources.console import clean
from rltriage.engine.sources.console_log import Console
from rltriage.engine.sources.dict_lines import DictLines, parse_dict
from rltriage.engine.sources.jsonl import JsonLines
from rltriage.engine.sources.lines import LineSource
from rltriage.engine.sources.tail import MAX_LINE, Tail
from rltriage.rules.errors import SourceError


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def jsonl(path: Path) -> LineSource:
    stats = SourceStats()
    return LineSource(str(path), "jsonl", JsonLines(stats), stats)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (True, 1.0),
        ("0.25", 0.25),
        (" -3e-4 ", -3e-4),
        ("62.5%", 0.625),
        ("np.float64(0.5)", 0.5),
        ("tensor(0.3, device='cuda:0')", 0.3),
        ("inf", math.inf),
        ("1_000", None),
        ("abc", None),
        (None, None),
        ([1, 2], None),
        (10**400, None),
    ],
)
def test_numbers_as_loggers_write_them(value: object, number: float | None) -> None:
    """Numeric text, calls around a number and percentages are numbers; lists, words and null are not."""
    assert to_float(value) == number


def test_nested_values_become_joined_names() -> None:
    """A mapping in a mapping is one flat mapping, and very deep nesting is cut, not followed for ever."""
    deep: dict[str, object] = {"x": 1}
    for _ in range(50):
        deep = {"d": deep}
    assert flatten({"a": {"b": {"c": 1}}, "e": 2}) == {"a/b/c": 1, "e": 2}
    assert flatten(deep) == {}


def test_a_step_is_a_whole_number() -> None:
    """Steps come as integers, floats and text; a fraction is no step."""
    assert [to_step(x) for x in (3, 3.0, "7", 2.5, None, math.inf)] == [3, 3, 7, None, None, None]


def test_jsonl_keeps_rows_and_counts_the_rest(tmp_path: Path) -> None:
    """NaN and Infinity literals are read; lists, text, junk and half a last line are refused with number and reason."""
    text = '{"step": 1, "loss": NaN}\n[1]\n\n"x"\nnonsense\n{"step": 2, "loss": Infinity}\r\n{"step": 3, "lo'
    source = jsonl(Path(write(tmp_path / "a.jsonl", text)))
    rows = list(source.records())
    assert [row.values["step"] for row in rows] == [1, 2]
    assert math.isnan(rows[0].values["loss"]) and math.isinf(rows[1].values["loss"])
    assert source.stats.records == 2 and source.stats.bad == 4
    assert [(line.line, line.reason) for line in source.stats.examples] == [
        (2, "a row must be a JSON object, this is a list"),
        (4, "a row must be a JSON object, this is text"),
        (5, "not JSON"),
        (7, "half a JSON object"),
    ]


def test_verl_file_logger_lines_are_opened(tmp_path: Path) -> None:
    """`{"step", "data"}` is one record with that step and the inner values."""
    path = write(
        tmp_path / "a", '{"step": 4, "data": {"actor/pg_loss": 0.1}}\n{"step": 5, "data": {"actor/pg_loss": null}}\n'
    )
    assert list(open_source(path).records()) == [
        Record({"actor/pg_loss": 0.1}, step=4),
        Record({"actor/pg_loss": None}, step=5),
    ]


def test_a_huge_line_is_refused_once_and_the_next_row_is_read(tmp_path: Path) -> None:
    """Ten megabytes without a newline cost one counted problem and no memory to speak of."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"step": 1, "a": 1}\n{"step": 2, "x": "' + b"y" * 10_000_000 + b'"}\n{"step": 3, "a": 2}\n')
    source = jsonl(path)
    assert [row.values["step"] for row in source.records()] == [1, 3]
    assert source.stats.bad == 1
    assert source.stats.examples[0].reason.startswith(f"longer than {MAX_LINE >> 20} MiB")
    assert source.stats.examples[0].line == 2


ROWS = [{"step": n, "loss": n / 8, "note": "grün ✓" * (n % 3)} for n in range(12)]
TEXT = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=30))
def test_following_gives_what_reading_whole_gives(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    """However the bytes arrive, cut inside characters too, the polls together equal one reading of the whole file."""
    path = tmp_path_factory.mktemp("grow") / "rows.jsonl"
    path.write_bytes(b"")
    source = jsonl(path)
    seen: list[Record] = []
    with open(path, "ab", buffering=0) as file:
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(TEXT)], strict=True):
            file.write(TEXT[start:end])
            seen += source.poll()
    source.close()
    assert seen == list(jsonl(path).records())
    assert [row.values for row in seen] == ROWS


def test_byte_by_byte(tmp_path: Path) -> None:
    """A poll after every single byte gives every row once."""
    path = tmp_path / "rows.jsonl"
    source = jsonl(path)
    assert source.poll() == []
    seen = []
    with open(path, "ab", buffering=0) as file:
        for byte in TEXT[:200]:
            file.write(bytes([byte]))
            seen += source.poll()
    assert [row.values for row in seen] == ROWS[: TEXT[:200].count(b"\n")]


def test_truncation_and_rewriting_start_over(tmp_path: Path) -> None:
    """A file that shrinks, or that is rewritten to be longer at once, is read from its start."""
    path = tmp_path / "rows.jsonl"
    source = jsonl(Path(write(path, '{"step": 1}\n{"step": 2}\n')))
    assert len(source.poll()) == 2
    path.write_text('{"step": 7}\n')
    assert [row.values["step"] for row in source.poll()] == [7]
    path.write_text('{"step": 8}\n{"step": 9}\n{"step": 10}\n')
    assert [row.values["step"] for row in source.poll()] == [8, 9, 10]


def test_rotation_reads_the_old_file_to_its_end(tmp_path: Path) -> None:
    """A row written just before the file was moved away is not lost, nor is its unfinished last line."""
    path = tmp_path / "rows.jsonl"
    source = jsonl(Path(write(path, '{"step": 1}\n')))
    assert len(source.poll()) == 1
    with open(path, "a") as file:
        file.write('{"step": 2}\n{"step": 3}')
    os.rename(path, tmp_path / "rows.jsonl.1")
    assert [row.values["step"] for row in source.poll()] == [2]
    write(path, '{"step": 4}\n')
    assert [row.values["step"] for row in source.poll()] == [3, 4]


def test_line_numbers_count_from_one_and_start_over(tmp_path: Path) -> None:
    """A tail tells lines and restarts, so that problems can be located."""
    path = tmp_path / "a.log"
    tail = Tail(write(path, "a\nb\nc"), SourceStats())
    assert list(tail.lines()) == [(1, "a"), (2, "b")] and list(tail.unfinished()) == [(3, "c")]
    path.write_text("d\n")
    assert list(tail.lines()) == [(1, "d")] and tail.generation == 1


DICTS = (
    "Loading checkpoint shards: 100%|####| 2/2 [00:01<00:00]\n"
    "  0%|          | 0/20 [00:00<?, ?it/s]\r  5%|5         | 1/20 [00:01<00:19]"
    "{'loss': 0.0, 'grad_norm': nan, 'reward': 0.5, 'rewards/f/mean': np.float64(0.25), 'epoch': 0.1}\n"
    "{'agent': 'maker', 'name': 'x', 'kind': 'y', 'reward': 0.1}\n"
    "\x1b[32m{'loss': '-0.0098', 'kl': '5e-06', 'reward': tensor(0.75, device='cuda:0'), 'epoch': '0.2'}\x1b[0m\n"
    "{'train_runtime': 9.5, 'train_loss': 0.1, 'epoch': 0.2}\n"
    "{'loss': 0.1, 'grad_norm': 0.2\n"
)


def test_dict_lines_among_progress_bars(tmp_path: Path) -> None:
    """Dict lines are found behind bars, colours and carriage returns; other dicts are no rows; a broken one counts."""
    source = open_source(write(tmp_path / "train.out", DICTS))
    rows = [flatten(record.values) for record in source.records()]
    assert [to_float(row.get("loss")) for row in rows] == [0.0, -0.0098, None]
    assert math.isnan(to_float(rows[0]["grad_norm"]) or 0.0)
    assert [to_float(row.get("reward")) for row in rows] == [0.5, 0.75, None]
    assert to_float(rows[0]["rewards/f/mean"]) == 0.25
    assert source.stats.bad == 1


@pytest.mark.parametrize("text", ["{'a': __import__('os').system('x')}", "{'a': [1", "{'a': " * 2000, "{1, 2}"])
def test_dict_text_is_data_only(text: str) -> None:
    """Code, broken text and bottomless nesting are no dict; nothing is evaluated."""
    found = parse_dict(text)
    assert found is None or all(isinstance(value, (str, int)) for value in found.values())


def test_slime_and_roll_lines_carry_their_step() -> None:
    """`rollout 12: {...}` and `metrics_tag: {"step", "metrics"}` give the step and the inner values."""
    lines = DictLines(SourceStats())
    assert lines.feed(1, "INFO rollout 12: {'rollout/raw_reward': 0.5}") == (Record({"rollout/raw_reward": 0.5}, step=12),)
    roll = lines.feed(2, 'metrics_tag: {"step": 3, "metrics": {"critic/score/mean": 0.5}}')
    assert roll == (Record({"critic/score/mean": 0.5, "step": 3}),)


VERL = "step:3 - actor/pg_loss:-0.25 - actor/ppo_kl:np.float64(1e-05) - val-core/a/b/acc/mean@1:0.5 - training/epoch:0"


def verl(*lines: str) -> tuple[list[Record], SourceStats]:
    stats = SourceStats()
    console = Console(stats)
    records = [record for number, line in enumerate(lines, 1) for record in console.feed(number, line) or ()]
    return records + list(console.flush(True)), stats


def test_verl_rows_behind_ray_prefixes() -> None:
    """Ray's worker prefix and colours are cut; scientific and numpy numbers are kept as text for the intake."""
    records, stats = verl("\x1b[36m(TaskRunner pid=7, ip=10.0.0.1)\x1b[0m " + VERL, "(TaskRunner pid=7) saving", VERL)
    assert [record.step for record in records] == [3, 3]
    assert {name: to_float(value) for name, value in records[0].values.items()} == {
        "actor/pg_loss": -0.25,
        "actor/ppo_kl": 1e-05,
        "val-core/a/b/acc/mean@1": 0.5,
        "training/epoch": 0.0,
    }
    assert stats.bad == 0


@pytest.mark.parametrize("cut", range(12, len(VERL) - 1))
def test_a_folded_verl_row_is_whole_again(cut: int) -> None:
    """Wherever a terminal folds a row, the row is the same as unfolded (a fold inside a number's end excepted)."""
    head, tail = VERL[:cut], VERL[cut:]
    if head[-1].isdigit() and tail[0] in "0123456789.)":
        pytest.skip("both halves are whole: nothing tells a fold from two lines")
    records, _ = verl(head, "(TaskRunner pid=7) " + tail if cut % 2 else tail, "next line of text")
    assert [record.values for record in records] == [verl(VERL)[0][0].values]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (bytes(range(256)) * 20, "binary data"),
        (b"hello\nworld: peace\n", "nothing in it is a metric row"),
        (b'{"a": [1, 2]', "nothing in it is a metric row"),
    ],
)
def test_what_is_no_log_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    """Empty, binary and rowless files say what they are and where."""
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message) as caught:
        open_source(str(path))
    assert str(path) in str(caught.value)


def test_missing_files_and_plain_directories(tmp_path: Path) -> None:
    """A path that is not there, and a directory that is no run, are one clear error each."""
    with pytest.raises(SourceError, match="no such file"):
        open_source(str(tmp_path / "nope.jsonl"))
    with pytest.raises(SourceError, match=r"without rows\.jsonl is no run"):
        open_source(str(tmp_path))


def test_worker_prefixes_only() -> None:
    """A parenthesis that is no worker prefix stays."""
    assert clean("(WorkerDict pid=12) x: 1") == "x: 1"
    assert clean("(reward) x: 1") == "(reward) x: 1"


def test_a_dict_over_several_lines() -> None:
    """SkyRL's pretty-printed dict is one record with the step of its title line; one that never closes is counted."""
    stats = SourceStats()
    console = Console(stats)
    lines = [
        "Step 12: ",
        "{'reward/avg_raw_reward': '0.2500',",
        " 'policy/policy_entropy': '0.5000'}",
        "",
        "{'a': 1,",
        "no",
    ]
    found = [record for number, line in enumerate(lines) for record in console.feed(number, line) or ()]
    assert found == [Record({"reward/avg_raw_reward": "0.2500", "policy/policy_entropy": "0.5000"}, step=12)]
    assert stats.bad == 1
