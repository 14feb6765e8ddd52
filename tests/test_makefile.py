"""The Makefile: each target installs what it needs and no more, and says what it does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def _dry(target: str, venv: Path) -> str:
    """What `make TARGET` would run in a clone without a .venv."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    command = ["make", "-n", target, f"VENV={venv}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_demo_installs_what_it_runs(tmp_path: Path) -> None:
    """A newcomer's first command fetches torch and the package, says so with size and time, and nothing for developers."""
    told = _dry("demo", tmp_path / "venv")
    assert "about 1 GB, two or three minutes" in told
    assert "-e '.[trainer,web]'" in told
    assert "-r requirements-dev.txt" not in told
    assert told.index("pip install") < told.index("rltriage train --fault mask_shift")


@pytest.mark.parametrize("target", ["stack", "stack-check"])
def test_the_stack_installs_no_more_than_the_demo(target: str, tmp_path: Path) -> None:
    """Who wants to see the whole way need not fetch the frameworks that the tests use."""
    told = _dry(target, tmp_path / "venv")
    assert "-e '.[trainer,web]'" in told
    assert "-r requirements-dev.txt" not in told


def test_dev_builds_on_what_the_demo_has(tmp_path: Path) -> None:
    """The larger set-up comes on top of the smaller one."""
    told = _dry("dev", tmp_path / "venv")
    assert told.index("-e '.[trainer,web]'") < told.index("-r requirements-dev.txt")


def test_what_is_set_up_is_not_set_up_again(tmp_path: Path) -> None:
    """With a .venv for developers the demo starts at once."""
    for stamp in ("ready", "core"):
        (tmp_path / stamp).touch()
    assert "pip install" not in _dry("demo", tmp_path)
