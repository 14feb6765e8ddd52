"""The files that commands write: never over what is read or something else, and one sentence where they cannot be."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rltriage.cli.files import Output

ROWS = "".join(json.dumps({"step": step, "reward": 0.1 * step, "entropy": 1.0}) + "\n" for step in range(9))
PACK = "version: 1\npack: mine\nextends: triage\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two logs and a pack, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run1.jsonl").write_text(ROWS)
    (tmp_path / "run2.jsonl").write_text(ROWS)
    (tmp_path / "mine.yaml").write_text(PACK)
    (tmp_path / "link.html").symlink_to("run1.jsonl")
    os.link(tmp_path / "run1.jsonl", tmp_path / "hard.md")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "report run1.jsonl -o run1.jsonl",
        "report run1.jsonl -o ./run1.jsonl --format md",
        "report run1.jsonl -o link.html",
        "report run1.jsonl -o hard.md",
        "report run1.jsonl --rules mine.yaml -o mine.yaml",
        "report -o run1.jsonl run2.jsonl",
        "report -o mine.yaml run2.jsonl",
        "report -o run1.jsonl run2.jsonl --format json",
        "rules compile mine.yaml -o mine.yaml",
        "rules compile mine.yaml -o rules.yml --tests mine.yaml",
        "rules compile -o mine.yaml triage",
        "rules compile --kind meta -o mine.yaml",
        "rules compile triage --to prometheusrule -o run1.jsonl",
        "rules compile triage -o rules.yml --tests ./rules.yml",
        "reference build run1.jsonl -o run1.jsonl",
        "reference build -o run1.jsonl run2.jsonl",
        "bench --json run1.jsonl",
        "bench --svg run1.jsonl",
    ],
)
def test_nothing_that_is_something_else_is_overwritten(rltriage, folder: Path, command: str) -> None:
    """A log or a pack that is named as output, by a slip or by the shell's `*.jsonl`, stays as it is: exit 2."""
    ran = rltriage(*command.split())
    assert ran.code == 2 and "choose another" in ran.err and "Traceback" not in ran.err
    assert (folder / "run1.jsonl").read_text() == ROWS and (folder / "mine.yaml").read_text() == PACK
    assert (folder / "link.html").is_symlink() and not (folder / "rules.yml").exists()


@pytest.mark.parametrize(
    "command",
    [
        "report run1.jsonl -o out.html",
        "report run1.jsonl run2.jsonl -o out.html",
        "report run1.jsonl -o out.md",
        "report run1.jsonl -o out.json",
        "rules compile triage -o out.yml --tests out.tests.yml",
        "rules compile triage --from metrics --to prometheusrule -o out.yml --tests out.tests.yml",
        "rules compile --kind meta -o out.yml",
        "rules compile --kind recording -o out.yml",
    ],
)
def test_what_the_command_has_written_itself_is_replaced(rltriage, folder: Path, command: str) -> None:
    """A report or rule file is written anew each time; an empty file is nobody's."""
    for path in re.findall(r"out\S*", command):
        Path(path).touch()
    for _ in range(3):
        ran = rltriage(*command.split())
        assert ran.code == 0, ran.err
    assert all(Path(path).stat().st_size > 1000 for path in re.findall(r"out\.(?:html|yml|json)", command))


@pytest.mark.parametrize(
    "command",
    [
        "rules compile triage -o nodir/x.yml",
        "rules compile triage -o folder",
        "rules compile triage -o x.yml --tests nodir/x.yml",
        "rules compile --kind meta -o run1.jsonl/x.yml",
        "export --grafana run1.jsonl",
        "export --grafana run1.jsonl/below",
        "report run1.jsonl -o nodir/x.html",
        "report run1.jsonl -o folder",
        "reference build run1.jsonl -o nodir/x.json",
        "bench --json nodir/x.json",
        "bench --svg folder",
    ],
)
def test_an_output_that_cannot_be_is_one_sentence_before_the_work(rltriage, folder: Path, command: str) -> None:
    """A missing folder, a folder in the file's place, a file in the folder's: exit 2, and nothing is written."""
    (folder / "folder").mkdir()
    ran = rltriage(*command.split())
    assert ran.code == 2 and len(re.findall("cannot ", ran.err)) == 1 and "choose another" in ran.err
    assert not (folder / "x.yml").exists() and (folder / "run1.jsonl").read_text() == ROWS


def test_a_disk_that_fills_meanwhile_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was there stays, and the error names the file and the option."""
    import click

    from rltriage.engine import rundir

    (folder / "x.txt").write_text("old")
    output = Output("x.txt", "text", "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rundir.os, "fsync", full)
    with pytest.raises(click.UsageError, match=r"cannot write x.txt: No space left on device; choose another -o FILE"):
        output.write("new")
    assert (folder / "x.txt").read_text() == "old" and not list(folder.glob(".x.txt*"))


def test_a_pipe_takes_a_report(rltriage, folder: Path) -> None:
    """`-o >(less)` and other pipes are written into, and stay pipes."""
    import threading

    os.mkfifo(folder / "pipe.md")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((folder / "pipe.md").read_text()), daemon=True)
    reader.start()
    assert rltriage("report", "run1.jsonl", "-o", "pipe.md").code == 0
    reader.join(10)
    assert got[0].startswith("# ") and stat.S_ISFIFO((folder / "pipe.md").stat().st_mode)


def test_grafanas_files_are_written_again(rltriage, folder: Path) -> None:
    """A folder of dashboards is brought up to date."""
    for _ in range(2):
        assert rltriage("export", "--grafana", "board").code == 0
    assert json.loads((folder / "board" / "dashboards" / "rltriage-run.json").read_text())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no /dev/stdout")
def test_stdout_by_its_path_is_stdout(folder: Path) -> None:
    """A file behind it is neither replaced nor written over by what the command says, nor by the next command."""
    command = f"'{sys.executable}' -m rltriage report run1.jsonl --format md -o /dev/stdout; echo next"
    ran = subprocess.run(["sh", "-c", f"({command}) > out"], cwd=folder, capture_output=True, text=True, timeout=60)
    told = (folder / "out").read_text()
    assert ran.returncode == 0 and "# " in told and told.endswith("next\n") and "run1: " in told
