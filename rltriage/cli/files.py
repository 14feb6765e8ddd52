"""The files that commands write: never over what a command reads, nor over a file that is something else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import click

LOOKED_AT = 4096
"""Bytes of an existing file that tell what it is."""
_STDOUT = frozenset(("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"))
"""Opened anew, a file behind it would begin again and be written over by what the command says."""


class Output:
    """A file that a command is to write. Made before the work, so that a mistake costs none.

    `kind` is what the command writes, `mark` the pattern with which such files begin: a shell that makes `-o a.jsonl
    b.jsonl` of `-o *.jsonl` must cost nobody a log. `inputs` are what the command reads, `option` stands in errors.
    Raises a usage error (exit 2) where the file is one of the inputs, holds something else than `kind`, or cannot be made.
    """

    def __init__(
        self, path: str | Path, kind: str, mark: str, inputs: Iterable[str | Path] = (), option: str = "-o FILE"
    ) -> None:
        self.path = Path(path)
        self._option = option
        if any(_is_same(self.path, Path(read)) for read in inputs):
            self._refuse(f"{self.path} is what this command reads, and would be overwritten")
        if self.path.is_dir():
            self._refuse(f"cannot write {self.path}: it is a folder")
        if not self.path.exists() and not self.path.resolve().parent.is_dir():
            self._refuse(f"cannot write {self.path}: there is no folder {self.path.resolve().parent}")
        if self.path.is_file() and str(self.path) not in _STDOUT and not self._is(mark):
            self._refuse(f"{self.path} exists and is no {kind}: delete it first if nobody needs it, or")

    def write(self, text: str) -> None:
        """Write the file, atomically where it is one. Raises a usage error where that fails."""
        from rltriage.engine.rundir import write_atomically

        if str(self.path) in _STDOUT:
            click.echo(text, nl=False)
            return
        try:
            write_atomically(self.path, text)
        except OSError as error:
            self._refuse(f"cannot write {self.path}: {error.strerror or error}")

    def _is(self, mark: str) -> bool:
        """Whether the file that exists is what the command writes, or empty."""
        try:
            with open(self.path, "rb") as file:
                start = file.read(LOOKED_AT).decode("utf-8", "replace")
        except OSError as error:
            self._refuse(f"cannot write {self.path}: {error.strerror}")
        return not start.strip() or re.match(mark, start, re.DOTALL) is not None

    def _refuse(self, why: str) -> NoReturn:
        joint = "" if why.endswith(" or") else ";"
        raise click.UsageError(f"{why}{joint} choose another {self._option}")


def make_folder(path: Path, option: str) -> None:
    """Make a folder that is written into; `option` named it. Raises a usage error where that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"cannot make the folder {path}: {error.strerror}; choose another {option}") from None


def _is_same(output: Path, read: Path) -> bool:
    """Whether both are one file, whatever links lead to it."""
    try:
        return os.path.samefile(output, read)
    except OSError:  # one of them is not there, or no path but an address
        return False
