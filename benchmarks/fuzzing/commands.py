"""Commands on a hostile file."""

from __future__ import annotations

import contextlib
import io
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from fuzzing import files
from fuzzing.bounds import Target
from fuzzing.seeds import lines, pack, sample
from fuzzing.sources import LOGS
from rltriage.cli import root as command_line
from rltriage.rules import loader
from rltriage.rules.errors import RltriageError
from rltriage.rules.model import RulePack

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

    original = loader.load_rules

    def load(*packs: Any, **given: Any) -> RulePack:
        """The shipped pack is read once: most of a command's time goes there."""
        return pack() if packs == ("triage",) and not given else original(*packs, **given)

    def judge(data: bytes) -> None:
        file.write_bytes(data)
        words = {"FILE": str(file), "LOG": str(log), "TEXT": data[:80].decode("utf-8", "replace")}
        arguments = [words.get(word, word) for word in COMMANDS[zlib.crc32(data) % len(COMMANDS)]]
        out = io.StringIO()
        refused = contextlib.suppress(RltriageError, click.ClickException)
        with (
            patch.object(loader, "load_rules", load),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
            refused,
        ):
            assert command_line.main(arguments, "rltriage", standalone_mode=False) in (None, 0, 1, 2)
        assert "Traceback" not in out.getvalue()

    return Target(seeds, judge)
