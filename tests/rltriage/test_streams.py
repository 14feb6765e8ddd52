"""stdout and stderr that take nothing more: a full disk, a reader that has left, a descriptor that is closed."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RLTRIAGE = [sys.executable, "-W", "error", "-m", "rltriage"]


def _no_file_grows() -> None:
    """To this process every disk is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _run(*args: object, full: bool = False, **streams: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    limit = _no_file_grows if full else None
    command = [*RLTRIAGE, *map(str, args)]
    return subprocess.run(command, text=True, timeout=120, env=environment, preexec_fn=limit, **options)


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A log in which nothing fires at critical."""
    path = tmp_path / "healthy.jsonl"
    path.write_text("".join(json.dumps({"step": s, "reward": 0.1 * s, "entropy": 1.0}) + "\n" for s in range(9)))
    return path


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    """A log of fault 10, if kl_coef is above 0."""
    path = tmp_path / "sick.jsonl"
    rows = [{"step": s, "reward": 0.2 + 0.01 * (s % 7), "kl_ref": 0.0, "grad_norm": 0.2, "lr": 1e-3} for s in range(12)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("command", ["replay", "report --format md", "rules list", "--help"])
def test_a_full_stdout_is_one_sentence_and_exit_2(healthy: Path, tmp_path: Path, command: str) -> None:
    """Not the exit code of a critical alert, no traceback, and nothing more when the interpreter ends."""
    words = command.split()
    with open(tmp_path / "out", "w") as out:
        ran = _run(*words, *([healthy] if words[0].startswith("rep") else []), full=True, stdout=out)
    said = [line for line in ran.stderr.splitlines() if " rules; " not in line]
    assert (ran.returncode, said) == (2, ["cannot write to stdout: File too large"])


@pytest.mark.parametrize("command", ["replay", "replay --json", "report --format json --fail-on critical"])
def test_a_reader_that_has_left_changes_no_exit_code(sick: Path, command: str) -> None:
    """With `| head -1` a critical alert is exit 1 all the same, and nothing is said of it."""
    read, write = os.pipe()
    os.close(read)
    ran = _run(*command.split(), sick, "--config", "kl_coef=0.1", stdout=write)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_a_reader_that_has_left_is_no_failure() -> None:
    """`rltriage rules list | head -1` ends with 0 in shells that look at every part of a pipe."""
    script = f"set -o pipefail; {' '.join(RLTRIAGE)} rules list --json | head -c 1"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "{", "")


def test_a_full_stderr_hides_nothing_from_the_exit_code(tmp_path: Path) -> None:
    """What cannot be said on stderr does not become another exit code."""
    with open(tmp_path / "err", "w") as err:
        assert _run("replay", tmp_path / "none.jsonl", full=True, stderr=err).returncode == 2
        assert _run("rules", "list", full=True, stderr=err).returncode == 0


@pytest.mark.parametrize("command", ["replay", "report --format md"])
def test_a_closed_stdout_ends_no_command(healthy: Path, command: str) -> None:
    """A service that is started with `>&-` wants no output."""
    script = f"{' '.join(RLTRIAGE)} {command} {healthy} >&-"
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_slow_reader_of_a_nonblocking_pipe_gets_everything() -> None:
    """Whoever shares stdout may have made it non-blocking; the command waits for room."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with subprocess.Popen([*RLTRIAGE, "rules", "compile", "triage"], stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        with open(read, "rb") as file:
            text = file.read()
        assert process.wait(60) == 0
    assert len(text) > 100_000 and text.startswith(b"# Generated")
