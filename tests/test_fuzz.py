"""Hostile input of every kind: it is taken, or refused with one of the project's errors, in bounded time and memory.

What is judged is in `benchmarks/fuzzing`; `make fuzz` runs the same for as long as one likes, guided by coverage.
"""

from __future__ import annotations

import importlib.util
import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path

import fuzz
import pytest
from fuzzing import hostile
from fuzzing.bounds import Target, bounded
from fuzzing.targets import TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NEEDS = {"mlflow": "mlflow", "events": "tensorboard", "wandb": "wandb", "page": "starlette"}
EXAMPLES = {"rows": 60, "reference": 15, "commands": 15, "trackio": 60, "page": 60, "rules": 100}
"""Of the dear targets, so that each takes a few seconds."""


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    name: str = request.param
    if name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    return TARGETS[name](tmp_path_factory.mktemp(name))


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_hostile_input_is_taken_or_refused(target: Target, request: pytest.FixtureRequest) -> None:
    """Variants of valid input, in bytes and in values: no other exception, none in a log, no hang, no lost memory."""
    name = request.node.callspec.params["target"]
    judge = bounded(target.judge)
    for seed in target.seeds[:20]:
        judge(seed)

    @settings(max_examples=EXAMPLES.get(name, 200), deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(seed=st.integers(0, 2**32))
    def vary(seed: int) -> None:
        judge(hostile.variant(random.Random(seed), target.seeds))

    vary()


def _counts(judge: Callable[[bytes], None], data: bytes) -> str:
    try:
        bounded(judge, seconds=0.2)(data)
    except BaseException as error:
        return type(error).__name__
    return ""


def test_the_judge_sees_what_it_is_for(tmp_path: Path) -> None:
    """A crash, one that was only logged, endless work and too much memory each fail the input; a quiet one does not."""

    def crash(_: bytes) -> None:
        raise KeyError("x")

    def log(_: bytes) -> None:
        try:
            raise ValueError("x")
        except ValueError:
            logging.getLogger("rltriage.x").exception("said and gone on")

    def hang(_: bytes) -> None:
        while True:
            pass

    def bomb(_: bytes) -> None:
        bytearray(8 << 30)

    found = [_counts(judge, b"") for judge in (crash, log, hang, lambda _: None)]
    assert found == ["KeyError", "ValueError", "TooSlow", ""]
    if sys.platform == "linux":
        assert _counts(bomb, b"") == "MemoryError"


def test_a_kept_find_that_is_mended_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is judged again and goes, with its text; one that still fails or hangs stays, and both is said."""
    monkeypatch.setattr(fuzz, "FINDS", tmp_path)
    folder = tmp_path / "silences"
    folder.mkdir()
    for name in ("find-mended", "find-mended.txt", "find-other", "find-other.txt"):
        (folder / name).write_text("{")
    (folder / "find-failing").symlink_to(folder / "nothing")
    fuzz.judge_again("silences")
    assert [file.name for file in folder.iterdir()] == ["find-failing"]
    told = capfd.readouterr().out
    assert "find-mended does not fail any more: deleted" in told and "find-failing still fails" in told
    monkeypatch.setattr(fuzz, "HANG_SECONDS", 0.0)
    (folder / "find-hanging").write_text("{")
    fuzz.judge_again("silences")
    assert [file.name for file in fuzz.kept("silences")] == ["find-failing", "find-hanging"]


def test_a_find_that_still_fails_ends_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is judged again is the input that was kept, within the same bounds."""

    def crash(data: bytes) -> None:
        raise KeyError(data)

    monkeypatch.setitem(TARGETS, "crash", lambda folder: Target([], crash))
    (tmp_path / "find-x").write_bytes(b"kept")
    with pytest.raises(KeyError, match="kept"):
        fuzz._again("crash", tmp_path / "find-x")
