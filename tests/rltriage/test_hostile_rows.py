"""Rows as training loops really log them, and worse: numbers are judged, nothing raises, nothing is kept hold of."""

from __future__ import annotations

import collections
import json
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import rltriage
from rltriage.nonnumbers import DEEPEST, MOST_VALUES, read


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows in a run's file."""
    return [json.loads(line) for line in (path / "rows.jsonl").read_text().splitlines()]


class Raises:
    """Every question raises."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("str")

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")


class BadMapping(Mapping[str, Any]):
    """A mapping that breaks when it is read."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        yield "a"
        raise OSError("gone")

    def __len__(self) -> int:
        return 2


def recursive() -> dict[str, Any]:
    """A row that holds itself, thrice."""
    row: dict[str, Any] = {"deep": 0.25}
    row |= {"me": row, "you": row, "list": [row]}
    return row


def deep() -> dict[str, Any]:
    """More levels than anybody reads."""
    row: dict[str, Any] = {"bottom": 1.0}
    for _ in range(2000):
        row = {"x": row}
    return row


HOSTILE: dict[str, Any] = {
    "raises": {"bad": Raises()},
    "a name that raises": {Raises(): 1.0},
    "a mapping that raises": {"bad": BadMapping()},
    "holds itself": recursive(),
    "deep": deep(),
    "names of all kinds": {
        7: 1.0,
        None: 2.0,
        ("a", "b"): 3.0,
        b"x": 4.0,
        1.5: 5.0,
        "": 6.0,
        "\x00\ud800": 7.0,
        "x" * 10_000: 8.0,
    },
    "huge numbers": {"a": 10**400, "b": -(10**400), "c": Decimal("1e999"), "d": float("inf"), "e": float("nan"), "f": 1j},
    "containers": {
        "a": [],
        "b": (),
        "c": set(),
        "d": {},
        "e": b"1",
        "f": bytearray(b"1"),
        "g": memoryview(b"1"),
        "h": range(3),
    },
    "texts": {"a": "", "b": "nan", "c": "1e400", "d": "x" * 1_000_000, "e": "1_000", "f": "\ud800"},
    "functions": {
        "a": print,
        "b": Raises,
        "c": rltriage,
        "d": (number for number in range(3)),
        "e": type,
        "f": NotImplemented,
    },
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_no_row_raises_or_takes_its_numbers_with_it(what: str, first: bool, tmp_path: Path) -> None:
    """Beside anything at all the reward is judged and written, in the row that decides the profile and in a later one."""
    with rltriage.watch("r", directory=tmp_path, listen=0, quiet=True) as run:
        for step in range(8):
            run.log(step, {"reward": 0.5 + step, "entropy": 1.0} | (HOSTILE[what] if first or step == 6 else {}))
        assert run._server is not None and run._gauges is not None
        assert b"rltriage_reward_mean" in run._gauges.render()
    assert [row["reward"] for row in rows(tmp_path / "r")] == [0.5 + step for step in range(8)]


def test_a_row_that_is_none_costs_itself(tmp_path: Path) -> None:
    """What is no mapping, or breaks as one, is counted; the rows around it are there."""
    with rltriage.watch("r", directory=tmp_path, quiet=True) as run:
        for step, metrics in enumerate(({"reward": 0.5}, None, [], "x", 7, Raises(), BadMapping(), {"reward": 1.5}) * 2):
            report = run.log(step, metrics)  # type: ignore[arg-type]
            assert isinstance(report, rltriage.StepReport)
        assert run.errors == 12
    assert [row["reward"] for row in rows(tmp_path / "r")] == [0.5, 1.5, 0.5, 1.5]


def test_numbers_of_every_library_are_read(tmp_path: Path) -> None:
    """Tensors with gradients, one-element arrays, half precision: also where the user has made warnings errors."""
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    values = {
        "a": torch.tensor(0.5, requires_grad=True),
        "b": torch.tensor([[0.5]]),
        "c": torch.tensor(0.5, dtype=torch.bfloat16),
        "d": numpy.array([0.5]),
        "e": numpy.float16(0.5),
        "f": numpy.ma.masked_array([0.5], mask=[False]),
        "g": Decimal("0.5"),
        "h": collections.UserString("0.5"),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, odd = read(values)
    assert found == dict.fromkeys("abcdefg", 0.5) | ({"h": 0.5} if "h" in found else {})
    assert [each.name for each in odd] in ([], ["h"])
    empty, odd = read(
        {"a": torch.tensor([]), "b": torch.tensor(0.5, device="meta"), "c": numpy.array([]), "d": torch.zeros(9)}
    )
    assert empty == {} and [each.name for each in odd] == ["a", "b", "c", "d"]
    found, _ = read({"i": torch.tensor(True), "j": numpy.bool_(False), "k": True, "l": numpy.int64(2**40)})
    assert found == {"i": 1.0, "j": 0.0, "k": True, "l": 2.0**40}


def test_a_value_is_asked_once_and_outside_the_lock(tmp_path: Path) -> None:
    """A tensor on a device waits for the device at each question; meanwhile other threads may log."""
    asked: list[bool] = []
    run = rltriage.watch("r", directory=tmp_path, quiet=True)

    def others_can_log() -> bool:
        got = threading.Thread(target=lambda: asked.append(run._lock.acquire(timeout=10) and (run._lock.release() or True)))
        got.start()
        got.join(20)
        return True

    class OnDevice:
        def __float__(self) -> float:
            others_can_log()
            return 0.5

    for step in range(3):
        run.log(step, {"reward": OnDevice(), "entropy": 1.0})
    run.close()
    assert asked == [True] * 3 and [row["reward"] for row in rows(tmp_path / "r")] == [0.5] * 3


def test_nothing_of_the_loops_is_kept(tmp_path: Path) -> None:
    """Until the profile is decided rows are held: as numbers, not as tensors that fill a device or change in place."""
    torch = pytest.importorskip("torch")
    mean = torch.tensor(0.0)
    inner = {"unknown/two": 0.0}
    with rltriage.watch("r", directory=tmp_path, quiet=True) as run:
        for step in range(4):
            mean += 1.0
            inner["unknown/two"] = float(step)
            kept = torch.tensor(7.0)
            run.log(step, {"unknown/one": mean, "part": inner, "kept": kept})
        gone = weakref.ref(kept)
        del kept
        assert gone() is None
    assert [row["unknown/one"] for row in rows(tmp_path / "r")] == [1.0, 2.0, 3.0, 4.0]
    assert [row["part/unknown/two"] for row in rows(tmp_path / "r")] == [0.0, 1.0, 2.0, 3.0]


def test_a_row_without_end_is_read_as_far_as_it_costs_little(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A value for each sample: the first ten thousand are taken, the rest is counted and said once."""
    with rltriage.watch("r", directory=tmp_path, quiet=True) as run:
        for step in range(3):
            run.log(step, {"reward": 0.5, "entropy": 1.0} | {f"sample/{number}": 1.0 for number in range(100_000)})
    assert run.ignored == {"others": 3} and caplog.text.count("what comes after 10000 values") == 1
    assert [len(row) - 2 for row in rows(tmp_path / "r")] == [MOST_VALUES] * 3


def test_a_mapping_within_itself_is_read_once() -> None:
    """Neither a cycle nor many ways to one mapping make work without end."""
    found, odd = read(recursive())
    assert found["deep"] == 0.25 and {each.name for each in odd} == {"me", "you", "list"}
    wide: dict[str, Any] = {"x": 1.0}
    for _ in range(DEEPEST - 2):
        wide = {"a": wide, "b": wide, "c": wide}
    found, odd = read(wide)
    assert odd[-1].name == "others"
