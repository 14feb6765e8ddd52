"""The worked example of docs/probes.md: a trainer of one's own passes every check, and a planted fault fails its checks."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("torch")


def _check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from rltriage.cli import main; main()", "check", "--probe", "my_probe:make"]
    return subprocess.run(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)


@pytest.fixture
def example(tmp_path: Path, read_blocks: Any) -> tuple[Path, str]:
    """The page's files, saved, and the output that it shows."""
    blocks = read_blocks(ROOT / "docs" / "probes.md")
    for block in blocks:
        if block.file in ("my_trainer.py", "my_probe.py"):
            (tmp_path / block.file).write_text(block.text)
    (shown,) = (block.text for block in blocks if block.text.startswith("$ rltriage check --probe my_probe:make\n"))
    return tmp_path, shown.partition("\n")[2]


def test_the_example_passes_as_the_page_says(example: tuple[Path, str]) -> None:
    """Eleven checks and one more pass, the others say which method they lack."""
    folder, shown = example
    ran = _check(folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(shown, ran.stdout, flags), ran.stdout
    assert ran.stdout.count("  ok") == 12


@pytest.mark.parametrize(
    ("right", "wrong", "fails"),
    [
        ("mask[:, 0] = 0", "mask[:, 0] = 1; mask[:, -1] = 0", {1, 2}),
        ("(groups - groups.mean(1, keepdim=True))", "-(groups - groups.mean(1, keepdim=True))", {8}),
        ("mask.sum())\n        part", "mask[rows].sum())\n        part", {6}),
    ],
)
def test_a_planted_fault_is_seen(example: tuple[Path, str], right: str, wrong: str, fails: set[int]) -> None:
    """A shifted mask, a negated advantage, a token mean for each micro-batch: the page's probe shows them."""
    folder, _ = example
    trainer = folder / "my_trainer.py"
    assert trainer.read_text().count(right) == 1
    trainer.write_text(trainer.read_text().replace(right, wrong))
    ran = _check(folder)
    assert ran.returncode == 1
    assert {int(line.split()[0]) for line in ran.stdout.splitlines() if "  FAIL  " in line} == fails


def test_the_page_names_every_method() -> None:
    """The table has each method of the protocol."""
    from rltriage.trainer.invariants import TrainerProbe

    page = (ROOT / "docs" / "probes.md").read_text()
    for method in (name for name in vars(TrainerProbe) if not name.startswith("_")):
        assert f"| `{method}(" in page
