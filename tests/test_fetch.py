"""tests/fetch.py: all of a thing or nothing, and one line for what cannot be had."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def fetch(folder: Path) -> subprocess.CompletedProcess[str]:
    """Fetch axe-core into another clone, where there is no npm."""
    (folder / "tests").mkdir(exist_ok=True)
    program = shutil.copy(Path(__file__).with_name("fetch.py"), folder / "tests")
    command = [sys.executable, program, "axe-core"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": "/nowhere"})


def test_what_cannot_be_had_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """Exit code 1; what has come of it until then is gone."""
    done = fetch(tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("fetch: axe-core cannot be had: ")
    assert done.stderr.count("\n") == 1 and list((tmp_path / ".cache").iterdir()) == []


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    """It needs no npm then."""
    (tmp_path / ".cache" / "axe-core").mkdir(parents=True)
    done = fetch(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
