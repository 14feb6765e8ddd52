"""Commands on a hostile file."""

from __future__ import annotations

import contextlib
import io
import zlib
from pathlib import Path

import click

from fuzzing import files
from fuzzing.bounds import Target
from fuzzing.seeds import lines, sample
from fuzzing.sources import LOGS
from rltriage.cli import root as command_line
from rltriage.rules.errors import RltriageError

COMMANDS = (
    ["replay", "FILE"],
    ["replay", "FILE", "--json"],
    ["report", "FILE", "--format", "json"],
    ["coverage", "FILE"],
    ["profiles", "check", "FILE"],
    ["rules", "check", "FILE"],
    ["rules", "test", "FILE"],
    ["rules", "list", "--rules", "FILE"],
    ["replay", "LOG", "--rules", "FILE"],
    ["replay", "LOG", "--profile", "FILE"],
    ["replay", "LOG", "--reference", "FILE"],
    ["replay", "FILE", "--config", "TEXT"],
)


def commands(folder: Path) -> Target:
    """A file for every command that takes one: exit code 0, 1 or 2, one message, no traceback."""
    log = folder / "log.jsonl"
    log.write_bytes(lines(sample(6)))
    file = folder / "mine.yaml"
    makers = (files.rules, files.ruletests, files.config, files.reference, files.profile)
    seeds = [data for make in makers for data in make(folder).seeds[:3]]
    seeds += [*LOGS, lines(sample())]

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        words = {"FILE": str(file), "LOG": str(log), "TEXT": data[:80].decode("utf-8", "replace")}
        arguments = [words.get(word, word) for word in COMMANDS[zlib.crc32(data) % len(COMMANDS)]]
        out = io.StringIO()
        refused = contextlib.suppress(RltriageError, click.ClickException)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), refused:
            assert command_line.main(arguments, "rltriage", standalone_mode=False) in (None, 0, 1, 2)
        assert "Traceback" not in out.getvalue()

    return Target(seeds, judge)
