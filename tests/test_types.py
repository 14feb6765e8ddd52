"""`make check` types what is shipped, all of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("rltriage", "rules", "engine", "exporters", "trainer")


def test_mypy_counts_as_many_files_as_the_tree_has() -> None:
    """A mapping that hides a folder from mypy would pass after checking almost nothing."""
    lib = ROOT / ".build" / "lib"
    if not lib.is_dir():
        pytest.skip("run `make check` first: it builds the tree that mypy reads")
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "-p", "rltriage"],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(lib)},
        capture_output=True,
        text=True,
    )
    files = sum(1 for layer in LAYERS for _ in (ROOT / layer).rglob("*.py"))
    assert f"no issues found in {files} source files" in result.stdout, result.stdout
